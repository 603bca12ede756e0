import { describe, expect, it } from "vitest";
import { farthest } from "../src/jobs/pages";

describe("the page of the list that is forgotten", () => {
  it("is far from the rows that are seen", () => {
    expect(farthest([0, 1, 2, 9], [150, 190])).toBe(9);
    expect(farthest([0, 1, 8, 9], [850, 890])).toBe(1);
  });
  it("is never the first one, however far the list is", () => {
    const pages = Array.from({ length: 31 }, (_, page) => page);
    for (let row = 0; row < 10_000; row += 70) expect(farthest(pages, [row, row + 40])).toBeGreaterThan(0);
  });
});
