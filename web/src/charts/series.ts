// Styles of series: few have a colour each, many form a cloud with their median and the chosen ones in front.
import type { Line } from "../api/client";
import { MISSING, formatQuantity } from "../format";
import type { Range } from "./axis";
import { themeColor, palette } from "./colors";
import { type Row, alignLines, medians, labelOf, shortNames, toNullable } from "./lines";
import { lastOf } from "./readout";

export const FEW = 8;

/** Named series, listed in the legend. */
export interface Series {
  label: string;
  full: string;
  stroke: string;
  width: number;
  dash?: number[];
  /** Statement of a finding about this series. */
  flag?: string;
}

/** Replica of a finding and its statement. The device is empty if the finding names none. */
export interface Flag {
  member: string;
  device: string;
  text: string;
}

/** Dash patterns that distinguish flagged series, which share the warning colour. */
const DASHES = [[], [8, 4], [2, 3]];
/** Palette index of the colour that resembles the warning colour. */
const LIKE_WARNING = 1;
/** Palette index of the chosen series in a cloud. */
const CHOSEN = 2;

/** Values on one grid: seconds, a row for each named series, and the rows of all series. */
export interface Values {
  seconds: number[];
  named: (number | null)[][];
  all: readonly Row[];
}

const isChosen = (line: Line, chosen: string | null): boolean => chosen !== null && (line.replica || line.node) === chosen;

/** Return the index of the flag of a series; -1 without one. */
const flagIndex = (line: Line, flags: readonly Flag[]): number =>
  flags.findIndex(({ member, device }) => member === (line.replica || line.node) && (!device || !line.device || device === line.device));

/** Return true for series that are named in a cloud: the chosen and the flagged ones. */
const isNamed = (line: Line, chosen: string | null, flags: readonly Flag[]): boolean => isChosen(line, chosen) || flagIndex(line, flags) >= 0;

/** Return the named series, in the order of `valuesOf`. */
export function seriesOf(lines: readonly Line[], chosen: string | null, dark: boolean, flags: readonly Flag[]): Series[] {
  const called = shortNames(lines);
  const places = lines.map((line) => flagIndex(line, flags));
  const colors = palette(dark).filter((_, at) => at !== LIKE_WARNING || places.every((one) => one < 0));
  const many = lines.length > FEW;
  const own = lines.map((line, at): Series => {
    const [base, flag] = [{ label: called[at]!, full: labelOf(line) }, places[at]!];
    if (flag >= 0) return { ...base, stroke: themeColor("--warning"), width: 2.5, dash: DASHES[flag % DASHES.length]!, flag: flags[flag]!.text };
    if (many) return { ...base, stroke: palette(dark)[CHOSEN]!, width: 2 };
    return { ...base, stroke: colors[at % colors.length]!, width: isChosen(line, chosen) ? 2.5 : chosen === null ? 1.5 : 1 };
  });
  if (!many) return own;
  return [{ label: "median", full: "median of all lines", stroke: colors[0]!, width: 2 }, ...own.filter((_, at) => isNamed(lines[at]!, chosen, flags))];
}

/** Return the values of the series over a range. */
export function valuesOf(lines: readonly Line[], range: Range, step: number, chosen: string | null, flags: readonly Flag[], counts: boolean): Values {
  const { times, values } = alignLines(lines, range.start, range.end, step, !counts);
  const seconds = times.map((time) => time / 1000);
  if (lines.length <= FEW) return { seconds, named: values.map(toNullable), all: values };
  const named = [medians(values), ...values.filter((_, at) => isNamed(lines[at]!, chosen, flags))];
  return { seconds, named: named.map(toNullable), all: values };
}

/** Share of a limit that values must reach for the limit to be on their axis. */
const NEAR_LIMIT = 0.5;

/** Return the limits that belong on the axis of these values. */
export const limitsInReach = (limits: readonly number[], values: Values): number[] => {
  const most = values.all.reduce((found, row) => row.reduce((high, value) => (value > high ? value : high), found), 0);
  return limits.filter((limit) => most >= NEAR_LIMIT * limit);
};

/** Return the lowest and the highest value of the axis. */
export function axisRange(values: Values, unit: string, bounds: readonly number[] = []): readonly [number, number] {
  let [low, high] = [0, Math.max(0, ...bounds)];
  for (const row of values.all) {
    for (let at = 0; at < row.length; at += 1) {
      const value = row[at]!;
      if (value > high) high = value;
      else if (value < low) low = value;
    }
  }
  if (unit === "1" && high <= 1 && high > 0.2) return [low, 1.02];
  return [low * 1.05, high ? high * 1.08 : 1];
}

/** Describe a chart in words, for screen readers. */
export function describeChart(title: string, series: readonly Series[], values: Values, unit: string): string {
  const parts = series.map((one, at) => `${one.label} ${formatQuantity(lastOf(values.named[at] ?? []), unit)}`);
  return `${title}: ${parts.join(", ") || MISSING}`;
}
