import { expect, test } from "vitest";
import { loadOf } from "../src/jobs/sparks";

const POINTS: [number, number][] = [[0, 0.5]];

test("the load of devices is their utilization, and the activity of MIG instances", () => {
  expect(loadOf({ "gpu.utilization": POINTS, "gpu.sm.active": POINTS })).toBe("gpu.utilization");
  expect(loadOf({ "npu.utilization": POINTS, "cpu.usage": POINTS })).toBe("npu.utilization");
  expect(loadOf({ "gpu.sm.active": POINTS, "cpu.usage": POINTS })).toBe("gpu.sm.active");
  expect(loadOf({ "gpu.utilization": [], "gpu.sm.active": POINTS })).toBe("gpu.sm.active");
  expect(loadOf({})).toBe("gpu.utilization");
});
