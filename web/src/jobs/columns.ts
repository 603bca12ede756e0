// Columns of the list. The viewer's choice is in the address and in local storage.
import type { Job, Schemas } from "../api/client";
import { readSetting, writeSetting } from "../format";

export type Size = Schemas["JobSizeBody"];

export interface Column {
  id: string;
  /** Sort key of the API; empty if the server cannot sort by this column. */
  sort: string;
  text: string;
  /** Minimum width in CSS pixels, and the share of the remaining width. */
  least: number;
  share: number;
  /** Priority: if the window is too narrow, the columns with the lowest ranks are shown. */
  rank: number;
}

export const COLUMNS: readonly Column[] = [
  { id: "type", sort: "type", text: "Type", least: 80, share: 1, rank: 8 },
  { id: "project", sort: "project", text: "Project", least: 70, share: 0.6, rank: 12 },
  { id: "user", sort: "user", text: "User", least: 60, share: 0.7, rank: 4 },
  { id: "group", sort: "resource_group", text: "Group", least: 80, share: 1, rank: 11 },
  { id: "workspace", sort: "workspace", text: "Workspace", least: 70, share: 0.8, rank: 13 },
  { id: "created", sort: "created", text: "Created", least: 96, share: 0, rank: 14 },
  { id: "start", sort: "start", text: "Started", least: 96, share: 0, rank: 3 },
  { id: "end", sort: "end", text: "Ended", least: 96, share: 0, rank: 15 },
  { id: "duration", sort: "duration", text: "Duration", least: 92, share: 0, rank: 0 },
  { id: "tags", sort: "", text: "Tags", least: 90, share: 1, rank: 7.5 },
  { id: "exit", sort: "", text: "Exit status", least: 76, share: 0, rank: 16 },
  { id: "error", sort: "", text: "Error", least: 120, share: 1.6, rank: 17 },
  { id: "findings", sort: "", text: "Findings", least: 210, share: 8, rank: 2 },
  { id: "replicas", sort: "", text: "Replicas", least: 60, share: 0, rank: 9 },
  { id: "devices", sort: "", text: "GPUs", least: 40, share: 0, rank: 6 },
  { id: "nodes", sort: "", text: "Nodes", least: 44, share: 0, rank: 10 },
  { id: "memory", sort: "", text: "Peak memory", least: 84, share: 0, rank: 7 },
  { id: "cpu", sort: "", text: "CPU", least: 160, share: 0, rank: 5 },
  { id: "gpu", sort: "", text: "GPU", least: 128, share: 0, rank: 1 },
];
const USUAL = ["type", "project", "user", "group", "start", "duration", "findings", "replicas", "devices", "nodes", "memory", "cpu", "gpu"];
/** Width in CSS pixels below which the layout is that of a phone: usage stands below the duration. */
export const PHONE = 600;
/** Widths in CSS pixels of the check box, the state and the name (minimum). */
const FIRST = [20, 104, 150] as const;
/** Default columns from rank LATE on are shown only if findings and names get WISHED pixels above their minimum. */
const [LATE, WISHED] = [8, 130] as const;
const FIRST_PHONE = "20px 24px minmax(0, 1fr)";
const STACKED = 108;
const [GAP, AROUND, WIDEST] = [12, 64, 1680];
/** Rank up to which columns come before a custom choice: duration and GPU. */
const FIRST_RANKS = 1.5;
const STORAGE_KEY = "jobmeter-columns";
const ids = new Set(COLUMNS.map((one) => one.id));

/** Return the chosen column ids, from the address or local storage; null for the default. */
export function chosenColumns(query: URLSearchParams): readonly string[] | null {
  const text = query.get("columns") ?? readSetting(STORAGE_KEY);
  return text === null ? null : text.split(",").filter((id) => ids.has(id));
}

/** Return the columns that fit into a window of this width, in display order. Default columns without content are left out. */
export function shownColumns(chosen: readonly string[] | null, width: number, empty: ReadonlySet<string>): readonly Column[] {
  // An added column outranks all default columns except the first two.
  const rankOf = (one: Column) => (one.rank > FIRST_RANKS && !USUAL.includes(one.id) ? FIRST_RANKS : one.rank);
  const eligible = COLUMNS.filter((one) => (chosen ? chosen.includes(one.id) : USUAL.includes(one.id) && !empty.has(one.id))).sort((a, b) => rankOf(a) - rankOf(b));
  // On a phone, an icon beside the name stands for the findings.
  if (width < PHONE) return inOrder(eligible.filter((one) => one.id !== "findings").slice(0, 2));
  let room = Math.min(width, WIDEST) - AROUND - FIRST.reduce((sum, one) => sum + one + GAP, -GAP);
  return inOrder(
    eligible.filter((one) => {
      if (one.least + GAP + (chosen === null && one.rank >= LATE ? WISHED : 0) > room) return false;
      room -= one.least + GAP;
      return true;
    }),
  );
}

const inOrder = (columns: readonly Column[]): readonly Column[] => COLUMNS.filter((one) => columns.includes(one));

/** Return the ids of the columns that are empty for all of these jobs. */
export function emptyColumns(jobs: readonly Job[], sizeOf: (job: Job) => Size | undefined, found: number): ReadonlySet<string> {
  if (!jobs.length) return new Set();
  const sized = (of: keyof Size) => jobs.some((job) => sizeOf(job)?.[of] !== 0);
  const filled: Record<string, boolean> = {
    ...Object.fromEntries((["type", "user", "workspace", "error"] as const).map((name) => [name, jobs.some((job) => job[name])])),
    project: jobs.some((job) => job.project !== jobs[0]!.project || job.project !== "default"),
    group: jobs.some((job) => job.resource_group),
    exit: jobs.some((job) => job.exit_code !== null),
    end: jobs.some((job) => job.end !== null),
    created: jobs.some((job) => job.created !== null),
    findings: found > 0,
    replicas: sized("replicas"),
    devices: sized("devices"),
    nodes: sized("nodes"),
    gpu: sized("devices"),
  };
  return new Set(Object.keys(filled).filter((name) => !filled[name]));
}

/** Return the `grid-template-columns` of a row. */
export function tracksOf(columns: readonly Column[], width: number): string {
  if (width < PHONE) return columns.length ? `${FIRST_PHONE} ${STACKED}px` : FIRST_PHONE;
  const own = columns.map((one) => (one.share ? `minmax(${one.least}px, ${one.share}fr)` : `${one.least}px`));
  return [`${FIRST[0]}px`, `${FIRST[1]}px`, `minmax(${FIRST[2]}px, 5fr)`, ...own].join(" ");
}

/** Store the chosen columns in local storage; null restores the default. Returns the value for the address. */
export function keepColumns(ids: readonly string[] | null): string | null {
  if (ids === null) {
    forget();
    return null;
  }
  const text = COLUMNS.filter((one) => ids.includes(one.id)).map((one) => one.id).join(",");
  writeSetting(STORAGE_KEY, text);
  return text;
}

export const usualColumns = (): readonly string[] => USUAL;

function forget(): void {
  try {
    localStorage.removeItem(STORAGE_KEY);
  } catch {
    // Local storage may be disabled.
  }
}
