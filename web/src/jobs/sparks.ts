// Sparklines of the visible rows: loaded once scrolling stops, a few at a time, with an LRU cache.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Job, type MetricLines, type Point, type Query, address, linesOf, read } from "../api/client";
import { metricsIn } from "../catalog";
import { step, stepText } from "../charts/steps";
import { type Use, keyOf } from "./pages";

export interface Sparks {
  start: number;
  end: number;
  step: number;
  lines: Record<string, Point[]>;
  /** Peak memory of the job in bytes; null if not measured, undefined until loaded. */
  memory?: number | null;
}

/** Utilization metrics in order of preference. MIG instances have no utilization. */
const LOADS = [...metricsIn("use").filter((metric) => metric.endsWith(".utilization")), "gpu.sm.active", "npu.sm.active"];
const METRICS = [...new Set([...metricsIn("use"), ...LOADS])];
const POINTS = 40;
/** Number of steps of the server's job summary. The peak depends on the step, so the page uses the same number. */
const PEAK_POINTS = 60;
const AT_ONCE = 4;
const MOST = 400;
/** Milliseconds that rows must stay in the viewport before their sparklines are loaded. */
const REST = 80;
/** Number of steps without a new point after which a running job's sparkline is loaded again. */
const HOLE = 3;

interface Entry {
  sparks: Sparks;
  /** Time of the last update, by `performance.now()`. */
  updated: number;
  /** Last live value that was appended. */
  use: Use | undefined;
}

const cache = new Map<string, Entry>();

const name = (job: Job): string => `${keyOf(job)} ${job.state === "Running" ? "" : (job.end ?? job.last_sample)}`;

interface LoadState {
  jobs: readonly Job[];
  use: ReadonlyMap<string, Use>;
  open: Map<string, AbortController>;
  /** Keys requested since the visible rows changed, so that failed requests are not repeated. */
  requested: Set<string>;
  moving: boolean;
}

/** Return a function that gives the sparklines of a visible job; null until loaded. */
export function useSparks(jobs: readonly Job[], use: ReadonlyMap<string, Use>, drawn: boolean): (job: Job) => Sparks | null {
  const [, setTurn] = useState(0);
  const changed = () => setTurn((now) => now + 1);
  const loading = useRef<LoadState>({ jobs, use, open: new Map(), requested: new Set(), moving: true });
  const mine = loading.current;
  Object.assign(mine, { jobs, use });
  const names = drawn ? jobs.map(name).join("\n") : "";
  useEffect(() => {
    const seen = new Set(names.split("\n"));
    for (const [one, gone] of mine.open) if (!seen.has(one)) gone.abort();
    mine.requested.clear();
    mine.moving = true;
    if (!names) return;
    const timer = setTimeout(() => {
      mine.moving = false;
      loadVisible(mine, changed);
    }, REST);
    return () => clearTimeout(timer);
  }, [names]);
  // After each update, because a late update can leave a gap in a sparkline.
  useEffect(() => loadVisible(mine, changed));
  useEffect(
    () => () => {
      mine.moving = true;
      mine.open.forEach((gone) => gone.abort());
    },
    [],
  );
  return (job) => (drawn ? withUsage(job, use.get(keyOf(job))) : null);
}

function loadVisible(questions: LoadState, changed: () => void): void {
  const { jobs, use, open, requested } = questions;
  for (const job of jobs) {
    if (questions.moving || open.size >= AT_ONCE) return;
    const key = name(job);
    if (open.has(key) || requested.has(key) || !isMissing(job, use.get(keyOf(job)))) continue;
    const gone = new AbortController();
    open.set(key, gone);
    requested.add(key);
    load(job, gone.signal, (sparks) => {
      store(key, { sparks, updated: Date.now(), use: questions.use.get(keyOf(job)) });
      requested.delete(key);
      changed();
    })
      .catch(() => undefined)
      .finally(() => {
        open.delete(key);
        loadVisible(questions, changed);
      });
  }
}

const isBehind = ({ sparks, updated }: Entry): boolean => Date.now() - updated > HOLE * sparks.step;

function isMissing(job: Job, use: Use | undefined): boolean {
  const found = cache.get(name(job));
  return !found || (job.state === "Running" && use !== undefined && isBehind(found));
}

/** Return the sparklines of a job with its current usage appended. */
function withUsage(job: Job, use: Use | undefined): Sparks | null {
  const key = name(job);
  const found = cache.get(key);
  if (!found) return null;
  if (!use || use === found.use || job.state !== "Running" || isBehind(found)) return found.sparks;
  const sparks = appendUsage(found.sparks, use);
  store(key, { sparks, updated: Date.now(), use });
  return sparks;
}

function store(key: string, entry: Entry): void {
  cache.delete(key);
  cache.set(key, entry);
  if (cache.size > MOST) cache.delete(cache.keys().next().value!);
}

/** Return the metric that shows the utilization of a job's devices. */
export const loadOf = (lines: Record<string, Point[]>): string => LOADS.find((metric) => lines[metric]?.length) ?? LOADS[0]!;

/** Load the sparklines, then the peak memory, which takes longer. */
async function load(job: Job, signal: AbortSignal, take: (sparks: Sparks) => void): Promise<void> {
  const start = job.start ?? job.first_sample ?? job.created ?? Date.now();
  const end = (job.state === "Running" ? null : (job.end ?? job.last_sample)) ?? Date.now();
  const span = step(start, end + 1, POINTS);
  const common = { by: "job", aggregate: "whole", start, end: end + 1, format: "columns", project: job.project };
  const ask = (query: Query) => read<MetricLines>(address("/api/jobmeter/v1/jobs/{job}/metrics", { job: job.id }, { ...common, ...query }), signal);
  const peaks = stepText(step(start, end + 1, PEAK_POINTS));
  const answer = await ask({ metric: METRICS, step: stepText(span) });
  const curves: Sparks = { start, end, step: span, lines: Object.fromEntries(linesOf(answer).map(({ metric, time, value }) => [metric, time.map((at, place): Point => [at, value[place]!])])) };
  take(curves);
  const highest = await ask({ metric: "memory.usage", statistic: "max", step: peaks });
  const memory = linesOf(highest)[0]?.value ?? [];
  take({ ...curves, memory: memory.length ? Math.max(...memory) : null });
}

/** Append the current usage to the sparklines, in the step that it belongs to. */
function appendUsage(sparks: Sparks, use: Use): Sparks {
  const time = Math.floor(use.time / sparks.step) * sparks.step;
  const lines = { ...sparks.lines };
  for (const [metric, value] of Object.entries(use.values)) {
    const points = lines[metric] ?? [];
    const last = points[points.length - 1];
    lines[metric] = last && last[0] >= time ? [...points.slice(0, -1), [last[0], value]] : [...points, [time, value]];
  }
  return { ...sparks, end: Math.max(sparks.end, use.time), lines };
}
