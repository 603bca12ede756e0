// Legend values: those under the pointer, else the newest. Only changed texts are written to the DOM.
import { formatDuration, splitTime, formatQuantity } from "../format";

type Values = ArrayLike<number | null | undefined>;

/** Elements that show the values of a chart, and the time. */
export interface Readout {
  values: readonly HTMLElement[];
  when: HTMLElement | null;
}

/** Write the time, the values and the series under the pointer. Without a pointer `alone` gives the value of a row. */
export function writeReadout(to: Readout, times: ArrayLike<number>, rows: readonly Values[], seconds: number | null, unit: string, relative: boolean, line: string, alone: (row: Values) => number | null = lastOf): void {
  const at = seconds === null ? null : bucketIndex(times, seconds);
  to.values.forEach((node, index) => text(node, formatQuantity(at === null ? alone(rows[index] ?? []) : rows[index]?.[at], unit)));
  if (!to.when) return;
  const time = at === null ? undefined : times[at];
  text(to.when, time === undefined ? "" : `${line ? `${line}  ` : ""}${relative ? formatOffset(time) : splitTime(time * 1000).time}`);
}

/** Format an offset since a start: `+5 m`. */
export const formatOffset = (seconds: number): string => (seconds ? `+${formatDuration(seconds * 1000).replace(/ 00? [ms]$|\.0/, "")}` : "0");

/** Return the width of values of this unit in characters, so that the names beside them do not move. */
export const valueWidth = (unit: string): number => (unit === "1" ? 6 : formatQuantity(unit.startsWith("By") ? 88.8 * 2 ** 20 : 88.8, unit).length);

/** Return the index of the bucket that contains the time. */
export function bucketIndex(times: ArrayLike<number>, wanted: number): number {
  const step = times.length > 1 ? times[1]! - times[0]! : 1;
  return Math.min(Math.max(Math.floor((wanted - (times[0] ?? 0)) / step), 0), times.length - 1);
}

/** Return the newest value of a series. */
export function lastOf(row: Values): number | null {
  for (let at = row.length - 1; at >= 0; at -= 1) {
    const value = row[at];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

/** Return the sum of a series; null if nothing was measured. */
export function sumOf(row: Values): number | null {
  let found: number | null = null;
  for (let at = 0; at < row.length; at += 1) if (row[at] !== null && row[at] !== undefined) found = (found ?? 0) + row[at]!;
  return found;
}

function text(node: HTMLElement, wanted: string): void {
  const own = node.firstChild as Text | null;
  if (!own) node.append(wanted);
  else if (own.data !== wanted) own.data = wanted;
}
