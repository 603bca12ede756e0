// The curves of the rows that are seen: requested once the list rests, few at a time, the oldest forgotten.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Job, type MetricLines, type Point, type Query, address, linesOf, read } from "../api/client";
import { shownIn } from "../catalog";
import { step, stepText } from "../charts/steps";
import { type Use, keyOf } from "./pages";

export interface Sparks {
  start: number;
  end: number;
  step: number;
  lines: Record<string, Point[]>;
  /** The most memory that the job had, in bytes: null where it was not measured, absent until that is known. */
  memory?: number | null;
}

/** The load of devices, best first: MIG instances have no utilization. */
const LOADS = [...shownIn("use").filter((metric) => metric.endsWith(".utilization")), "gpu.sm.active", "npu.sm.active"];
const METRICS = [...new Set([...shownIn("use"), ...LOADS])];
const POINTS = 40;
/** The server's summary of a job has as many steps: its highest value of a whole job depends on their length. */
const PEAK_POINTS = 60;
const AT_ONCE = 4;
const MOST = 400;
/** How long the same rows are seen before their curves are requested, in milliseconds: what is only scrolled by is not. */
const REST = 80;
/** A running job's curve that did not grow for so many steps has a hole: its row was out of sight, or the page was. */
const HOLE = 3;

interface Entry {
  sparks: Sparks;
  /** When they were brought up to date, by the browser's own clock. */
  updated: number;
  /** What they grew by last. */
  use: Use | undefined;
}

const cache = new Map<string, Entry>();

const name = (job: Job): string => `${keyOf(job)} ${job.state === "Running" ? "" : (job.end ?? job.last_sample)}`;

interface Questions {
  jobs: readonly Job[];
  use: ReadonlyMap<string, Use>;
  open: Map<string, AbortController>;
  /** Those without an answer since other rows came into sight: what fails is not requested again and again. */
  requested: Set<string>;
  moving: boolean;
}

/** Gives the curves of a job among those that are seen; null until they are there. */
export function useSparks(jobs: readonly Job[], use: ReadonlyMap<string, Use>, drawn: boolean): (job: Job) => Sparks | null {
  const [, setTurn] = useState(0);
  const changed = () => setTurn((now) => now + 1);
  const questions = useRef<Questions>({ jobs, use, open: new Map(), requested: new Set(), moving: true });
  const mine = questions.current;
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
      ask(mine, changed);
    }, REST);
    return () => clearTimeout(timer);
  }, [names]);
  // After an update: it may come so late that a curve has a hole.
  useEffect(() => ask(mine, changed));
  useEffect(
    () => () => {
      mine.moving = true;
      mine.open.forEach((gone) => gone.abort());
    },
    [],
  );
  return (job) => (drawn ? current(job, use.get(keyOf(job))) : null);
}

function ask(questions: Questions, changed: () => void): void {
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
        ask(questions, changed);
      });
  }
}

const isBehind = ({ sparks, updated }: Entry): boolean => Date.now() - updated > HOLE * sparks.step;

function isMissing(job: Job, use: Use | undefined): boolean {
  const found = cache.get(name(job));
  return !found || (job.state === "Running" && use !== undefined && isBehind(found));
}

/** The curves of a job, with what it uses now. */
function current(job: Job, use: Use | undefined): Sparks | null {
  const key = name(job);
  const found = cache.get(key);
  if (!found) return null;
  if (!use || use === found.use || job.state !== "Running" || isBehind(found)) return found.sparks;
  const sparks = grow(found.sparks, use);
  store(key, { sparks, updated: Date.now(), use });
  return sparks;
}

function store(key: string, entry: Entry): void {
  cache.delete(key);
  cache.set(key, entry);
  if (cache.size > MOST) cache.delete(cache.keys().next().value!);
}

/** The metric by which the load of a job's devices is drawn. */
export const loadOf = (lines: Record<string, Point[]>): string => LOADS.find((metric) => lines[metric]?.length) ?? LOADS[0]!;

/** Gives the curves, and once more with the most memory, which takes longer. */
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

/** The curves with a point of now, in the step that it belongs to. */
function grow(sparks: Sparks, use: Use): Sparks {
  const time = Math.floor(use.time / sparks.step) * sparks.step;
  const lines = { ...sparks.lines };
  for (const [metric, value] of Object.entries(use.values)) {
    const points = lines[metric] ?? [];
    const last = points[points.length - 1];
    lines[metric] = last && last[0] >= time ? [...points.slice(0, -1), [last[0], value]] : [...points, [time, value]];
  }
  return { ...sparks, end: Math.max(sparks.end, use.time), lines };
}
