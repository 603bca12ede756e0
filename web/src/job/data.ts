// Requests of the job page: one for each group of charts, then live updates.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Job, type Line, type LiveJob, type LiveState, type MetricLines, Refusal, address, follow, linesByMetric, read } from "../api/client";
import type { Range } from "../charts/axis";
import type { Group } from "../charts/groups";
import { mergeUpdate, sortLines } from "../charts/lines";
import { step, stepText } from "../charts/steps";
import { nextTurn } from "../charts/scheduler";
import { useRead } from "../parts/hooks";

const BUCKETS = 300;
const FEWER_BUCKETS = 180;
/** Number of series above which fewer buckets suffice. */
const MANY = 24;
const LIVE_STEPS = [1, 5, 10, 15, 30, 60, 300].map((seconds) => seconds * 1000);
/** Number of devices above which each series stands for a replica. */
const MOST_DEVICES = 64;

export type By = "device" | "replica";
export const byOf = (devices: number): By => (devices > MOST_DEVICES ? "replica" : "device");

/** Return the time range of a job. That of a running job ends now. */
export function rangeOf(job: Job): Range {
  const now = Date.now();
  const end = job.state === "Running" || job.state === "Queued" ? now : (job.end ?? job.last_sample ?? now);
  const start = Math.min(job.start ?? job.first_sample ?? job.created ?? end, end - 1000);
  return { start, end: Math.max(end, job.end === null ? 0 : (job.last_sample ?? 0)) + 1 };
}

const AGAIN = 5 * 60_000;

/** Read a response about the whole job: once the first charts are loaded, then every `pause` milliseconds while the job runs. */
export function useWholeJob<T>(url: string, due: boolean, running: boolean, pause = AGAIN): T | null {
  // Zooming loads charts again, but a response about the whole job stays valid.
  const [ready, setReady] = useState(due);
  if (due && !ready) setReady(true);
  const response = useRead<T>(ready ? url : null);
  const refused = response.error?.status === 403;
  useEffect(() => {
    if (!ready || refused) return;
    if (!running) {
      if (response.data) response.reload();
      return;
    }
    const timer = setInterval(() => document.hidden || response.reload(), pause);
    return () => clearInterval(timer);
  }, [ready, running, refused]);
  // A stale response must not pass for a new one.
  return response.error ? null : response.data;
}

/** Values per request. Larger responses would delay the pointer while they are parsed. */
const VALUES_PER_REQUEST = 40_000;

/** Milliseconds within which responses are rendered together. The first response of an empty page is rendered at once. */
const TOGETHER = 300;

/** Split the metrics into requests: the first chart alone, then group by group, smaller for many replicas. */
function splitRequests(groups: readonly Group[], members: number, buckets: number): string[][] {
  const most = Math.min(Math.max(Math.floor(VALUES_PER_REQUEST / (Math.max(members, 1) * buckets)), 1), 90);
  const [first, ...others] = groups;
  const [chart, ...rest] = first?.main ?? [];
  const all = [...(chart ? [[chart]] : []), rest, ...others.map((group) => group.main)];
  return all.flatMap((metrics) => Array.from({ length: Math.ceil(metrics.length / most) }, (_, at) => metrics.slice(at * most, (at + 1) * most)));
}

export interface Measured {
  lines: ReadonlyMap<string, readonly Line[]>;
  range: Range;
  step: number;
  error: Refusal | null;
  busy: boolean;
}

/** Load the series of all metrics over a range. Old series stay until new ones arrive. */
export function useMeasured(job: { id: string; project: string }, groups: readonly Group[], by: By | null, members: number, range: Range, turn = 0): Measured & {
  take: (update: LiveJob, oldest: number) => void;
} {
  const buckets = members > MANY ? FEWER_BUCKETS : BUCKETS;
  const span = step(range.start, range.end, buckets);
  const wanted = splitRequests(groups, members, buckets);
  const [state, setState] = useState<Measured>({ lines: new Map(), range, step: span, error: null, busy: true });
  const names = wanted.join(";");
  const mine = useRef(0);
  useEffect(() => {
    if (by === null || !names) return;
    const gone = new AbortController();
    mine.current += 1;
    let left = wanted.length;
    let shownAt = state.lines.size ? performance.now() : Number.NEGATIVE_INFINITY;
    let fresh = new Map<string, readonly Line[]>();
    setState((last) => ({ ...last, busy: true, error: null }));
    const take = (answer: MetricLines) => {
      fresh = new Map([...fresh, ...[...linesByMetric(answer)].map(([name, lines]) => [name, sortLines(lines)] as const)]);
    };
    // Requests run one after the other, so that the first charts arrive first.
    void (async () => {
      for (const metrics of wanted) {
        const query = { metric: metrics, by, start: Math.floor(range.start), end: Math.ceil(range.end), step: stepText(span), format: "columns", project: job.project };
        try {
          const answer = await read<MetricLines>(address("/api/jobmeter/v1/jobs/{job}/metrics", { job: job.id }, query), gone.signal, nextTurn);
          await nextTurn();
          if (gone.signal.aborted) return;
          take(answer);
        } catch (error) {
          if (!(error instanceof Refusal)) return;
          setState((last) => ({ ...last, error }));
        }
        left -= 1;
        if (left && performance.now() - shownAt < TOGETHER) continue;
        shownAt = performance.now();
        const shown = fresh;
        // Series of the old range are replaced at once.
        setState((last) => ({
          ...last,
          lines: left && last.step !== span ? new Map([...last.lines, ...shown]) : shown.size ? new Map([...(left ? last.lines : []), ...shown]) : shown,
          range,
          step: span,
          busy: left > 0,
        }));
      }
    })();
    return () => gone.abort();
  }, [job.id, job.project, names, by, Math.floor(range.start), Math.ceil(range.end), span, turn]);
  const take = (update: LiveJob, oldest: number) => {
    setState((last) => {
      if (last.step !== update.step || update.by !== by) return last;
      const lines = new Map(last.lines);
      for (const [name, fresh] of linesByMetric(update)) lines.set(name, mergeUpdate(lines.get(name) ?? [], fresh, update.start, oldest));
      return { ...last, lines };
    });
  };
  return { ...state, take };
}

/** Follow live updates of a job in steps of `span`, or of one minute if the API does not offer that step. */
export function useLive(
  job: { id: string; project: string },
  metrics: readonly string[],
  by: By | "job" | null,
  span: number | null,
  on: boolean,
  take: (update: LiveJob) => void,
): LiveState | null {
  const [state, setState] = useState<LiveState | null>(null);
  const latest = useRef(take);
  latest.current = take;
  const followed = span !== null && LIVE_STEPS.includes(span) ? span : 60_000;
  useEffect(() => {
    if (!on || by === null || !metrics.length) return;
    const query = { metric: metrics.slice(0, 90), by, step: stepText(followed), format: "columns", project: job.project };
    const url = address("/api/jobmeter/v1/jobs/{job}/live", { job: job.id }, query);
    return follow<LiveJob>(url, (update) => latest.current(update), setState, nextTurn);
  }, [job.id, job.project, metrics.join(), by, followed, on]);
  return on ? state : null;
}
