// Canvas of a chart: uPlot with axes and named series, the cloud behind them, marks, and the cursor.
import uPlot from "uplot";
import type { Line } from "../api/client";
import { splitTime, formatQuantity } from "../format";
import type { Cursor, Mark, Range } from "./axis";
import { drawCloud, nearestLine } from "./cloud";
import { fontFamily, themeColor } from "./colors";
import { labelOf } from "./lines";
import { type Readout, lastOf, bucketIndex, formatOffset, sumOf, writeReadout } from "./readout";
import { type Flag, FEW, type Series, type Values, axisRange, limitsInReach, describeChart, valuesOf } from "./series";
import { scheduleReadout } from "./scheduler";

export const HEIGHT = 150;
const LEFT = 62;
/** Approximate width of an axis character. */
const DIGIT = 6;
/** Distance in pixels within which the pointer hits a series. */
const NEAR = 16;
const SINCE = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();
const BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** Content and callbacks of a plot. */
export interface Shown {
  title: string;
  lines: readonly Line[];
  series: readonly Series[];
  range: Range;
  step: number;
  cursor: Cursor;
  marks: readonly Mark[];
  chosen: string | null;
  flags: readonly Flag[];
  /** Limits, each drawn as a line across the chart. */
  bounds: readonly number[];
  /** The values are counts: without a pointer the legend shows their sum, not the newest value. */
  counts: boolean;
  dark: boolean;
  utc: boolean;
  relative: boolean;
  brush: (range: Range) => void;
}

/** uPlot instance in an element. It is rebuilt only if its series or colours change. */
export class Plot {
  private made: uPlot | null = null;
  private shown: Shown | null = null;
  private values: Values = { seconds: [], named: [], all: [] };
  /** Range of the values. */
  private span: Range = { start: 0, end: 0 };
  private limits: readonly [number, number] = [0, 1];
  private bounds: readonly number[] = [];
  /** Name of the cloud's series under the pointer. */
  private under = "";
  private off: () => void = () => undefined;

  constructor(
    private readonly element: HTMLElement,
    private readonly readout: Readout,
  ) {}

  /** Show the content, `width` CSS pixels wide. */
  show(wanted: Shown, width: number): void {
    const before = this.shown;
    this.shown = wanted;
    const moved = !before || before.range.start !== wanted.range.start || before.range.end !== wanted.range.end;
    const other = !before || (["lines", "step", "chosen", "flags", "bounds"] as const).some((name) => before[name] !== wanted[name]) || (moved && !this.covers(wanted));
    if (other) this.read(wanted);
    const anew = !this.made || !before || appearanceOf(before) !== appearanceOf(wanted);
    if (anew) this.make(width);
    else if (this.made!.width !== width) this.made!.setSize({ width, height: HEIGHT });
    if (other || moved || anew) this.fill();
    else if (before?.marks !== wanted.marks) this.made?.redraw(false);
    this.write();
  }

  destroy(): void {
    this.off();
    this.made?.destroy();
    this.made = null;
  }

  /** Return true if the current values can fill the range until new ones arrive. Series of a comparison never change. */
  private covers({ range, relative }: Shown): boolean {
    return !relative && range.start >= this.span.start && range.end <= this.span.end;
  }

  private read({ lines, range, step, chosen, flags, bounds, counts, title, series }: Shown): void {
    this.values = valuesOf(lines, range, step, chosen, flags, counts);
    this.span = range;
    this.bounds = limitsInReach(bounds, this.values);
    this.limits = axisRange(this.values, this.unit, this.bounds);
    this.element.setAttribute("aria-label", describeChart(title, series, this.values, this.unit));
  }

  private get unit(): string {
    return this.shown?.lines[0]?.unit ?? "";
  }

  /** Rows of the series that are too many to be named. */
  private get cloud(): Values["all"] {
    return this.values.all.length > FEW ? this.values.all : [];
  }

  private make(width: number): void {
    const shown = this.shown!;
    this.destroy();
    const made = new uPlot(this.options(shown, width), this.data(), this.element);
    this.made = made;
    this.off = shown.cursor.listen((time, source) => {
      if (source !== made) {
        this.under = "";
        made.setCursor({ left: time === null ? -10 : made.valToPos(time / 1000, "x"), top: -10 }, false);
      }
      scheduleReadout(this, () => this.write());
    });
  }

  private data(): uPlot.AlignedData {
    return [this.values.seconds, ...this.values.named];
  }

  private fill(): void {
    const [made, { range }] = [this.made!, this.shown!];
    made.batch(() => {
      made.setData(this.data(), false);
      made.setScale("x", { min: range.start / 1000, max: range.end / 1000 });
      made.setScale("y", { min: this.limits[0], max: this.limits[1] });
    });
  }

  private write(): void {
    const { cursor, relative, counts } = this.shown!;
    const seconds = cursor.time === null ? null : cursor.time / 1000;
    writeReadout(this.readout, this.values.seconds, this.values.named, seconds, this.unit, relative, this.under, counts ? sumOf : lastOf);
  }

  /** Move the shared cursor, and name the series under the pointer. */
  private point(made: uPlot): void {
    if (!made.cursor.event) return;
    const { cursor, lines } = this.shown!;
    const left = made.cursor.left ?? -1;
    const seconds = left < 0 ? null : made.posToVal(left, "x");
    const rows = this.cloud;
    const at = seconds === null || !rows.length ? null : nearestLine(rows, bucketIndex(this.values.seconds, seconds), made.cursor.top ?? -1, (value) => made.valToPos(value, "y"), NEAR);
    const named = at === null ? "" : labelOf(lines[at]!);
    if (named !== this.under) scheduleReadout(this, () => this.write());
    this.under = named;
    cursor.move(seconds === null ? null : seconds * 1000, made);
  }

  private select(made: uPlot): void {
    if (made.select.width < 4) return;
    const [start, end] = [made.select.left, made.select.left + made.select.width].map((at) => made.posToVal(at, "x") * 1000);
    made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.shown!.brush({ start: start!, end: end! });
  }

  private drawCloud(made: uPlot): void {
    const rows = this.cloud;
    const { seconds } = this.values;
    if (!rows.length || !seconds.length) return;
    const { left, top, width, height } = made.bbox;
    const x = (at: number) => made.valToPos(at, "x", true) - left;
    const stride = seconds.length > 1 ? x(seconds[1]!) - x(seconds[0]!) : width;
    const zero = made.valToPos(0, "y", true) - top;
    const scale = made.valToPos(1, "y", true) - top - zero;
    const place = { left: x(seconds[0]!), stride, zero, scale };
    const behind = drawCloud(rows, place, Math.round(width), Math.round(height), Math.max(1, Math.round(devicePixelRatio)), this.shown!.dark);
    if (behind) made.ctx.drawImage(behind, Math.round(left), Math.round(top));
  }

  private options(shown: Shown, width: number): uPlot.Options {
    const font = `11px ${fontFamily()}`;
    const axis = { stroke: themeColor("--muted"), font, grid: { stroke: themeColor("--grid"), width: 1 }, ticks: { show: false } };
    const { range, relative } = shown;
    const { unit } = this;
    return {
      width,
      height: HEIGHT,
      padding: [6, relative ? 32 : 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 5 }, drag: { x: true, y: false, setScale: false, dist: 4 } },
      tzDate: (seconds) => (this.shown!.utc ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
      scales: {
        x: { time: !relative, auto: false, range: (_, low, high) => [low, high], min: range.start / 1000, max: range.end / 1000 },
        y: { auto: false, range: () => [...this.limits] as [number, number] },
      },
      series: [{}, ...shown.series.map((one) => ({ label: one.label, stroke: one.stroke, width: one.width, dash: one.dash ?? [], points: { size: 3, fill: one.stroke }, spanGaps: false }))],
      axes: [
        { ...axis, size: 24, space: 70, incrs: relative ? SINCE : undefined, values: (_, splits) => (relative ? splits.map((seconds) => formatOffset(seconds)) : axisLabels(splits)) },
        { ...axis, size: (_, values) => Math.max(LEFT, 14 + DIGIT * Math.max(0, ...(values ?? []).map((text) => text.length))), space: 30, incrs: shown.counts ? WHOLE : unit.startsWith("By") ? BYTES : undefined, values: (_, splits) => splits.map((value) => formatQuantity(value, shown.counts ? "" : unit, true)) },
      ],
      hooks: {
        setCursor: [(made) => this.point(made)],
        setSelect: [(made) => this.select(made)],
        drawClear: [(made) => drawMarks(made, this.shown!.marks)],
        drawAxes: [(made) => this.drawCloud(made)],
        draw: [(made) => drawBounds(made, this.bounds)],
      },
    };
  }
}

/** Return a key of everything that needs a new uPlot instance. */
const appearanceOf = (shown: Shown): string => [shown.dark, shown.utc, shown.lines[0]?.unit, ...shown.series.map((one) => `${one.label}${one.stroke}${one.width}${one.dash}`)].join("|");

/** Draw marks behind the series: spans as bands, moments as hairlines. */
function drawMarks(made: uPlot, all: readonly Mark[]): void {
  if (!all.length) return;
  const { ctx, bbox } = made;
  const colors = { info: themeColor("--faint"), warning: themeColor("--warning"), critical: themeColor("--critical") };
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
    if (mark.flag) drawFlag(ctx, left, bbox.top + bbox.height);
  }
  ctx.restore();
}

/** Draw a triangle on the time axis. */
function drawFlag(ctx: CanvasRenderingContext2D, x: number, bottom: number): void {
  const size = 5 * devicePixelRatio;
  ctx.globalAlpha = 1;
  ctx.fillStyle = themeColor("--accent");
  ctx.beginPath();
  ctx.moveTo(x - size, bottom);
  ctx.lineTo(x + size, bottom);
  ctx.lineTo(x, bottom - 1.6 * size);
  ctx.fill();
}

/** Draw the limits as dashed lines. */
function drawBounds(made: uPlot, bounds: readonly number[]): void {
  if (!bounds.length) return;
  const { ctx, bbox } = made;
  ctx.save();
  ctx.strokeStyle = themeColor("--critical");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([6, 4].map((one) => one * devicePixelRatio));
  for (const bound of bounds) {
    const y = made.valToPos(bound, "y", true);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  }
  ctx.restore();
}

/** Return axis labels: times, or the day where it changes. */
export function axisLabels(splits: readonly number[]): string[] {
  const gap = splits.length > 1 ? splits[1]! - splits[0]! : 0;
  return splits.map((seconds, at) => {
    const { day, time } = splitTime(seconds * 1000);
    const before = at ? splitTime(splits[at - 1]! * 1000).day : null;
    if (gap >= 86_400 || (before !== null && before !== day)) return day.slice(5);
    return gap >= 60 ? time.slice(0, 5) : time;
  });
}
