// The columns of the list: which there are, and which the viewer wants; in the address, and remembered for the browser.
import type { Job, Schemas } from "../api/client";
import { read, write } from "../format";

export type Size = Schemas["JobSizeBody"];

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
/** Narrower than this is a phone: what a job used is below how long it took. */
export const PHONE = 600;
/** The box to pick a row, its state and the least of its name. */
const FIRST = [20, 104, 150] as const;
/** Columns from this rank on are usual only where findings and names have so much more than their least. */
const [LATE, WISHED] = [8, 130] as const;
const FIRST_PHONE = "20px 24px minmax(0, 1fr)";
const STACKED = 108;
const [GAP, AROUND, WIDEST] = [12, 64, 1680];
/** Duration and GPU, the columns of lower ranks, come first. */
const FIRST_RANKS = 1.5;
const STORAGE_KEY = "jobmeter-columns";
const ids = new Set(COLUMNS.map((one) => one.id));

/** The ids that were chosen: by the address, else for this browser; null where nobody chose. */
export function chosenColumns(query: URLSearchParams): readonly string[] | null {
  const text = query.get("columns") ?? read(STORAGE_KEY);
  return text === null ? null : text.split(",").filter((id) => ids.has(id));
}

/** The columns that are shown in a window of that width, in their order, without those that have no room; of the usual ones also without empty ones. */
export function shownColumns(chosen: readonly string[] | null, width: number, empty: ReadonlySet<string>): readonly Column[] {
  // An unusual column that somebody chose comes before all usual ones but the first.
  const rankOf = (one: Column) => (one.rank > FIRST_RANKS && !USUAL.includes(one.id) ? FIRST_RANKS : one.rank);
  const eligible = COLUMNS.filter((one) => (chosen ? chosen.includes(one.id) : USUAL.includes(one.id) && !empty.has(one.id))).sort((a, b) => rankOf(a) - rankOf(b));
  // A phone has a sign of the findings beside the name.
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

/** The columns that say nothing of any of these jobs. */
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

/** The tracks of a row's grid. */
export function tracksOf(columns: readonly Column[], width: number): string {
  if (width < PHONE) return columns.length ? `${FIRST_PHONE} ${STACKED}px` : FIRST_PHONE;
  const own = columns.map((one) => (one.share ? `minmax(${one.least}px, ${one.share}fr)` : `${one.least}px`));
  return [`${FIRST[0]}px`, `${FIRST[1]}px`, `minmax(${FIRST[2]}px, 5fr)`, ...own].join(" ");
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
