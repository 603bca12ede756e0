// Pages of the list, a hundred jobs each. They are loaded near the viewport, evicted far from it, and updated live.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Job, type LiveJobs, type Query, type Schemas, Refusal, address, read } from "../api/client";
import type { Size } from "./columns";

const PAGE = 100;
/** Number of rows above and below the viewport that are loaded too. */
const AHEAD = 60;
const MOST_PAGES = 30;

export interface Use {
  time: number;
  values: Record<string, number>;
}

export type Found = Schemas["FindingSummary"];

export interface Jobs {
  total: number | null;
  loaded: readonly Job[];
  error: Refusal | null;
  busy: boolean;
  fresh: number;
  /** Time of the last live update, in epoch milliseconds. */
  now: number;
  use: ReadonlyMap<string, Use>;
  found: ReadonlyMap<string, Found>;
  sizes: ReadonlyMap<string, Size>;
  tags: ReadonlyMap<string, readonly string[]>;
  /** Number of jobs by state that match all other filters; null until loaded. */
  states: Readonly<Record<string, number>> | null;
  at: (index: number) => Job | null;
  want: (first: number, last: number) => void;
  take: (update: LiveJobs) => void;
  reload: () => void;
}

export const keyOf = (job: { project: string; id: string }): string => `${job.project}/${job.id}`;

/** Default order: running jobs, queued jobs, then all others, each newest first. */
export const USUAL_SORT = "active";
const activity = (job: Job): number => ["Queued", "Running"].indexOf(job.state);

interface ListState {
  pages: Map<number, Job[]>;
  requests: Map<number, AbortController>;
  /** Keys of all jobs that the loaded pages have had. */
  listed: Set<string>;
  use: Map<string, Use>;
  found: Map<string, Found>;
  sizes: Map<string, Size>;
  tags: Map<string, readonly string[]>;
  newest: number;
}

const emptyState = (use: Map<string, Use> = new Map()): ListState => ({
  pages: new Map(),
  requests: new Map(),
  listed: new Set(),
  use,
  found: new Map(),
  sizes: new Map(),
  tags: new Map(),
  newest: 0,
});

/** Return the page farthest from the viewport. Page 0 is never evicted: columns and suggestions are derived from it. */
export function farthest(pages: readonly number[], [first, last]: readonly [number, number]): number {
  const middle = (first + last) / 2 / PAGE - 0.5;
  return pages.filter((page) => page > 0).reduce((one, other) => (Math.abs(other - middle) > Math.abs(one - middle) ? other : one));
}

export function useJobs(query: Query): Jobs {
  const state = useRef<ListState>(emptyState());
  const visible = useRef<[number, number]>([0, 40]);
  const [total, setTotal] = useState<number | null>(null);
  const [error, setError] = useState<Refusal | null>(null);
  const [fresh, setFresh] = useState(0);
  const [states, setStates] = useState<Record<string, number> | null>(null);
  const [now, setNow] = useState(Date.now);
  const current = useRef(query);
  const redraw = () => setNow((last) => Math.max(Date.now(), last + 1));

  const ask = (page: number) => {
    const mine = state.current;
    if (mine.pages.has(page) || mine.requests.has(page)) return;
    const gone = new AbortController();
    mine.requests.set(page, gone);
    const url = address("/api/jobmeter/v1/jobs", {}, { ...current.current, findings: "true", sizes: "true", tags: "true", states: page ? null : "true", limit: PAGE, offset: page * PAGE });
    read<Schemas["JobList"]>(url, gone.signal)
      .then(
        (list) => {
          if (state.current !== mine) return;
          mine.pages.set(page, list.jobs);
          for (const one of list.findings ?? []) mine.found.set(keyOf(one), one);
          list.jobs.forEach((job, at) => {
            const size = list.sizes?.[at];
            if (size) mine.sizes.set(keyOf(job), size);
            mine.tags.set(keyOf(job), list.tags?.[at] ?? []);
          });
          if (list.states) setStates(list.states);
          for (const job of list.jobs) {
            mine.listed.add(keyOf(job));
            mine.newest = Math.max(mine.newest, job.created ?? job.start ?? job.first_sample ?? 0);
          }
          if (mine.pages.size > MOST_PAGES) mine.pages.delete(farthest([...mine.pages.keys()], visible.current));
          setTotal(list.total);
          setError(null);
        },
        (problem: unknown) => {
          if (!(problem instanceof Refusal) || state.current !== mine) return;
          setError(problem);
          // The total belongs to the previous query.
          if (!mine.pages.size) setTotal(null);
        },
      )
      .finally(() => {
        mine.requests.delete(page);
        if (isSeen(page)) redraw();
      });
  };

  const isSeen = (page: number) => page * PAGE <= visible.current[1] && (page + 1) * PAGE > visible.current[0];

  const want = (first: number, last: number) => {
    visible.current = [first, last];
    const [low, high] = [Math.floor(Math.max(first - AHEAD, 0) / PAGE), Math.floor((Math.max(last, 0) + AHEAD) / PAGE)];
    for (const [page, gone] of state.current.requests) if (page > 0 && (page < low - 1 || page > high + 1)) gone.abort();
    // Page 0 also has the number of jobs by state, so it is always loaded.
    ask(0);
    for (let page = low; page <= high; page += 1) if (total === null || page * PAGE < total) ask(page);
  };

  const reload = () => {
    state.current.requests.forEach((gone) => gone.abort());
    state.current = emptyState(state.current.use);
    setFresh(0);
    want(...visible.current);
  };

  const take = (update: LiveJobs) => {
    const mine = state.current;
    const updated = new Map(update.jobs.map((job) => [keyOf(job), job]));
    // Started and ended jobs move to another group of the default order.
    const moved = [...mine.pages.values()].flat().some((job) => activity(job) !== activity(updated.get(keyOf(job)) ?? job));
    for (const page of mine.pages.values()) page.forEach((job, at) => (page[at] = updated.get(keyOf(job)) ?? job));
    for (const key of updated.keys()) mine.found.delete(key);
    for (const one of update.findings) mine.found.set(keyOf(one), one);
    mine.use.clear();
    for (const one of update.use) {
      const values = Object.fromEntries(one.values.map((value) => [value.metric, value.value]));
      mine.use.set(keyOf(one), { time: update.now, values });
    }
    const plain = !Object.entries(current.current).some(([name, value]) => name !== "sort" && (Array.isArray(value) ? value.length : value)) && current.current["sort"] === USUAL_SORT;
    const created = update.jobs.filter((job) => !mine.listed.has(keyOf(job)) && (job.created ?? job.start ?? job.first_sample ?? 0) > mine.newest);
    if (plain && mine.pages.has(0) && (created.length || moved)) {
      // At the top of the list new jobs appear at once; further down they would move the rows that are being read.
      if (scrollY < 200) reload();
      else if (created.length) setFresh(created.length);
    }
    redraw();
  };

  useEffect(() => {
    current.current = query;
    reload();
    return () => state.current.requests.forEach((gone) => gone.abort());
  }, [query]);

  return {
    total,
    loaded: state.current.pages.get(0) ?? [],
    error,
    busy: state.current.requests.size > 0,
    fresh,
    now,
    use: state.current.use,
    found: state.current.found,
    sizes: state.current.sizes,
    tags: state.current.tags,
    states,
    at: (index) => state.current.pages.get(Math.floor(index / PAGE))?.[index % PAGE] ?? null,
    want,
    take,
    reload,
  };
}
