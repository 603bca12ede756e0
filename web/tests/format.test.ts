import { describe, expect, it } from "vitest";
import { MISSING, formatMoney, formatDuration, formatTime, compareNatural, splitTime, formatQuantity, setUtc, zoneName } from "../src/format";

describe("quantity", () => {
  it.each([
    [0.375, "1", "37.5 %"],
    [0, "By", "0 B"],
    [1023.7 * 1024, "By", "1.00 MiB"],
    [-3 * 2 ** 30, "By/s", "-3.00 GiB/s"],
    [39_600, "W", "39.6 kW"],
    [12_345, "{sample}", "12.3 k samples"],
    [1, "{process}", "1 process"],
    [3, "{process}", "3 processes"],
    [0, "{error}", "0 errors"],
    [40, "Cel", "40.0 °C"],
    [1005.4, "{core}", "1,005 cores"],
    [2048, "{process}", "2,048 processes"],
  ])("%d in %s is %s", (value, unit, text) => expect(formatQuantity(value, unit)).toBe(text));

  it.each([null, undefined, Number.NaN, Number.POSITIVE_INFINITY])("%s is missing, not 0", (value) => {
    expect(formatQuantity(value, "1")).toBe(MISSING);
  });

  it("drops zeros at the end on an axis", () => {
    expect(formatQuantity(2 * 2 ** 30, "By", true)).toBe("2 GiB");
    expect(formatQuantity(0.5, "1", true)).toBe("50 %");
    expect(formatQuantity(1000, "{core}", true)).toBe("1,000 cores");
  });
});

describe("duration", () => {
  it("never shows 60 of a smaller unit", () => {
    for (let ms = 0; ms < 3 * 86_400_000; ms += 12_345) expect(formatDuration(ms)).not.toMatch(/\b60 [sm]\b/);
  });

  it("shows a dash without a duration", () => expect(formatDuration(null)).toBe(MISSING));

  it("does not go below 0", () => expect(formatDuration(-5)).toBe("0.0 s"));
});

describe("moments", () => {
  const summer = Date.UTC(2026, 6, 1, 22, 30, 5);

  it("are shown in the zone that is chosen", () => {
    setUtc(true);
    expect(splitTime(summer)).toEqual({ day: "2026-07-01", time: "22:30:05" });
    expect(zoneName()).toBe("UTC");
    setUtc(false);
    expect(splitTime(summer)).toEqual({ day: "2026-07-02", time: "00:30:05" });
  });

  it("have no day where they are of today", () => {
    const now = Date.now();
    expect(formatTime(now, true)).toBe(splitTime(now).time);
    expect(formatTime(now)).toBe(`${splitTime(now).day} ${splitTime(now).time}`);
  });
});

it("sorts names as people count", () => {
  expect(["worker-10", "worker-2", "Worker-1"].sort(compareNatural)).toEqual(["Worker-1", "worker-2", "worker-10"]);
});

it("writes money with two decimals", () => expect(formatMoney(1234.5, "CNY")).toBe("1,234.50 CNY"));
