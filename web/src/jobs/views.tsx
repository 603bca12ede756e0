// Menu of the saved views and of the viewer's own jobs.
import { useEffect, useState } from "preact/hooks";
import { writeSetting } from "../format";
import { useMenu } from "../parts/hooks";
import { mergeQuery, go, href } from "../router";
import { MOST_VIEWS, USER, VIEWS, type View, ownUser, savedViews, withView } from "./saved";

export const viewAddress = (view: View): string => href([], new URLSearchParams(view.query));

/** Return the query that a view stores: everything but the selected jobs. */
const saved = (query: URLSearchParams): string => mergeQuery(query, { pick: null }).toString();

export function Views({ query }: { query: URLSearchParams }) {
  const menu = useMenu();
  const [views, setViews] = useState(savedViews);
  const [user, setUser] = useState(ownUser);
  useEffect(() => {
    // Another tab changed the saved views.
    const elsewhere = () => setViews(savedViews());
    addEventListener("storage", elsewhere);
    return () => removeEventListener("storage", elsewhere);
  }, []);
  const store = (next: readonly View[]) => {
    writeSetting(VIEWS, JSON.stringify(next));
    setViews(next);
  };
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const field = form.elements.namedItem("view") as HTMLInputElement;
    const name = field.value.trim();
    if (!name) return;
    const next = withView(views, { name, query: saved(query) });
    if (!next) {
      field.setCustomValidity(`${MOST_VIEWS} views are saved, the maximum. Delete one first.`);
      field.reportValidity();
      return;
    }
    store(next);
    form.reset();
  };
  const mine = (event: SubmitEvent) => {
    event.preventDefault();
    const name = ((event.target as HTMLFormElement).elements.namedItem("user") as HTMLInputElement).value.trim();
    writeSetting(USER, name);
    setUser(name);
    if (name) show(href([], { user: name }));
  };
  const show = (to: string) => {
    menu.close();
    go(to);
  };
  return (
    <details class="views" ref={menu.ref}>
      <summary class="button">Views</summary>
      <div class="sheet">
        <form onSubmit={mine}>
          <label>
            My user name
            <input name="user" key={user} defaultValue={user} autocomplete="username" spellcheck={false} />
          </label>
          <button type="submit">My jobs</button>
        </form>
        {views.length > 0 && (
          <ul aria-label="Saved views">
            {views.map((one) => (
              <li key={one.name}>
                <a href={viewAddress(one)} onClick={menu.close} aria-current={saved(query) === one.query ? "true" : undefined}>
                  {one.name}
                </a>
                <button type="button" class="link" aria-label={`Delete ${one.name}`} onClick={() => store(views.filter((other) => other !== one))}>
                  ×
                </button>
              </li>
            ))}
          </ul>
        )}
        <form onSubmit={save}>
          <label>
            Save this view as
            <input name="view" required maxLength={60} autocomplete="off" onInput={(event) => event.currentTarget.setCustomValidity("")} />
          </label>
          <button type="submit">Save</button>
        </form>
        <small>Saved in this browser. The address of a view can be shared.</small>
      </div>
    </details>
  );
}
