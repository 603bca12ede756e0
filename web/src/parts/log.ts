// The lines of a log: the newest of a search, those that come while it is followed, earlier ones when asked for.
import { useEffect, useRef, useState } from "preact/hooks";
import { type LogLine, type Query, Refusal, type Schemas, follow, read } from "../api/client";
import { type Count, type Gap, after, counted, exactly, gapsOf, ofMilliseconds } from "./gaps";
import { useAgain } from "./hooks";

const PAGE = 200;
/** Lines that are shown while they come. */
const MOST = 5_000;
/** Lines that are loaded at once of those that were left out. */
export const LOADED = 1_000;
const SECOND = 1_000;

type Page = Pick<Schemas["LogList"], "lines" | "total">;
type Update = Pick<Schemas["LiveLogList"], "lines" | "start" | "counts">;

interface LogState {
  /** The question that found them. */
  of: string;
  lines: LogLine[];
  /** The time of the oldest line that was there at first: what is older is asked for as earlier lines. */
  from: string;
  counts: Count[];
  /** Whether there are earlier ones. */
  more: boolean;
}

export interface Source {
  /** The address of a page of lines. */
  page: (query: Query) => string;
  /** The address of what comes; null while nobody follows. */
  live: string | null;
  /** The span that is looked at, in epoch milliseconds. */
  start?: number | null;
  end?: number | null;
  ready?: boolean;
}

/** What a log shows. `lines` is null until there is an answer; `gaps` say where lines were left out. */
export function useLog({ page, live, start = null, end = null, ready = true }: Source) {
  const [state, setState] = useState<LogState | null>(null);
  const latest = useRef<LogState | null>(null);
  const [error, setError] = useState<Refusal | null>(null);
  const [turn, setTurn] = useState(0);
  const again = () => setTurn((now) => now + 1);
  // Lines that are shown stay when the server is back: what came meanwhile is followed, or counted.
  useAgain(error, () => void (latest.current ?? again()));
  const ask = (query: Query, signal?: AbortSignal) => read<Page>(page(query), signal);
  const newest = { start, end, order: "desc", limit: PAGE };
  const of = page(newest);
  const replace = (next: LogState | null) => setState((latest.current = next));
  /** Change the lines of this question; nothing where another one was asked meanwhile. */
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
        // Lines that another question found are none of this one.
        replace(null);
        setError(problem);
      },
    );
    return () => gone.abort();
  }, [ready, of, turn]);

  /** Have the lines of a span counted that no update counts. */
  const count = (from: string, to: string) => {
    const note = (lines: number) => change((before) => ({ counts: counted(before.counts, [{ start: from, end: to, lines }]) }));
    ask({ start: exactly(from), end: exactly(to), count: "true", limit: 0 }).then(
      (found) => note(found.total ?? 0),
      () => note(Number.POSITIVE_INFINITY),
    );
  };
  const take = (update: Update) => {
    const before = latest.current;
    if (before?.of !== of) return;
    const lines = joined(before, update.lines);
    const from = before.from || (lines[0]?.time_ns ?? "");
    const seconds = update.counts.map((one) => ({ start: ofMilliseconds(one.time), end: ofMilliseconds(one.time + SECOND), lines: one.lines }));
    const counts = counted(before.counts, seconds.filter((one) => one.start > from));
    const isCut = update.start !== null;
    replace({ of, lines: lines.slice(-MOST), from, counts, more: before.more || lines.length > MOST || (isCut && !before.lines.length) });
    const last = before.lines.at(-1);
    if (!last) return;
    // What came while nobody looked, and the rest of the second of which only the end was there at first.
    const covered = ofMilliseconds(update.start ?? 0);
    if (isCut && after(last.time_ns) < covered) count(after(last.time_ns), covered);
    const cut = seconds.find((one) => one.start <= from && from < one.end);
    if (cut && last.time_ns < cut.end && !counts.some((one) => one.start < cut.end)) count(after(last.time_ns), cut.end);
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
    const found = await ask({ start, end: exactly(after(first.time_ns)), order: "desc", limit: PAGE });
    change((before) => {
      const lines = [...new Map([...found.lines.reverse(), ...before.lines].map((line) => [keyOf(line), line])).values()];
      return { lines, more: lines.length > before.lines.length && found.lines.length === PAGE };
    });
  };
  /** Load what was left out, the newest of it first. */
  const load = async (gap: Gap) => {
    const loaded = () => latest.current?.lines.length ?? 0;
    const target = loaded() + Math.min(gap.lines, LOADED);
    for (let offset = 0; latest.current?.of === of && loaded() < target; offset += LOADED) {
      const found = await ask({ start: exactly(gap.start), end: exactly(gap.end), order: "desc", limit: LOADED, offset });
      const whole = found.lines.length < LOADED;
      change((now) => ({
        lines: joined({ ...now, more: false }, found.lines),
        counts: whole ? now.counts.filter((one) => one.end <= gap.start || one.start >= gap.end) : now.counts,
      }));
      if (whole) return;
    }
  };
  return { lines: state?.lines ?? null, gaps: state ? gapsOf(state.lines, state.counts) : [], more: state?.more ?? false, error, again, earlier: () => shown(earlier()), load: (gap: Gap) => shown(load(gap)) };
}

/** The lines with those that are new, in their order; without what is older where earlier ones are left out anyway. */
function joined({ lines, more }: LogState, found: readonly LogLine[]): LogLine[] {
  const present = new Set(lines.map(keyOf));
  const first = (more && lines[0]?.time_ns) || "";
  const fresh = found.filter((line) => line.time_ns >= first && !present.has(keyOf(line)));
  return fresh.length ? [...lines, ...fresh].sort(inTime) : [...lines];
}

/** Nanoseconds are texts of one length. */
const inTime = (a: LogLine, b: LogLine): number => (a.time_ns < b.time_ns ? -1 : a.time_ns > b.time_ns ? 1 : 0);

export const keyOf = (line: LogLine): string => `${line.time_ns} ${line.replica} ${line.attempt} ${line.stream} ${line.text}`;
