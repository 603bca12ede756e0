// Lines of an answer: what they are called, how they are put on one grid, and what the middle of many is.
import type { Line, Point } from "../api/client";
import { natural } from "../format";

export const memberOf = (line: Line): string => [line.replica || line.node, line.device].filter(Boolean).join(" · ");
const keyOf = (line: Line): string => [line.metric, line.replica, line.node, line.device].join("\u0000");

/** The short name of each line: what all have in common is left out. */
export function names(lines: readonly Line[]): string[] {
  const several = (field: "replica" | "node" | "device") => new Set(lines.map((line) => line[field])).size > 1;
  const fields = (["replica", "node", "device"] as const).filter(several);
  const shown = fields.includes("replica") ? fields.filter((field) => field !== "node") : fields;
  return lines.map((line) => shown.map((field) => line[field]).filter(Boolean).join(" · ") || memberOf(line) || "job");
}

/** By rank where it is known, then by name. */
export function ordered(lines: readonly Line[]): Line[] {
  return [...lines].sort(
    (a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9) || natural(a.replica, b.replica) || natural(a.node, b.node) || natural(a.device, b.device),
  );
}

export interface Grid {
  step: number;
  times: number[];
  values: (number | null)[][];
}

/** How far apart the values of lines are: where samples are rarer than buckets, several of these. */
function spacing(lines: readonly Line[], step: number): number {
  const gaps: number[] = [];
  for (const line of lines.slice(0, 8)) {
    const points = line.points.slice(-200);
    for (let at = 1; at < points.length; at += 1) gaps.push(points[at]![0] - points[at - 1]![0]);
  }
  return Math.max(1, Math.round((median(gaps) ?? step) / step)) * step;
}

/** The lines on the buckets of a range, or as far apart as they were measured; null where nothing was. */
export function grid(lines: readonly Line[], start: number, end: number, asked: number): Grid {
  const step = spacing(lines, asked);
  const first = Math.floor(start / step) * step;
  const count = Math.max(1, Math.ceil((end - first) / step));
  const times = Array.from({ length: count }, (_, at) => first + at * step);
  const values = lines.map((line) => {
    const row = new Array<number | null>(count).fill(null);
    for (const [time, value] of line.points) {
      const at = Math.floor((time - first) / step);
      if (at >= 0 && at < count) row[at] = value;
    }
    return row;
  });
  return { step, times, values };
}

/** The middle of what was measured. */
export function median(values: readonly (number | null)[]): number | null {
  const known = new Float64Array(values.length);
  let count = 0;
  for (const value of values) if (value !== null) known[count++] = value;
  return middleOf(known.subarray(0, count));
}

/** The median of each column. */
export function medians(rows: readonly (readonly (number | null)[])[]): (number | null)[] {
  const known = new Float64Array(rows.length);
  return (rows[0] ?? []).map((_, at) => {
    let count = 0;
    for (const row of rows) {
      const value = row[at];
      if (value !== null && value !== undefined) known[count++] = value;
    }
    return middleOf(known.subarray(0, count));
  });
}

/** The middle of numbers, which it puts in another order. */
function middleOf(known: Float64Array): number | null {
  if (!known.length) return null;
  const middle = known.length >> 1;
  const upper = select(known, middle);
  if (known.length % 2) return upper;
  let lower = known[0]!;
  for (let at = 1; at < middle; at += 1) if (known[at]! > lower) lower = known[at]!;
  return (lower + upper) / 2;
}

/** The number that would be at that place if they were sorted (Hoare's selection); no greater ones are before it then. */
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

/** Lines joined by replica: the mean of its devices in each bucket. */
export function byReplica(lines: readonly Line[]): Line[] {
  const found = new Map<string, Line[]>();
  for (const line of lines) {
    const key = line.replica || line.node;
    found.set(key, [...(found.get(key) ?? []), line]);
  }
  return [...found.values()].map((members) => {
    const first = members[0]!;
    if (members.length === 1) return first;
    const sums = new Map<number, [number, number]>();
    for (const member of members) {
      for (const [time, value] of member.points) {
        const [sum, count] = sums.get(time) ?? [0, 0];
        sums.set(time, [sum + value, count + 1]);
      }
    }
    const points = [...sums].sort((a, b) => a[0] - b[0]).map(([time, [sum, count]]): Point => [time, sum / count]);
    return { ...first, device: "", rank: Math.min(...members.map((one) => one.rank ?? 1e9)), points };
  });
}

/** The place of the first point at or after a time. */
function place(points: readonly Point[], time: number): number {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle]![0] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The lines with an update's points in place of their own from `start` on. */
export function merged(lines: readonly Line[], update: readonly Line[], start: number, oldest: number): Line[] {
  const news = new Map(update.map((line) => [keyOf(line), line]));
  const grown = lines.map((line) => {
    const key = keyOf(line);
    const fresh = news.get(key);
    news.delete(key);
    if (!fresh) return line;
    return { ...line, rank: fresh.rank ?? line.rank, points: [...line.points.slice(place(line.points, oldest), place(line.points, start)), ...fresh.points] };
  });
  return news.size ? ordered([...grown, ...news.values()]) : grown;
}
