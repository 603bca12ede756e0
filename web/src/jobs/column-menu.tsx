import { useMenu } from "../parts/hooks";
import { COLUMNS, type Column, keepColumns, usualColumns } from "./columns";

/** Menu that chooses the columns of the list. */
export function ChooseColumns(given: { chosen: readonly string[] | null; shown: readonly Column[]; empty: ReadonlySet<string>; change: (text: string | null) => void }) {
  const { chosen, shown, empty, change } = given;
  const menu = useMenu();
  const now = chosen ?? usualColumns();
  const toggle = (id: string, on: boolean) => change(keepColumns(on ? [...now, id] : now.filter((one) => one !== id)));
  return (
    <details class="menu" ref={menu.ref}>
      <summary class="button">Columns</summary>
      <fieldset>
        <legend class="hidden">Columns of the list</legend>
        {COLUMNS.map((one) => (
          <label key={one.id}>
            <input type="checkbox" checked={now.includes(one.id)} onChange={(event) => toggle(one.id, event.currentTarget.checked)} />
            {one.text}
            {now.includes(one.id) && !shown.includes(one) && <small>{chosen === null && empty.has(one.id) ? "empty" : "no room"}</small>}
          </label>
        ))}
        <button type="button" disabled={chosen === null} onClick={() => change(keepColumns(null))}>
          Default columns
        </button>
      </fieldset>
    </details>
  );
}
