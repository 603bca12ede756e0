// Lines of a log: the newest matches of a search, new lines while following, earlier lines on demand.
import { useEffect, useRef, useState } from "preact/hooks";
import { type LogLine, type Query, Refusal, type Schemas, follow, read } from "../api/client";
import { type Count, type Gap, nextNanosecond, mergeCounts, toIsoNanoseconds, findGaps, toNanoseconds } from "./gaps";
import { useRetry } from "./hooks";

const PAGE = 200;
/** Maximum number of lines kept while following. */
const MOST = 5_000;
/** Number of missing lines loaded at once. */
export const LOADED = 1_000;
const SECOND = 1_000;

type Page = Pick<Schemas["LogList"], "lines" | "total">;
type Update = Pick<Schemas["LiveLogList"], "lines" | "start" | "counts">;

interface LogState {
  /** URL of the request that found the lines. */
  of: string;
  lines: LogLine[];
  /** Time of the oldest line of the first response. Older lines are loaded as earlier lines. */
  from: string;
  counts: Count[];
  /** True if there are earlier lines. */
  more: boolean;
}

export interface Source {
  /** Return the URL of a page of lines. */
  page: (query: Query) => string;
  /** URL of the live updates; null if not followed. */
  live: string | null;
  /** Time range in epoch milliseconds. */
  start?: number | null;
  end?: number | null;
  ready?: boolean;
}

/** Load and follow a log. `lines` is null until loaded; `gaps` say where lines are missing. */
export function useLog({ page, live, start = null, end = null, ready = true }: Source) {
  const [state, setState] = useState<LogState | null>(null);
  const latest = useRef<LogState | null>(null);
  const [error, setError] = useState<Refusal | null>(null);
  const [turn, setTurn] = useState(0);
  const reload = () => setTurn((now) => now + 1);
  // After an outage loaded lines stay: missed lines are followed or counted.
  useRetry(error, () => void (latest.current ?? reload()));
  const ask = (query: Query, signal?: AbortSignal) => read<Page>(page(query), signal);
  const newest = { start, end, order: "desc", limit: PAGE };
  const of = page(newest);
  const replace = (next: LogState | null) => setState((latest.current = next));
  /** Change the state, unless another search has started meanwhile. */
  const change = (step: (before: LogState) => Partial<LogState>) => {
    const before = latest.current;
    if (before?.of === of) replace({ ...before, ...step(before) });
  };

  useEffect(() => {
    if (!ready) return;
    const gone = new AbortController();
    ask(newest, gone.signal).then(
      (found) => {
        const lines = [...found.lines].reverse();
        replace({ of, lines, from: lines[0]?.time_ns ?? "", counts: [], more: found.lines.length === PAGE });
        setError(null);
      },
      (problem: unknown) => {
        if (!(problem instanceof Refusal)) return;
        // The lines of the previous search do not match this one.
        replace(null);
        setError(problem);
      },
    );
    return () => gone.abort();
  }, [ready, of, turn]);

  /** Count the lines of a span that no live update counts. */
  const count = (from: string, to: string) => {
    const note = (lines: number) => change((before) => ({ counts: mergeCounts(before.counts, [{ start: from, end: to, lines }]) }));
    ask({ start: toIsoNanoseconds(from), end: toIsoNanoseconds(to), count: "true", limit: 0 }).then(
      (found) => note(found.total ?? 0),
      () => note(Number.POSITIVE_INFINITY),
    );
  };
  const take = (update: Update) => {
    const before = latest.current;
    if (before?.of !== of) return;
    const lines = mergeLines(before, update.lines);
    const from = before.from || (lines[0]?.time_ns ?? "");
    const seconds = update.counts.map((one) => ({ start: toNanoseconds(one.time), end: toNanoseconds(one.time + SECOND), lines: one.lines }));
    const counts = mergeCounts(before.counts, seconds.filter((one) => one.start > from));
    const isCut = update.start !== null;
    replace({ of, lines: lines.slice(-MOST), from, counts, more: before.more || lines.length > MOST || (isCut && !before.lines.length) });
    const last = before.lines.at(-1);
    if (!last) return;
    // Count lines that arrived while the tab was hidden, and the rest of a second whose end alone was loaded.
    const covered = toNanoseconds(update.start ?? 0);
    if (isCut && nextNanosecond(last.time_ns) < covered) count(nextNanosecond(last.time_ns), covered);
    const cut = seconds.find((one) => one.start <= from && from < one.end);
    if (cut && last.time_ns < cut.end && !counts.some((one) => one.start < cut.end)) count(nextNanosecond(last.time_ns), cut.end);
  };
  useEffect(() => (live !== null && state?.of === of ? follow<Update>(live, take, () => null) : undefined), [live, of, state?.of]);

  const shown = async (work: Promise<void>) => {
    try {
      await work;
      setError(null);
    } catch (problem) {
      if (problem instanceof Refusal) setError(problem);
    }
  };
  const earlier = async () => {
    const first = latest.current?.lines[0];
    if (!first) return;
    const found = await ask({ start, end: toIsoNanoseconds(nextNanosecond(first.time_ns)), order: "desc", limit: PAGE });
    change((before) => {
      const lines = [...new Map([...found.lines.reverse(), ...before.lines].map((line) => [keyOf(line), line])).values()];
      return { lines, more: lines.length > before.lines.length && found.lines.length === PAGE };
    });
  };
  /** Load the missing lines of a gap, newest first. */
  const load = async (gap: Gap) => {
    const loaded = () => latest.current?.lines.length ?? 0;
    const target = loaded() + Math.min(gap.lines, LOADED);
    for (let offset = 0; latest.current?.of === of && loaded() < target; offset += LOADED) {
      const found = await ask({ start: toIsoNanoseconds(gap.start), end: toIsoNanoseconds(gap.end), order: "desc", limit: LOADED, offset });
      const whole = found.lines.length < LOADED;
      change((now) => ({
        lines: mergeLines({ ...now, more: false }, found.lines),
        counts: whole ? now.counts.filter((one) => one.end <= gap.start || one.start >= gap.end) : now.counts,
      }));
      if (whole) return;
    }
  };
  return { lines: state?.lines ?? null, gaps: state ? findGaps(state.lines, state.counts) : [], more: state?.more ?? false, error, reload, earlier: () => shown(earlier()), load: (gap: Gap) => shown(load(gap)) };
}

/** Merge new lines in time order. Older lines are dropped if earlier lines are not loaded anyway. */
function mergeLines({ lines, more }: LogState, found: readonly LogLine[]): LogLine[] {
  const present = new Set(lines.map(keyOf));
  const first = (more && lines[0]?.time_ns) || "";
  const fresh = found.filter((line) => line.time_ns >= first && !present.has(keyOf(line)));
  return fresh.length ? [...lines, ...fresh].sort(compareTime) : [...lines];
}

/** Compare by time. Nanoseconds are strings of fixed length. */
const compareTime = (a: LogLine, b: LogLine): number => (a.time_ns < b.time_ns ? -1 : a.time_ns > b.time_ns ? 1 : 0);

export const keyOf = (line: LogLine): string => `${line.time_ns} ${line.replica} ${line.attempt} ${line.stream} ${line.text}`;
