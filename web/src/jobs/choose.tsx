import { useEffect, useRef } from "preact/hooks";
import { COLUMNS, type Column, keepColumns, usualColumns } from "./columns";

/** Which columns the list has: a menu of boxes; Escape closes it. */
export function ChooseColumns(given: { chosen: readonly string[] | null; shown: readonly Column[]; change: (text: string | null) => void }) {
  const { chosen, shown, change } = given;
  const menu = useRef<HTMLDetailsElement>(null);
  const now = chosen ?? usualColumns();
  useEffect(() => {
    const outside = (event: Event) => {
      if (menu.current?.open && !menu.current.contains(event.target as Node)) menu.current.open = false;
    };
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, []);
  const toggle = (id: string, on: boolean) => change(keepColumns(on ? [...now, id] : now.filter((one) => one !== id)));
  const close = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !menu.current) return;
    menu.current.open = false;
    menu.current.querySelector("summary")?.focus();
  };
  return (
    <details class="menu" ref={menu} onKeyDown={close}>
      <summary class="button">Columns</summary>
      <fieldset>
        <legend class="hidden">Columns of the list</legend>
        {COLUMNS.map((one) => (
          <label key={one.id}>
            <input type="checkbox" checked={now.includes(one.id)} onChange={(event) => toggle(one.id, event.currentTarget.checked)} />
            {one.text}
            {now.includes(one.id) && !shown.includes(one) && <small>no room here</small>}
          </label>
        ))}
        <button type="button" disabled={chosen === null} onClick={() => change(keepColumns(null))}>
          The usual ones
        </button>
      </fieldset>
    </details>
  );
}
