// What of many lines is drawn how: few lines each in a colour, many as a cloud with their median and the chosen one in front.
import type { Line } from "../api/client";
import { MISSING, quantity } from "../format";
import type { Range } from "./axis";
import { palette } from "./colors";
import { type Row, grid, medians, memberOf, names, withNulls } from "./lines";
import { last } from "./readout";

export const FEW = 8;

/** A line that is drawn by itself and named below the chart. */
export interface Series {
  label: string;
  full: string;
  stroke: string;
  width: number;
}

/** Values on one grid: seconds, a row for each named line as uPlot takes it, and the rows of all lines. */
export interface Values {
  seconds: number[];
  named: (number | null)[][];
  all: readonly Row[];
}

const isChosen = (line: Line, chosen: string | null): boolean => chosen !== null && (line.replica || line.node) === chosen;

/** The lines that are named, in the order of `valuesOf`. */
export function seriesOf(lines: readonly Line[], chosen: string | null, dark: boolean): Series[] {
  const colors = palette(dark);
  const called = names(lines);
  const mine = (line: Line) => isChosen(line, chosen);
  if (lines.length <= FEW) {
    return lines.map((line, at) => ({ label: called[at]!, full: memberOf(line), stroke: colors[at % colors.length]!, width: mine(line) ? 2.5 : chosen === null ? 1.5 : 1 }));
  }
  const series: Series[] = [{ label: "median", full: "median of all lines", stroke: colors[0]!, width: 2 }];
  lines.forEach((line, at) => {
    if (mine(line)) series.push({ label: called[at]!, full: memberOf(line), stroke: colors[1]!, width: 2 });
  });
  return series;
}

/** The values of the lines over a range. */
export function valuesOf(lines: readonly Line[], range: Range, step: number, chosen: string | null): Values {
  const { times, values } = grid(lines, range.start, range.end, step);
  const seconds = times.map((time) => time / 1000);
  if (lines.length <= FEW) return { seconds, named: values.map(withNulls), all: values };
  const named = [medians(values), ...values.filter((_, at) => isChosen(lines[at]!, chosen))];
  return { seconds, named: named.map(withNulls), all: values };
}

/** The lowest and the highest value of an axis. */
export function limitsOf(values: Values, unit: string): readonly [number, number] {
  let [low, high] = [0, 0];
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

/** A chart in words. */
export function spoken(title: string, series: readonly Series[], values: Values, unit: string): string {
  const parts = series.map((one, at) => `${one.label} ${quantity(last(values.named[at] ?? []), unit)}`);
  return `${title}: ${parts.join(", ") || MISSING}`;
}
