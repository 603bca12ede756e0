// The columns of the list: which there are, and which the viewer wants; in the address, and remembered for the browser.
import { read, write } from "../format";

export interface Column {
  id: string;
  /** What the server sorts by; empty where it cannot. */
  sort: string;
  text: string;
  width: string;
  /** Left out on a narrower window unless it was asked for. */
  least: number;
}

export const COLUMNS: readonly Column[] = [
  { id: "type", sort: "type", text: "Type", width: "minmax(70px, 1fr)", least: 900 },
  { id: "project", sort: "project", text: "Project", width: "minmax(70px, 0.6fr)", least: 1280 },
  { id: "user", sort: "user", text: "User", width: "minmax(60px, 0.7fr)", least: 780 },
  { id: "group", sort: "resource_group", text: "Group", width: "minmax(80px, 1fr)", least: 1280 },
  { id: "workspace", sort: "workspace", text: "Workspace", width: "minmax(70px, 0.8fr)", least: 0 },
  { id: "created", sort: "created", text: "Created", width: "96px", least: 0 },
  { id: "start", sort: "start", text: "Started", width: "96px", least: 780 },
  { id: "end", sort: "end", text: "Ended", width: "96px", least: 0 },
  { id: "duration", sort: "duration", text: "Duration", width: "92px", least: 0 },
  { id: "exit", sort: "", text: "Exit status", width: "76px", least: 0 },
  { id: "error", sort: "", text: "Error", width: "minmax(120px, 1.6fr)", least: 0 },
  { id: "cpu", sort: "", text: "CPU", width: "160px", least: 900 },
  { id: "gpu", sort: "", text: "GPU", width: "146px", least: 600 },
];
const USUAL = ["type", "project", "user", "group", "start", "duration", "cpu", "gpu"];
const KEPT = "jobmeter-columns";
const known = new Set(COLUMNS.map((one) => one.id));

/** The ids that were chosen: by the address, else for this browser; null where nobody chose. */
export function chosenColumns(query: URLSearchParams): readonly string[] | null {
  const text = query.get("columns") ?? read(KEPT);
  return text === null ? null : text.split(",").filter((id) => known.has(id));
}

/** The columns that are shown in a window of that width, in their order. */
export function shownColumns(chosen: readonly string[] | null, width: number): readonly Column[] {
  const wanted = new Set(chosen ?? USUAL);
  // On a phone a row has room for its name and one more.
  const most = width < 600 ? 1 : width < 900 ? 4 : COLUMNS.length;
  const fitting = COLUMNS.filter((one) => wanted.has(one.id) && (chosen !== null || width > one.least));
  if (fitting.length <= most) return fitting;
  const first = most === 1 ? fitting.filter((one) => one.id === "duration") : [];
  return first.length ? first : fitting.slice(0, most);
}

/** Remember a choice for this browser; gives what stands in the address. Nothing chosen goes back to the usual ones. */
export function keepColumns(ids: readonly string[] | null): string | null {
  if (ids === null) {
    forget();
    return null;
  }
  const text = COLUMNS.filter((one) => ids.includes(one.id)).map((one) => one.id).join(",");
  write(KEPT, text);
  return text;
}

export const usualColumns = (): readonly string[] => USUAL;

function forget(): void {
  try {
    localStorage.removeItem(KEPT);
  } catch {
    // A browser may keep nothing.
  }
}
