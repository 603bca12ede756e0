import { describe, expect, it } from "vitest";
import type { Line } from "../src/api/client";
import { grid, median, names, ordered, withNulls } from "../src/charts/lines";
import { last, nearest, since } from "../src/charts/readout";

const line = (fields: Partial<Line>): Line => ({ metric: "gpu.utilization", replica: "", node: "", device: "", rank: null, time: [], value: [], ...fields }) as Line;

describe("names", () => {
  it("leave out what all lines have in common", () => {
    expect(names([line({ replica: "worker-0", device: "gpu0" }), line({ replica: "worker-0", device: "gpu1" })])).toEqual(["gpu0", "gpu1"]);
    expect(names([line({ replica: "worker-0" })])).toEqual(["worker-0"]);
    expect(names([line({})])).toEqual(["job"]);
  });
});

it("orders lines by rank, then by name as people count", () => {
  const lines = [line({ replica: "worker-10" }), line({ replica: "worker-2" }), line({ replica: "worker-3", rank: 0 })];
  expect(ordered(lines).map((one) => one.replica)).toEqual(["worker-3", "worker-2", "worker-10"]);
});

it("puts lines on one grid, without a value where nothing was measured", () => {
  const { times, values } = grid([line({ time: [1000, 3000], value: [1, 3] }), line({ time: [2000], value: [0] })], 1000, 4000, 1000);
  const rows = values.map(withNulls);
  expect(times[0]).toBe(0);
  expect(rows.flat().filter((value) => value !== null).sort()).toEqual([0, 1, 3]);
});

it("takes the median of what was measured", () => {
  expect(median([3, 1, Number.NaN, 2])).toBe(2);
  expect(median([Number.NaN])).toBeNull();
  expect(median([])).toBeNull();
});

it("reads the newest value, and the bucket of a moment", () => {
  expect(last([1, 0, null, undefined])).toBe(0);
  expect(last([null])).toBeNull();
  expect([-5, 10, 14.9, 15, 99].map((at) => nearest([0, 5, 10, 15], at))).toEqual([0, 2, 2, 3, 3]);
  expect([0, 300, 90].map(since)).toEqual(["0", "+5 m", "+1 m 30 s"]);
});
