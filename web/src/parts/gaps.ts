// Lines that a followed log left out: they came faster than updates hold, or while nobody looked.
import type { LogLine } from "../api/client";

/** Epoch nanoseconds as the API has them: texts of one length, which are ordered as they are. */
type Nanoseconds = string;

/** How many lines there are of [start, end), in epoch nanoseconds; Infinity while that is not known. */
export interface Count {
  start: Nanoseconds;
  end: Nanoseconds;
  lines: number;
}

/** Lines of a span that are missing; `at` is the place of the line before which they are missing. */
export interface Gap extends Count {
  at: number;
}

/** Where lines are missing among those that are there. Spans that end before the first of these are not looked at. */
export function gapsOf(lines: readonly LogLine[], counts: readonly Count[]): Gap[] {
  const gaps: Gap[] = [];
  const first = lines[0]?.time_ns ?? "9";
  for (const count of counts) {
    const at = placeOf(lines, count.start);
    const missing = count.lines - (placeOf(lines, count.end) - at);
    if (count.end <= first || missing <= 0) continue;
    const before = gaps[gaps.length - 1];
    if (before?.at === at) Object.assign(before, { end: count.end, lines: before.lines + missing });
    else gaps.push({ at, start: count.start, end: count.end, lines: missing });
  }
  return gaps;
}

/** The place of the first line at that time or later. */
function placeOf(lines: readonly LogLine[], time: Nanoseconds): number {
  let [low, high] = [0, lines.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lines[middle]!.time_ns < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Counts in their order; a newer one takes the place of what was counted of the same span. */
export function counted(before: readonly Count[], newer: readonly Count[]): Count[] {
  const fresh = newer.filter((one) => !before.some((old) => old.start < one.end && one.start < old.end && old.start !== one.start));
  const starts = new Set(fresh.map((one) => one.start));
  return [...before.filter((old) => !starts.has(old.start)), ...fresh].sort((a, b) => (a.start < b.start ? -1 : 1));
}

export const ofMilliseconds = (ms: number): Nanoseconds => `${ms}000000`;

export const after = (time: Nanoseconds): Nanoseconds => String(BigInt(time) + 1n);

/** A moment as the API takes it where a millisecond is not exact enough: ISO 8601. */
export const exactly = (time: Nanoseconds): string => `${new Date(Number(time.slice(0, -6))).toISOString().slice(0, 19)}.${time.slice(-9)}Z`;
