// A chart of one metric on the page's time axis: few lines each in a colour, many as their median and a cloud.
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Line } from "../api/client";
import { MISSING, duration, parts, quantity } from "../format";
import { useNear, useWidth } from "../parts/hooks";
import type { Cursor, Mark, Range } from "./axis";
import { fontFamily, ink, palette } from "./colors";
import { grid, medians, memberOf, names } from "./lines";

export const FEW = 8;
const HEIGHT = 150;
const LEFT = 62;
/** About how wide a letter of an axis is. */
const DIGIT = 6;
const SINCE = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];
const BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power);

export interface ChartGiven {
  metric: string;
  title: string;
  lines: readonly Line[];
  range: Range;
  step: number;
  cursor: Cursor;
  marks: readonly Mark[];
  chosen: string | null;
  dark: boolean;
  utc: boolean;
  brush: (range: Range) => void;
  /** Times are milliseconds since a beginning, not moments. */
  relative?: boolean;
}

export function Chart(given: ChartGiven) {
  const { cursor, dark, utc } = given;
  const { element, width } = useWidth<HTMLDivElement>();
  const near = useNear(element);
  // What is out of sight stays as it was drawn last.
  const seen = useRef(given);
  if (near) seen.current = given;
  const { lines, range, step, chosen } = near ? given : seen.current;
  const plot = useRef<uPlot | null>(null);
  const values = useRef<HTMLElement[]>([]);
  const when = useRef<HTMLElement>(null);
  const latest = useRef(given);
  latest.current = given;
  const unit = lines[0]?.unit ?? "";
  const wanted = near || plot.current !== null;
  const series = useMemo(() => seriesOf(lines, chosen, dark), [lines, chosen, dark]);
  const data = useMemo(() => (wanted ? dataOf(lines, range, step, chosen) : NOTHING), [wanted, lines, range.start, range.end, step, chosen]);
  const drawn: Drawn = { data, series, cloud: lines.length > FEW ? lines.length : 0 };
  const shape = series.map((one) => `${one.label}${one.stroke}`).join("|");
  const limits = useRef<readonly [number, number]>([0, 1]);
  limits.current = useMemo(() => span(data, unit), [data, unit]);

  useLayoutEffect(() => {
    if (!element.current || !width || !wanted) return;
    const made = new uPlot(options(latest, limits, width, drawn.series, unit, values, when), drawn.data, element.current);
    plot.current = made;
    const off = cursor.listen((time, source) => {
      if (source !== made) made.setCursor({ left: time === null ? -10 : made.valToPos(time / 1000, "x"), top: -10 }, false);
      showValues(made, time, values.current, when.current, unit, given.relative);
    });
    showValues(made, null, values.current, when.current, unit, given.relative);
    return () => {
      off();
      made.destroy();
      plot.current = null;
    };
  }, [width > 0, wanted, shape, dark, utc, unit]);
  useLayoutEffect(() => {
    if (plot.current && width && plot.current.width !== width) plot.current.setSize({ width, height: HEIGHT });
  }, [width]);
  useLayoutEffect(() => {
    const made = plot.current;
    if (!made) return;
    made.setData(drawn.data, false);
    made.batch(() => {
      made.setScale("x", { min: range.start / 1000, max: range.end / 1000 });
      made.setScale("y", { min: limits.current[0], max: limits.current[1] });
    });
    showValues(made, cursor.time, values.current, when.current, unit, given.relative);
  }, [data, series]);
  useEffect(() => plot.current?.redraw(false), [seen.current.marks]);

  values.current = [];
  return (
    <figure class="chart" data-metric={given.metric}>
      <figcaption>
        <span class="title">{given.title}</span>
        <span class="when" ref={when} />
      </figcaption>
      <div ref={element} class="plot" role="img" aria-label={spoken(given.title, drawn, unit)} />
      <ul class="legend">
        {drawn.series.map((one, at) =>
          one.quiet ? null : (
            <li key={one.label}>
              <i style={{ background: one.stroke }} />
              <span class="name" title={one.full}>
                {one.label}
              </span>
              <b ref={(node) => {
                  if (node) values.current[at] = node;
                }} />
            </li>
          ),
        )}
        {drawn.cloud > 0 && <li class="hint">grey: each of {drawn.cloud}</li>}
      </ul>
    </figure>
  );
}

interface Series {
  label: string;
  full: string;
  stroke: string;
  width: number;
  quiet: boolean;
}

interface Drawn {
  data: uPlot.AlignedData;
  series: Series[];
  cloud: number;
}

const NOTHING: uPlot.AlignedData = [[]];
const isChosen = (line: Line, chosen: string | null): boolean => chosen !== null && (line.replica || line.node) === chosen;

/** The values of what `seriesOf` names, in its order. */
function dataOf(lines: readonly Line[], range: Range, step: number, chosen: string | null): uPlot.AlignedData {
  const { times, values } = grid(lines, range.start, range.end, step);
  const seconds = times.map((time) => time / 1000);
  if (lines.length <= FEW) return [seconds, ...values];
  return [seconds, ...values, medians(values), ...values.filter((_, at) => isChosen(lines[at]!, chosen))];
}

function seriesOf(lines: readonly Line[], chosen: string | null, dark: boolean): Series[] {
  const colors = palette(dark);
  const called = names(lines);
  const mine = (line: Line) => isChosen(line, chosen);
  if (lines.length <= FEW) {
    return lines.map((line, at) => ({
      label: called[at]!,
      full: memberOf(line),
      stroke: colors[at % colors.length]!,
      width: mine(line) ? 2.5 : chosen === null ? 1.5 : 1,
      quiet: false,
    }));
  }
  const cloud = dark ? "rgb(160 170 180 / 0.22)" : "rgb(90 100 110 / 0.18)";
  const series: Series[] = lines.map((line, at) => ({ label: called[at]!, full: memberOf(line), stroke: cloud, width: 1, quiet: true }));
  series.push({ label: "median", full: "median of all lines", stroke: colors[0]!, width: 2, quiet: false });
  lines.forEach((line, at) => {
    if (mine(line)) series.push({ label: called[at]!, full: memberOf(line), stroke: colors[1]!, width: 2, quiet: false });
  });
  return series;
}

function span(data: uPlot.AlignedData, unit: string): readonly [number, number] {
  let [low, high] = [0, 0];
  for (const row of data.slice(1)) {
    for (const value of row) {
      if (value === null || value === undefined) continue;
      if (value > high) high = value;
      if (value < low) low = value;
    }
  }
  if (unit === "1" && high <= 1 && high > 0.2) return [low, 1.02];
  return [low * 1.05, high ? high * 1.08 : 1];
}

function options(
  given: { current: ChartGiven },
  limits: { current: readonly [number, number] },
  width: number,
  series: readonly Series[],
  unit: string,
  values: { current: HTMLElement[] },
  when: { current: HTMLElement | null },
): uPlot.Options {
  const faint = ink("--faint");
  const font = `11px ${fontFamily()}`;
  const axis = { stroke: ink("--muted"), font, grid: { stroke: ink("--grid"), width: 1 }, ticks: { show: false } };
  const { range, relative = false } = given.current;
  return {
    width,
    height: HEIGHT,
    padding: [6, relative ? 24 : 8, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      // A point for each of many lines would be moved with every step of the pointer, on every chart.
      points: { size: 5, one: series.length > FEW },
      drag: { x: true, y: false, setScale: false, dist: 4 },
      focus: { prox: 16 },
    },
    focus: { alpha: 1 },
    tzDate: (seconds) => (given.current.utc ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    scales: {
      x: { time: !relative, auto: false, range: (_, low, high) => [low, high], min: range.start / 1000, max: range.end / 1000 },
      y: { auto: false, range: () => [...limits.current] as [number, number] },
    },
    series: [{}, ...series.map((one) => ({ label: one.label, stroke: one.stroke, width: one.width, points: { size: 3, fill: one.stroke }, spanGaps: false }))],
    axes: [
      { ...axis, size: 24, space: 70, incrs: relative ? SINCE : undefined, values: (_, splits) => (relative ? splits.map((seconds) => since(seconds)) : labels(splits)) },
      { ...axis, size: (_, values) => Math.max(LEFT, 14 + DIGIT * Math.max(0, ...(values ?? []).map((text) => text.length))), space: 34, incrs: unit.startsWith("By") ? BYTES : undefined, values: (_, splits) => splits.map((value) => quantity(value, unit, true)) },
    ],
    hooks: {
      setCursor: [
        (made) => {
          if (!made.cursor.event) return;
          const left = made.cursor.left ?? -1;
          given.current.cursor.move(left < 0 ? null : made.posToVal(left, "x") * 1000, made);
        },
      ],
      setSelect: [
        (made) => {
          if (made.select.width < 4) return;
          const [start, end] = [made.select.left, made.select.left + made.select.width].map((at) => made.posToVal(at, "x") * 1000);
          made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          given.current.brush({ start: start!, end: end! });
        },
      ],
      setSeries: [
        (made, at) => {
          const one = at === null ? undefined : series[at - 1];
          if (one?.quiet && when.current) when.current.dataset["line"] = one.full;
          else if (when.current) delete when.current.dataset["line"];
          showValues(made, given.current.cursor.time, values.current, when.current, unit, given.current.relative);
        },
      ],
      drawClear: [(made) => marks(made, given.current.marks, faint)],
    },
  };
}

/** The marks that lie in the range, behind the lines: spans as bands, moments as hair lines. */
function marks(made: uPlot, all: readonly Mark[], faint: string): void {
  const { ctx, bbox } = made;
  const colors = { info: faint, warning: ink("--warning"), critical: ink("--critical") };
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const mark of all) {
    const left = made.valToPos(mark.start / 1000, "x", true);
    const right = made.valToPos(mark.end / 1000, "x", true);
    ctx.fillStyle = colors[mark.level];
    if (right - left > 2) {
      ctx.globalAlpha = 0.16;
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
    }
    ctx.globalAlpha = 0.75;
    ctx.fillRect(left, bbox.top, devicePixelRatio, bbox.height);
  }
  ctx.restore();
}

/** `+5 m` after a beginning. */
const since = (seconds: number): string => (seconds ? `+${duration(seconds * 1000).replace(/ 00? [ms]$|\.0/, "")}` : "0");

/** What stands below an axis at these seconds: the time, or the day where it changes. */
export function labels(splits: readonly number[]): string[] {
  const gap = splits.length > 1 ? splits[1]! - splits[0]! : 0;
  return splits.map((seconds, at) => {
    const { day, time } = parts(seconds * 1000);
    const before = at ? parts(splits[at - 1]! * 1000).day : null;
    if (gap >= 86_400 || (before !== null && before !== day)) return day.slice(5);
    return gap >= 60 ? time.slice(0, 5) : time;
  });
}

/** Write the values at a moment, or the newest ones, beside the names. */
function showValues(made: uPlot, time: number | null, values: HTMLElement[], when: HTMLElement | null, unit: string, relative = false): void {
  const times = made.data[0];
  const at = time === null ? null : nearest(times, time / 1000);
  values.forEach((node, index) => {
    const row = made.data[index + 1] ?? [];
    node.textContent = quantity(at === null ? last(row) : row[at], unit);
  });
  if (!when) return;
  const line = when.dataset["line"];
  when.textContent = at === null || times[at] === undefined ? "" : `${line ? `${line}  ` : ""}${relative ? since(times[at]!) : parts(times[at]! * 1000).time}`;
}

function nearest(times: ArrayLike<number>, wanted: number): number {
  const step = times.length > 1 ? times[1]! - times[0]! : 1;
  return Math.min(Math.max(Math.floor((wanted - (times[0] ?? 0)) / step), 0), times.length - 1);
}

function last(row: ArrayLike<number | null | undefined>): number | null {
  for (let at = row.length - 1; at >= 0; at -= 1) {
    const value = row[at];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

function spoken(title: string, drawn: Drawn, unit: string): string {
  const parts = drawn.series
    .map((one, at) => (one.quiet ? "" : `${one.label} ${quantity(last(drawn.data[at + 1] ?? []), unit)}`))
    .filter(Boolean);
  return `${title}: ${parts.join(", ") || MISSING}`;
}
