// A chart of one metric on the page's time axis: few lines each in a colour, many as their median and a cloud.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Line } from "../api/client";
import { MISSING, parts, quantity } from "../format";
import { useWidth } from "../parts/hooks";
import type { Cursor, Mark, Range } from "./axis";
import { ink, palette } from "./colors";
import { grid, medians, memberOf, names } from "./lines";

export const FEW = 8;
const HEIGHT = 150;
const LEFT = 62;
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
}

export function Chart(given: ChartGiven) {
  const { lines, range, step, cursor, chosen, dark, utc } = given;
  const { element, width } = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const values = useRef<HTMLElement[]>([]);
  const when = useRef<HTMLElement>(null);
  const latest = useRef(given);
  latest.current = given;
  const unit = lines[0]?.unit ?? "";
  const drawn = useMemo(() => arrange(lines, range, step, chosen, dark), [lines, range.start, range.end, step, chosen, dark]);
  const shape = drawn.series.map((one) => `${one.label}${one.stroke}`).join("|");
  const limits = useRef<readonly [number, number]>([0, 1]);
  limits.current = span(drawn.data, unit);

  useEffect(() => {
    if (!element.current || !width) return;
    const made = new uPlot(options(latest, limits, width, drawn.series, unit, values, when), drawn.data, element.current);
    plot.current = made;
    const off = cursor.listen((time, source) => {
      if (source !== made) made.setCursor({ left: time === null ? -10 : made.valToPos(time / 1000, "x"), top: -10 }, false);
      tell(made, time, values.current, when.current, unit);
    });
    tell(made, null, values.current, when.current, unit);
    return () => {
      off();
      made.destroy();
      plot.current = null;
    };
  }, [width > 0, shape, dark, utc, unit]);
  useEffect(() => {
    if (plot.current && width && plot.current.width !== width) plot.current.setSize({ width, height: HEIGHT });
  }, [width]);
  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    made.setData(drawn.data, false);
    made.batch(() => {
      made.setScale("x", { min: range.start / 1000, max: range.end / 1000 });
      made.setScale("y", { min: limits.current[0], max: limits.current[1] });
    });
    tell(made, cursor.time, values.current, when.current, unit);
  }, [drawn]);
  useEffect(() => plot.current?.redraw(false), [given.marks]);

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
        {drawn.cloud > 0 && <li class="hint">grey: {drawn.cloud} lines</li>}
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

function arrange(lines: readonly Line[], range: Range, step: number, chosen: string | null, dark: boolean): Drawn {
  const { times, values } = grid(lines, range.start, range.end, step);
  const seconds = times.map((time) => time / 1000);
  const colors = palette(dark);
  const called = names(lines);
  const mine = (line: Line) => chosen !== null && (line.replica || line.node) === chosen;
  if (lines.length <= FEW) {
    const series = lines.map((line, at) => ({
      label: called[at]!,
      full: memberOf(line),
      stroke: colors[at % colors.length]!,
      width: mine(line) ? 2.5 : chosen === null ? 1.5 : 1,
      quiet: false,
    }));
    return { data: [seconds, ...values], series, cloud: 0 };
  }
  const cloud = dark ? "rgb(160 170 180 / 0.22)" : "rgb(90 100 110 / 0.18)";
  const series: Series[] = lines.map((line, at) => ({ label: called[at]!, full: memberOf(line), stroke: cloud, width: 1, quiet: true }));
  series.push({ label: "median", full: "median of all lines", stroke: colors[0]!, width: 2, quiet: false });
  const data: uPlot.AlignedData = [seconds, ...values, medians(values)];
  lines.forEach((line, at) => {
    if (!mine(line)) return;
    series.push({ label: called[at]!, full: memberOf(line), stroke: colors[1]!, width: 2, quiet: false });
    data.push(values[at]!);
  });
  return { data, series, cloud: lines.length };
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
  const font = `11px ${ink("--font")}`;
  const axis = { stroke: ink("--muted"), font, grid: { stroke: ink("--grid"), width: 1 }, ticks: { show: false } };
  const range = given.current.range;
  return {
    width,
    height: HEIGHT,
    padding: [6, 8, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { size: 5 },
      drag: { x: true, y: false, setScale: false, dist: 4 },
      focus: { prox: 16 },
    },
    focus: { alpha: 1 },
    tzDate: (seconds) => (given.current.utc ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    scales: {
      x: { time: true, auto: false, range: (_, low, high) => [low, high], min: range.start / 1000, max: range.end / 1000 },
      y: { auto: false, range: () => [...limits.current] as [number, number] },
    },
    series: [{}, ...series.map((one) => ({ label: one.label, stroke: one.stroke, width: one.width, points: { size: 3, fill: one.stroke }, spanGaps: false }))],
    axes: [
      { ...axis, size: 24, space: 70, values: (_, splits) => labels(splits) },
      { ...axis, size: LEFT, space: 34, incrs: unit.startsWith("By") ? BYTES : undefined, values: (_, splits) => splits.map((value) => quantity(value, unit, true)) },
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
          tell(made, given.current.cursor.time, values.current, when.current, unit);
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

function labels(splits: readonly number[]): string[] {
  const gap = splits.length > 1 ? splits[1]! - splits[0]! : 0;
  return splits.map((seconds, at) => {
    const { day, time } = parts(seconds * 1000);
    const before = at ? parts(splits[at - 1]! * 1000).day : null;
    if (gap >= 86_400 || (before !== null && before !== day)) return day.slice(5);
    return gap >= 60 ? time.slice(0, 5) : time;
  });
}

/** Write the values at a moment, or the newest ones, beside the names. */
function tell(made: uPlot, time: number | null, values: HTMLElement[], when: HTMLElement | null, unit: string): void {
  const times = made.data[0];
  const at = time === null ? null : nearest(times, time / 1000);
  values.forEach((node, index) => {
    const row = made.data[index + 1] ?? [];
    node.textContent = quantity(at === null ? last(row) : row[at], unit);
  });
  if (!when) return;
  const line = when.dataset["line"];
  when.textContent = at === null || times[at] === undefined ? "" : `${line ? `${line}  ` : ""}${parts(times[at]! * 1000).time}`;
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
  const told = drawn.series
    .map((one, at) => (one.quiet ? "" : `${one.label} ${quantity(last(drawn.data[at + 1] ?? []), unit)}`))
    .filter(Boolean);
  return `${title}: ${told.join(", ") || MISSING}`;
}
