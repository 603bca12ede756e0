// Views of the list that the viewer saved, in this browser, and the viewer's own jobs.
import { useState } from "preact/hooks";
import { read, write } from "../format";
import { useClosing } from "../parts/hooks";
import { changed, go, href } from "../router";

export interface View {
  name: string;
  query: string;
}

const VIEWS = "jobmeter-views";
const USER = "jobmeter-user";
const MOST = 30;

/** The saved views, in the order of their names. */
export function savedViews(): readonly View[] {
  try {
    const found: unknown = JSON.parse(read(VIEWS) ?? "[]");
    const views = Array.isArray(found) ? (found as View[]) : [];
    return views.filter((one) => typeof one?.name === "string" && typeof one.query === "string");
  } catch {
    return [];
  }
}

/** The viewer's name as the user of jobs; empty where nobody stated it. */
export const ownUser = (): string => read(USER) ?? "";

export const viewAddress = (view: View): string => href([], new URLSearchParams(view.query));

/** What a view saves: what narrows, orders and shows, not what is picked. */
const saved = (query: URLSearchParams): string => changed(query, { pick: null }).toString();

export function Views({ query }: { query: URLSearchParams }) {
  const menu = useClosing();
  const [views, setViews] = useState(savedViews);
  const [user, setUser] = useState(ownUser);
  const store = (next: readonly View[]) => {
    write(VIEWS, JSON.stringify(next));
    setViews(next);
  };
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const name = (form.elements.namedItem("view") as HTMLInputElement).value.trim();
    if (!name) return;
    const others = views.filter((one) => one.name !== name);
    store([...others, { name, query: saved(query) }].slice(-MOST).sort((a, b) => a.name.localeCompare(b.name)));
    form.reset();
  };
  const mine = (event: SubmitEvent) => {
    event.preventDefault();
    const name = ((event.target as HTMLFormElement).elements.namedItem("user") as HTMLInputElement).value.trim();
    write(USER, name);
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
                <button type="button" class="link" aria-label={`Forget ${one.name}`} onClick={() => store(views.filter((other) => other !== one))}>
                  ×
                </button>
              </li>
            ))}
          </ul>
        )}
        <form onSubmit={save}>
          <label>
            Save what is shown as
            <input name="view" required maxLength={60} autocomplete="off" />
          </label>
          <button type="submit">Save</button>
        </form>
        <small>Saved in this browser. The address of a view can be shared.</small>
      </div>
    </details>
  );
}
