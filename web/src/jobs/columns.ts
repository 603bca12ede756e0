// The columns of the list: which there are, and which the viewer wants; in the address, and remembered for the browser.
import { read, write } from "../format";

export interface Column {
  id: string;
  /** What the server sorts by; empty where it cannot. */
  sort: string;
  text: string;
  /** The least width that it needs, in CSS pixels, and its share of what is left. */
  least: number;
  share: number;
  /** Where a window has no room for all, the columns of the lowest ranks are shown. */
  rank: number;
}

export const COLUMNS: readonly Column[] = [
  { id: "type", sort: "type", text: "Type", least: 70, share: 1, rank: 6 },
  { id: "project", sort: "project", text: "Project", least: 70, share: 0.6, rank: 8 },
  { id: "user", sort: "user", text: "User", least: 60, share: 0.7, rank: 4 },
  { id: "group", sort: "resource_group", text: "Group", least: 80, share: 1, rank: 7 },
  { id: "workspace", sort: "workspace", text: "Workspace", least: 70, share: 0.8, rank: 9 },
  { id: "created", sort: "created", text: "Created", least: 96, share: 0, rank: 10 },
  { id: "start", sort: "start", text: "Started", least: 96, share: 0, rank: 3 },
  { id: "end", sort: "end", text: "Ended", least: 96, share: 0, rank: 11 },
  { id: "duration", sort: "duration", text: "Duration", least: 92, share: 0, rank: 0 },
  { id: "exit", sort: "", text: "Exit status", least: 76, share: 0, rank: 12 },
  { id: "error", sort: "", text: "Error", least: 120, share: 1.6, rank: 13 },
  { id: "findings", sort: "", text: "Findings", least: 260, share: 8, rank: 2 },
  { id: "cpu", sort: "", text: "CPU", least: 160, share: 0, rank: 5 },
  { id: "gpu", sort: "", text: "GPU", least: 146, share: 0, rank: 1 },
];
const USUAL = ["type", "project", "user", "group", "start", "duration", "findings", "cpu", "gpu"];
/** Narrower than this is a phone: what a job used is below how long it took. */
export const PHONE = 600;
/** The box to pick a row, its state and the least of its name. */
const FIRST = [20, 104, 150] as const;
const FIRST_PHONE = "20px 24px minmax(0, 1fr)";
const STACKED = 108;
const [GAP, AROUND, WIDEST] = [12, 64, 1680];
const STORAGE_KEY = "jobmeter-columns";
const ids = new Set(COLUMNS.map((one) => one.id));

/** The ids that were chosen: by the address, else for this browser; null where nobody chose. */
export function chosenColumns(query: URLSearchParams): readonly string[] | null {
  const text = query.get("columns") ?? read(STORAGE_KEY);
  return text === null ? null : text.split(",").filter((id) => ids.has(id));
}

/** The columns that are shown in a window of that width, in their order; what has no room is left out. */
export function shownColumns(chosen: readonly string[] | null, width: number): readonly Column[] {
  const eligible = COLUMNS.filter((one) => (chosen ?? USUAL).includes(one.id)).sort((a, b) => a.rank - b.rank);
  if (width < PHONE) return inOrder(eligible.slice(0, 2));
  let room = Math.min(width, WIDEST) - AROUND - FIRST.reduce((sum, one) => sum + one + GAP, -GAP);
  return inOrder(
    eligible.filter((one) => {
      if (one.least + GAP > room) return false;
      room -= one.least + GAP;
      return true;
    }),
  );
}

const inOrder = (columns: readonly Column[]): readonly Column[] => COLUMNS.filter((one) => columns.includes(one));

/** The tracks of a row's grid. */
export function tracksOf(columns: readonly Column[], width: number): string {
  if (width < PHONE) return columns.length ? `${FIRST_PHONE} ${STACKED}px` : FIRST_PHONE;
  const own = columns.map((one) => (one.share ? `minmax(${one.least}px, ${one.share}fr)` : `${one.least}px`));
  return [`${FIRST[0]}px`, `${FIRST[1]}px`, `minmax(${FIRST[2]}px, 2.4fr)`, ...own].join(" ");
}

/** Remember a choice for this browser; gives what stands in the address. Nothing chosen goes back to the usual ones. */
export function keepColumns(ids: readonly string[] | null): string | null {
  if (ids === null) {
    forget();
    return null;
  }
  const text = COLUMNS.filter((one) => ids.includes(one.id)).map((one) => one.id).join(",");
  write(STORAGE_KEY, text);
  return text;
}

export const usualColumns = (): readonly string[] => USUAL;

function forget(): void {
  try {
    localStorage.removeItem(STORAGE_KEY);
  } catch {
    // A browser may keep nothing.
  }
}
