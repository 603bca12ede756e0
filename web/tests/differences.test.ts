import { describe, expect, it } from "vitest";
import { formatChange } from "../src/job/differences";

describe("the difference of a value from another", () => {
  it.each([
    [0.88, 0.8, "1", "−8.0 points"],
    [0.80001, 0.8, "1", ""],
    [60, 62.5, "Cel", "+2.5 °C"],
    [100, 112, "W", "+12 %"],
    [100, 12, "W", "−88 %"],
    [100, 340, "W", "× 3.4"],
    [1, 2_600, "By", "× 2,600.0"],
    [100, 100.1, "W", ""],
    [0, 3, "W", ""],
    [null, 3, "W", ""],
    [3, null, "1", ""],
  ] as const)("%s to %s in %s is %s", (before, after, unit, text) => {
    expect(formatChange(before, after, unit)).toBe(text);
  });
});
