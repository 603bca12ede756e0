// Gaps in a followed log: lines arrived faster than updates carry them, or while the tab was hidden.
import type { LogLine } from "../api/client";

/** Epoch nanoseconds as a string of fixed length, so that string order is time order. */
type Nanoseconds = string;

/** Number of lines in [start, end); Infinity if unknown. */
export interface Count {
  start: Nanoseconds;
  end: Nanoseconds;
  lines: number;
}

/** Span with missing lines. `at` is the index of the line after the gap. */
export interface Gap extends Count {
  at: number;
}

/** Find the gaps between the loaded lines. Spans that end before the first line are ignored. */
export function findGaps(lines: readonly LogLine[], counts: readonly Count[]): Gap[] {
  const gaps: Gap[] = [];
  const first = lines[0]?.time_ns ?? "9";
  for (const count of counts) {
    const at = lineIndex(lines, count.start);
    const missing = count.lines - (lineIndex(lines, count.end) - at);
    if (count.end <= first || missing <= 0) continue;
    const before = gaps[gaps.length - 1];
    if (before?.at === at) Object.assign(before, { end: count.end, lines: before.lines + missing });
    else gaps.push({ at, start: count.start, end: count.end, lines: missing });
  }
  return gaps;
}

/** Return the index of the first line at or after the time. */
function lineIndex(lines: readonly LogLine[], time: Nanoseconds): number {
  let [low, high] = [0, lines.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lines[middle]!.time_ns < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Merge counts in time order. A newer count replaces an older one of the same span. */
export function mergeCounts(before: readonly Count[], newer: readonly Count[]): Count[] {
  const fresh = newer.filter((one) => !before.some((old) => old.start < one.end && one.start < old.end && old.start !== one.start));
  const starts = new Set(fresh.map((one) => one.start));
  return [...before.filter((old) => !starts.has(old.start)), ...fresh].sort((a, b) => (a.start < b.start ? -1 : 1));
}

export const toNanoseconds = (ms: number): Nanoseconds => `${ms}000000`;

export const nextNanosecond = (time: Nanoseconds): Nanoseconds => String(BigInt(time) + 1n);

/** Format a time as ISO 8601 with nanoseconds, for API parameters. */
export const toIsoNanoseconds = (time: Nanoseconds): string => `${new Date(Number(time.slice(0, -6))).toISOString().slice(0, 19)}.${time.slice(-9)}Z`;
