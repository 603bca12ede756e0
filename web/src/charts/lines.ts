// Series of a response: names, alignment to a grid, medians.
import type { Line } from "../api/client";
import { compareNatural } from "../format";

export const labelOf = (line: Line): string => [line.replica || line.node, line.device].filter(Boolean).join(" · ");
const keyOf = (line: Line): string => [line.metric, line.replica, line.node, line.device].join("\u0000");

/** Return the short name of each series, without what all have in common. */
export function shortNames(lines: readonly Line[]): string[] {
  const several = (field: "replica" | "node" | "device") => new Set(lines.map((line) => line[field])).size > 1;
  const fields = (["replica", "node", "device"] as const).filter(several);
  const shown = fields.includes("replica") ? fields.filter((field) => field !== "node") : fields;
  return lines.map((line) => shown.map((field) => line[field]).filter(Boolean).join(" · ") || labelOf(line) || "job");
}

/** Sort by rank, then by name. */
export function sortLines(lines: readonly Line[]): Line[] {
  return [...lines].sort(
    (a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9) || compareNatural(a.replica, b.replica) || compareNatural(a.node, b.node) || compareNatural(a.device, b.device),
  );
}

/** Values in buckets, NaN where missing. */
export type Row = Float64Array;

export interface Grid {
  step: number;
  times: number[];
  values: Row[];
}

/** Return the distance of values: a multiple of `step` if samples are rarer than buckets. */
function findSpacing(lines: readonly Line[], step: number): number {
  const gaps: number[] = [];
  for (const { time } of lines.slice(0, 8)) {
    for (let at = Math.max(1, time.length - 200); at < time.length; at += 1) gaps.push(time[at]! - time[at - 1]!);
  }
  return Math.max(1, Math.round((median(gaps) ?? step) / step)) * step;
}

/** Return true if the gap after a sample is its sampling interval: a neighbouring gap is as long, within one bucket. */
function isSamplingInterval(time: readonly number[], at: number, step: number): boolean {
  const gap = (from: number) => (time[from + 1] ?? Number.NaN) - (time[from] ?? Number.NaN);
  return gap(at) <= gap(at - 1) + step || gap(at) <= gap(at + 1) + step;
}

/**
 * Align series to the buckets of a range. Between rarer samples a value holds until the next one. Counts do not hold:
 * several counts in one bucket are added.
 */
export function alignLines(lines: readonly Line[], start: number, end: number, asked: number, holds = true): Grid {
  const step = findSpacing(lines, asked);
  const first = Math.floor(start / step) * step;
  const count = Math.max(1, Math.ceil((end - first) / step));
  const times = Array.from({ length: count }, (_, at) => first + at * step);
  const all = new Float64Array(count * lines.length).fill(Number.NaN);
  const values = lines.map(({ time, value }, place) => {
    const row = all.subarray(place * count, (place + 1) * count);
    for (let at = 0; at < time.length; at += 1) {
      const bucket = Math.floor((time[at]! - first) / step);
      const before = holds ? Number.NaN : (row[bucket] ?? Number.NaN);
      if (bucket >= 0 && bucket < count) row[bucket] = value[at]! + (Number.isNaN(before) ? 0 : before);
      if (!holds || !isSamplingInterval(time, at, step)) continue;
      const until = Math.min(Math.floor((time[at + 1]! - first) / step), count);
      if (until > bucket + 1) row.fill(value[at]!, Math.max(bucket + 1, 0), until);
    }
    return row;
  });
  return { step, times, values };
}

/** Units of events so rare that their number says more than their rate. */
const RARE = /^\{(process|error)\}\/s$/;

/** Return true for the rate of rare events, such as killed processes. */
export const isRare = (lines: readonly Line[]): boolean => RARE.test(lines[0]?.unit ?? "");

/** Number of gaps on either side of a sample that determine its interval. */
const AROUND = 3;

/** Return the interval before a sample. Buckets shift samples, so similar gaps around it are averaged. */
function intervalBefore(time: readonly number[], at: number, step: number): number {
  const gap = (place: number) => time[place]! - time[place - 1]!;
  const own = at ? gap(at) : step;
  let [sum, count] = [0, 0];
  for (let place = Math.max(at - AROUND, 1); place <= Math.min(at + AROUND, time.length - 1); place += 1) {
    if (gap(place) > 3 * own || own > 3 * gap(place)) continue;
    sum += gap(place);
    count += 1;
  }
  return count ? sum / count : own;
}

/** Convert rates to the number of events since the previous sample. */
export function toCounts(lines: readonly Line[], step: number): Line[] {
  return lines.map((line) => {
    const value = line.value.map((rate, at) => (rate ? Math.round((rate * intervalBefore(line.time, at, step)) / 1000) : rate));
    return { ...line, unit: line.unit.replace("/s", ""), value };
  });
}

/** Return a value of a row; null if missing or out of range. */
export const valueAt = (row: Row | undefined, at: number): number | null => {
  const value = row?.[at];
  return value === undefined || Number.isNaN(value) ? null : value;
};

/** Convert NaN to null, as uPlot expects. */
export const toNullable = (row: Row): (number | null)[] => Array.from(row, (value) => (Number.isNaN(value) ? null : value));

/** Return the median of the measured values; null without any. */
export function median(values: ArrayLike<number>): number | null {
  const middle = medianInPlace(copyMeasured(values, new Float64Array(values.length)));
  return Number.isNaN(middle) ? null : middle;
}

/** Return the median of each column. */
export function medians(rows: readonly Row[]): Row {
  const column = new Float64Array(rows.length);
  const found = new Float64Array(rows[0]?.length ?? 0);
  for (let at = 0; at < found.length; at += 1) {
    let count = 0;
    for (let place = 0; place < rows.length; place += 1) {
      const value = rows[place]![at]!;
      if (value === value) column[count++] = value;
    }
    found[at] = medianInPlace(column.subarray(0, count));
  }
  return found;
}

/** Return the mean of the measured values; NaN without any. */
export function meanOf(row: ArrayLike<number>, first = 0, end = row.length): number {
  let [sum, count] = [0, 0];
  for (let at = first; at < end; at += 1) {
    const value = row[at]!;
    if (value !== value) continue;
    sum += value;
    count += 1;
  }
  return sum / count;
}

/** Copy the values that are not NaN into `to`. */
function copyMeasured(values: ArrayLike<number>, to: Float64Array): Float64Array {
  let count = 0;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at]!;
    if (value === value) to[count++] = value;
  }
  return to.subarray(0, count);
}

/** Return the median, reordering the numbers in place; NaN without any. */
function medianInPlace(known: Float64Array): number {
  if (!known.length) return Number.NaN;
  const middle = known.length >> 1;
  const upper = select(known, middle);
  if (known.length % 2) return upper;
  let lower = known[0]!;
  for (let at = 1; at < middle; at += 1) if (known[at]! > lower) lower = known[at]!;
  return (lower + upper) / 2;
}

/** Return the n-th smallest number (Hoare's quickselect), reordering in place: smaller ones are before it then. */
function select(known: Float64Array, place: number): number {
  let [low, high] = [0, known.length - 1];
  while (low < high) {
    const pivot = known[(low + high) >> 1]!;
    let [left, right] = [low, high];
    while (left <= right) {
      while (known[left]! < pivot) left += 1;
      while (known[right]! > pivot) right -= 1;
      if (left > right) break;
      const swapped = known[left]!;
      known[left] = known[right]!;
      known[right] = swapped;
      left += 1;
      right -= 1;
    }
    if (place <= right) high = right;
    else if (place >= left) low = left;
    else break;
  }
  return known[place]!;
}

/** Merge the series of each replica: the mean of its devices in each bucket. */
export function mergeDevices(lines: readonly Line[]): Line[] {
  const found = new Map<string, Line[]>();
  for (const line of lines) {
    const key = line.replica || line.node;
    found.set(key, [...(found.get(key) ?? []), line]);
  }
  return [...found.values()].map((members) => {
    const first = members[0]!;
    if (members.length === 1) return first;
    const sums = new Map<number, [number, number]>();
    for (const { time, value } of members) {
      time.forEach((moment, at) => {
        const [sum, count] = sums.get(moment) ?? [0, 0];
        sums.set(moment, [sum + value[at]!, count + 1]);
      });
    }
    const time = [...sums.keys()].sort((a, b) => a - b);
    const value = time.map((moment) => {
      const [sum, count] = sums.get(moment)!;
      return sum / count;
    });
    return { ...first, device: "", rank: Math.min(...members.map((one) => one.rank ?? 1e9)), time, value };
  });
}

/** Return the first index whose time is at or after `wanted`. */
export function indexAtTime(time: readonly number[], wanted: number): number {
  let [low, high] = [0, time.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time[middle]! < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Replace the points from `start` on by the points of an update. */
export function mergeUpdate(lines: readonly Line[], update: readonly Line[], start: number, oldest: number): Line[] {
  const news = new Map(update.map((line) => [keyOf(line), line]));
  const grown = lines.map((line) => {
    const key = keyOf(line);
    const fresh = news.get(key);
    news.delete(key);
    if (!fresh) return line;
    const [from, to] = [indexAtTime(line.time, oldest), indexAtTime(line.time, start)];
    const [time, value] = [line.time.slice(from, to).concat(fresh.time), line.value.slice(from, to).concat(fresh.value)];
    return { ...line, rank: fresh.rank ?? line.rank, time, value };
  });
  return news.size ? sortLines([...grown, ...news.values()]) : grown;
}
