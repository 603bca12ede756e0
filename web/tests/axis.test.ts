import { describe, expect, it, vi } from "vitest";
import { Cursor, roundTimes } from "../src/charts/axis";
import { step, stepText } from "../src/charts/steps";

const HOUR = 3_600_000;
const LENGTHS = [1, 999, 60_000, HOUR, 7 * HOUR, 24 * HOUR, 90 * 24 * HOUR, 4000 * 24 * HOUR];
const STARTS = [0, 1_700_000_000_123, Date.UTC(2026, 2, 29), Date.UTC(2026, 9, 25)];

describe("roundTimes", () => {
  it("lie within the range, apart by one step, and are not too many", () => {
    for (const start of STARTS) {
      for (const length of LENGTHS) {
        for (const most of [1, 2, 6, 10]) {
          const times = roundTimes({ start, end: start + length }, most, true);
          const gaps = new Set(times.slice(1).map((time, at) => time - times[at]!));
          expect(times.length).toBeLessThanOrEqual(most + 1);
          expect(gaps.size).toBeLessThanOrEqual(1);
          expect(times.every((time) => time >= start && time <= start + length)).toBe(true);
        }
      }
    }
  });

  it("are round in the zone that is shown", () => {
    const start = Date.UTC(2026, 0, 1, 0, 10);
    const days = roundTimes({ start, end: start + 72 * HOUR }, 3, false).map((time) => new Date(time));
    expect(days.length).toBeGreaterThan(1);
    expect(days.every((day) => day.getHours() === 0 && day.getMinutes() === 0)).toBe(true);
  });
});

describe("step", () => {
  it("is the smallest that needs at most so many buckets", () => {
    for (const start of STARTS) {
      for (const length of LENGTHS.slice(0, -1)) {
        const found = step(start, start + length, 500);
        expect(Math.ceil((start + length) / found) - Math.floor(start / found)).toBeLessThanOrEqual(500);
      }
    }
  });

  it("is written in seconds", () => expect(stepText(step(0, 24 * HOUR, 288))).toBe("300s"));
});

it("tells each listener of a cursor once of each move", () => {
  const cursor = new Cursor();
  const heard = vi.fn();
  const stop = cursor.listen(heard);
  cursor.move(5, null);
  cursor.move(5, null);
  stop();
  cursor.move(6, null);
  expect(heard.mock.calls).toEqual([[5, null]]);
});
