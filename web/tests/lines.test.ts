import { describe, expect, it } from "vitest";
import type { Line } from "../src/api/client";
import { toCounts, alignLines, isRare, median, shortNames, sortLines, toNullable } from "../src/charts/lines";
import { lastOf, bucketIndex, formatOffset, sumOf } from "../src/charts/readout";

const line = (fields: Partial<Line>): Line => ({ metric: "gpu.utilization", replica: "", node: "", device: "", rank: null, time: [], value: [], ...fields }) as Line;

describe("names", () => {
  it("leave out what all lines have in common", () => {
    expect(shortNames([line({ replica: "worker-0", device: "gpu0" }), line({ replica: "worker-0", device: "gpu1" })])).toEqual(["gpu0", "gpu1"]);
    expect(shortNames([line({ replica: "worker-0" })])).toEqual(["worker-0"]);
    expect(shortNames([line({})])).toEqual(["job"]);
  });
});

it("orders lines by rank, then by name as people count", () => {
  const lines = [line({ replica: "worker-10" }), line({ replica: "worker-2" }), line({ replica: "worker-3", rank: 0 })];
  expect(sortLines(lines).map((one) => one.replica)).toEqual(["worker-3", "worker-2", "worker-10"]);
});

it("puts lines on one grid, without a value where nothing was measured", () => {
  const { times, values } = alignLines([line({ time: [1000, 3000], value: [1, 3] }), line({ time: [2000], value: [0] })], 1000, 4000, 1000);
  const rows = values.map(toNullable);
  expect(times[0]).toBe(0);
  expect(rows.flat().filter((value) => value !== null).sort()).toEqual([0, 1, 3]);
});

describe("a line that was measured more rarely for a while", () => {
  const at = (time: number[]) => alignLines([line({ time, value: time.map((_, place) => place) })], 0, 600, 10).values.map(toNullable)[0]!;
  it("holds its values between its samples", () => {
    const often = Array.from({ length: 30 }, (_, place) => place * 10);
    expect(at([...often, 300, 360, 420, 480, 540]).slice(0, 54)).not.toContain(null);
  });
  it("has a gap where nothing was measured", () => {
    const often = Array.from({ length: 60 }, (_, place) => place * 10).filter((time) => time < 100 || time > 300);
    expect(at(often).flatMap((value, place) => (value === null ? [place] : []))).toEqual(Array.from({ length: 21 }, (_, place) => 10 + place));
  });
  it("has none where samples and buckets do not fit", () => {
    expect(at(Array.from({ length: 41 }, (_, place) => place * 15)).slice(0, 60)).not.toContain(null);
  });
  it("is not held where it counts", () => {
    const counted = alignLines([line({ time: [0, 10, 20, 80, 140], value: [1, 1, 1, 1, 1] })], 0, 200, 10, false);
    expect(sumOf(toNullable(counted.values[0]!))).toBe(5);
  });
});

it("counts rare events from their rates, whatever the distance of samples", () => {
  const killed = line({ unit: "{process}/s", time: [0, 15_000, 30_000, 90_000], value: [0, 2 / 15, 0, 1 / 60] });
  expect(isRare([killed])).toBe(true);
  expect(isRare([line({ unit: "By/s" })])).toBe(false);
  const [counts] = toCounts([killed], 15_000);
  expect([counts!.unit, counts!.value]).toEqual(["{process}", [0, 2, 0, 1]]);
  // Samples each 15 s in buckets of 10 s.
  const time = Array.from({ length: 40 }, (_, place) => Math.floor((place * 15) / 10) * 10_000);
  for (const at of [2, 7, 20, 21, 38]) {
    const [one] = toCounts([line({ unit: "{process}/s", time, value: time.map((_, place) => (place === at ? 2 / 15 : 0)) })], 10_000);
    expect(sumOf(one!.value)).toBe(2);
  }
  expect(sumOf([null, undefined])).toBeNull();
});

it("takes the median of what was measured", () => {
  expect(median([3, 1, Number.NaN, 2])).toBe(2);
  expect(median([Number.NaN])).toBeNull();
  expect(median([])).toBeNull();
});

it("reads the newest value, and the bucket of a moment", () => {
  expect(lastOf([1, 0, null, undefined])).toBe(0);
  expect(lastOf([null])).toBeNull();
  expect([-5, 10, 14.9, 15, 99].map((at) => bucketIndex([0, 5, 10, 15], at))).toEqual([0, 2, 2, 3, 3]);
  expect([0, 300, 90].map(formatOffset)).toEqual(["0", "+5 m", "+1 m 30 s"]);
});
