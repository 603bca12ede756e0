// Heat map of ranks over time, one row for each rank.
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Line } from "../api/client";
import { MISSING, isUtc, formatTime, formatQuantity } from "../format";
import { useVisibility, useWidth } from "../parts/hooks";
import { type Cursor, type Mark, type Range, roundTimes } from "./axis";
import { axisLabels } from "./plot";
import { HeatRows } from "./heatrows";
import { differencePixel, heatPixel, fontFamily, themeColor } from "./colors";
import { drawSoon, scheduleDraw, cancelDraw } from "./scheduler";
import { type Row, mergeDevices, alignLines, meanOf, median, medians, sortLines, valueAt } from "./lines";

/** Rank of a finding, with the finding's statement. */
export interface Outlier {
  member: string;
  text: string;
}

export interface Rows {
  step: number;
  lines: Line[];
  times: number[];
  values: Row[];
  /** Median of the ranks in each bucket. */
  middle: Row;
  means: Row;
  outliers: Outlier[];
}

/** Build the rows of the heat map, and its outliers: the ranks of findings, worst first. */
export function makeRows(lines: readonly Line[], range: Range, step: number, named: ReadonlyMap<string, string>): Rows {
  const joined = sortLines(mergeDevices(lines));
  const { step: between, times, values } = alignLines(joined, range.start, range.end, step);
  const middle = medians(values);
  const means = Float64Array.from(values, (row) => meanOf(row));
  const members = new Set(joined.map((line) => line.replica || line.node));
  const outliers = [...named].filter(([member]) => members.has(member)).map(([member, text]) => ({ member, text }));
  return { step: between, lines: joined, times, values, middle, means, outliers };
}

export interface HeatGiven {
  rows: Rows;
  range: Range;
  unit: string;
  difference: boolean;
  cursor: Cursor;
  marks: readonly Mark[];
  chosen: string | null;
  choose: (member: string | null) => void;
  brush: (range: Range) => void;
  dark: boolean;
}

/** Return the height of a row in CSS pixels. */
export const rowHeight = (ranks: number): number => Math.max(3, Math.min(22, Math.floor(420 / Math.max(ranks, 1))));

const AXIS = 62;
const MEANS = 8;

export function HeatMap(given: HeatGiven) {
  const { rows, range, difference, cursor, chosen, dark, unit } = given;
  const { element, width } = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const { inSight } = useVisibility(element, () => canvas.current && drawSoon(canvas.current));
  const hair = useRef<HTMLDivElement>(null);
  const caption = useRef<HTMLParagraphElement>(null);
  const height = rowHeight(rows.lines.length);
  const whole = height * rows.lines.length;
  const scale = useMemo(() => scaleLimits(rows, unit, difference), [rows, unit, difference]);
  const inner = Math.max(width - AXIS - MEANS - 8, 1);
  const x = (time: number) => AXIS + ((time - range.start) / (range.end - range.start)) * inner;
  const ticks = roundTimes(range, Math.max(2, inner / 90), isUtc());
  const texts = axisLabels(ticks.map((time) => time / 1000));
  const pressed = useRef<number | null>(null);
  const pictures = useMemo(() => makePictures(rows, scale, difference, dark), [rows, scale, difference, dark]);

  useLayoutEffect(() => {
    const mine = canvas.current;
    if (mine && width) scheduleDraw(mine, () => paint(mine, given, pictures(), width, whole, height, x), inSight.current ?? false);
  }, [rows, width, whole, pictures, chosen, range.start, range.end, given.marks]);
  useLayoutEffect(() => {
    const mine = canvas.current!;
    return () => void cancelDraw(mine);
  }, []);
  const list = useMemo(() => {
    const tell = (text: string) => caption.current && (caption.current.textContent = text);
    return <HeatRows rows={rows} unit={unit} height={height} chosen={chosen} choose={given.choose} tell={tell} />;
  }, [rows, unit, height, chosen, given.choose]);
  useEffect(
    () =>
      cursor.listen((time) => {
        if (!hair.current) return;
        const inside = time !== null && time >= range.start && time <= range.end;
        hair.current.style.display = inside ? "block" : "none";
        if (inside) hair.current.style.transform = `translateX(${x(time).toFixed(1)}px)`;
      }),
    [range.start, range.end, width],
  );

  const at = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / height);
    const time = range.start + ((event.clientX - box.left - AXIS) / inner) * (range.end - range.start);
    return { row: Math.min(Math.max(row, 0), rows.lines.length - 1), time };
  };
  const move = (event: PointerEvent) => {
    const { row, time } = at(event);
    cursor.move(time < range.start || time > range.end ? null : time, null);
    const line = rows.lines[row];
    const bucket = Math.floor((time - (rows.times[0] ?? 0)) / rows.step);
    const [value, middle] = [valueAt(rows.values[row], bucket), valueAt(rows.middle, bucket)];
    if (caption.current && line) {
      const name = `${line.rank !== null && line.rank < 1e9 ? `rank ${line.rank}, ` : ""}${line.replica || line.node}`;
      caption.current.textContent = `${name}: ${formatQuantity(value, unit)} at ${formatTime(time, true)} (median ${formatQuantity(middle, unit)})`;
    }
  };
  const leave = () => {
    cursor.move(null, null);
    if (caption.current) caption.current.textContent = "";
  };
  const up = (event: PointerEvent) => {
    const { row, time } = at(event);
    const from = pressed.current;
    pressed.current = null;
    if (from !== null && Math.abs(x(from) - x(time)) > 6) {
      given.brush({ start: Math.max(Math.min(from, time), range.start), end: Math.min(Math.max(from, time), range.end) });
      return;
    }
    const line = rows.lines[row];
    const member = line ? line.replica || line.node : null;
    given.choose(member === chosen ? null : member);
  };
  return (
    <div class="heat" ref={element}>
      <div class="cells">
        <canvas
          ref={canvas}
          role="img"
          aria-label={describeRanks(rows)}
          style={{ height: `${whole}px` }}
          onPointerMove={move}
          onPointerLeave={leave}
          onPointerDown={(event) => (pressed.current = at(event).time)}
          onPointerUp={up}
        />
        {list}
        <div class="hair" ref={hair} style={{ height: `${whole}px` }} />
      </div>
      <div class="ticks" aria-hidden="true">
        {ticks.map((time, at) => (
          <span key={time} style={{ left: `${x(time).toFixed(1)}px` }}>
            {texts[at]}
          </span>
        ))}
      </div>
      <div class="scale">
        <span>{formatQuantity(scale[0], unit)}</span>
        <i class={difference ? "around" : "from"} />
        <span>{formatQuantity(scale[1], unit)}</span>
        <span class="nodata">
          <i class="nodata" /> no data
        </span>
        <span class="hint">{difference ? "difference from the median rank" : "value"}; the strip on the right shows each rank’s mean</span>
      </div>
      <p class="caption" ref={caption} />
    </div>
  );
}

function scaleLimits(rows: Rows, unit: string, difference: boolean): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  let far = 0;
  for (const row of rows.values) {
    for (let at = 0; at < row.length; at += 1) {
      const value = row[at]!;
      if (value < low) low = value;
      if (value > high) high = value;
      const apart = Math.abs(value - rows.middle[at]!);
      if (apart > far) far = apart;
    }
  }
  if (difference) return [-(far || 1), far || 1];
  return Number.isFinite(low) ? fitScale(low, high, unit) : [0, 1];
}

/** Minimum span of the scale as a share of the values, so that noise does not use all colours. */
const LEAST_SPAN = { ratio: 0.4, other: 0.2 };

/** Fit a scale to the lowest and the highest value. */
function fitScale(low: number, high: number, unit: string): [number, number] {
  const ratio = unit === "1" && low >= 0 && high <= 1;
  const span = ratio ? LEAST_SPAN.ratio : LEAST_SPAN.other * Math.max(Math.abs(low), Math.abs(high));
  const widened = Math.max(high - low, span || 1);
  const end = Math.max(high, Math.min((low + high + widened) / 2, ratio ? 1 : Number.POSITIVE_INFINITY));
  return [low < 0 ? end - widened : Math.max(end - widened, 0), end];
}

function paint(
  canvas: HTMLCanvasElement,
  given: HeatGiven,
  { cells, means }: Pictures,
  width: number,
  whole: number,
  height: number,
  x: (time: number) => number,
): void {
  const { rows, chosen } = given;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(whole * ratio);
  const context = canvas.getContext("2d")!;
  context.scale(ratio, ratio);
  const [left, right] = [x(rows.times[0] ?? 0), x((rows.times[rows.times.length - 1] ?? 0) + rows.step)];
  context.save();
  context.beginPath();
  context.rect(AXIS, 0, width - AXIS - MEANS - 8, whole);
  context.clip();
  context.imageSmoothingEnabled = false;
  context.fillStyle = themeColor("--nodata");
  context.fillRect(AXIS, 0, width, whole);
  if (cells) context.drawImage(cells, left, 0, right - left, whole);
  context.restore();
  context.imageSmoothingEnabled = false;
  if (means) context.drawImage(means, width - MEANS, 0, MEANS, whole);
  if (height > 8) rows.lines.forEach((_, row) => context.clearRect(AXIS, (row + 1) * height - 1, width - AXIS, 1));
  drawNames(context, rows, chosen, width, whole, height);
  drawMarks(context, given.marks, width, whole, x);
}

interface Pictures {
  cells: HTMLCanvasElement | null;
  means: HTMLCanvasElement | null;
}

/** Paint the cells and means on first use. A change of range, mark or selection reuses them. */
function makePictures(rows: Rows, scale: readonly [number, number], difference: boolean, dark: boolean): () => Pictures {
  const color = (value: number, middle: number) =>
    difference ? differencePixel((value - middle) / scale[1], dark) : heatPixel((value - scale[0]) / (scale[1] - scale[0] || 1));
  let made: Pictures | null = null;
  return () =>
    (made ??= {
      cells: paintCells(rows.values, rows.times.length, (value, at) => color(value, rows.middle[at]!)),
      means: paintMeans(rows.means, color),
    });
}

function paintMeans(means: Row, color: (value: number, middle: number) => number): HTMLCanvasElement | null {
  const center = median(means) ?? 0;
  return paintCells(Array.from(means, (_, at) => means.subarray(at, at + 1)), 1, (value) => color(value, center));
}

/** Paint a pixel for each value and a row for each series. Missing values stay transparent. */
function paintCells(rows: readonly Row[], columns: number, color: (value: number, at: number) => number): HTMLCanvasElement | null {
  if (!columns || !rows.length) return null;
  const made = document.createElement("canvas");
  made.width = columns;
  made.height = rows.length;
  const image = new ImageData(columns, rows.length);
  const pixels = new Uint32Array(image.data.buffer);
  rows.forEach((row, place) =>
    row.forEach((value, at) => {
      if (!Number.isNaN(value)) pixels[place * columns + at] = color(value, at);
    }),
  );
  made.getContext("2d")!.putImageData(image, 0, 0);
  return made;
}

/** Draw the names at the left, every 2^n rows: with eight devices a node, that is the first rank of each node. */
function drawNames(context: CanvasRenderingContext2D, rows: Rows, chosen: string | null, width: number, whole: number, height: number): void {
  const members = rows.lines.map((line) => line.replica || line.node);
  const every = 2 ** Math.ceil(Math.log2(13 / height));
  const taken = members.findIndex((member) => member === chosen);
  const far = new Set(rows.outliers.map((one) => members.indexOf(one.member)));
  const inks = { chosen: themeColor("--accent"), far: themeColor("--warning"), other: themeColor("--muted") };
  context.font = `${Math.min(11, Math.max(height - 2, 10))}px ${fontFamily()}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  members.forEach((member, row) => {
    const top = row * height;
    const hidden = taken >= 0 && row !== taken && Math.abs(row - taken) < every;
    const beside = [...far].some((other) => Math.abs(row - other) < every);
    if (far.has(row) || (row % every === 0 && !hidden && !beside) || row === taken) {
      context.fillStyle = row === taken ? inks.chosen : far.has(row) ? inks.far : inks.other;
      context.fillText(shorten(member), AXIS - 6, Math.min(Math.max(top + height / 2, 6), whole - 6));
    }
    if (row === taken) {
      context.strokeStyle = inks.chosen;
      context.lineWidth = 1.5;
      context.strokeRect(AXIS - 1, top - 1.5, width - AXIS, height + (height > 8 ? 2 : 3));
    }
  });
}

/** Draw marks as lines at start and end: a translucent band would change the colours of the cells. */
function drawMarks(context: CanvasRenderingContext2D, marks: readonly Mark[], width: number, whole: number, x: (time: number) => number): void {
  context.save();
  context.beginPath();
  context.rect(AXIS, 0, width - AXIS - MEANS - 8, whole);
  context.clip();
  for (const mark of marks) {
    const [left, right] = [x(mark.start), x(mark.end)];
    for (const at of right - left > 2 ? [left, right] : [left]) {
      context.fillStyle = "#fff";
      context.fillRect(at - 1.5, 0, 3, whole);
      context.fillStyle = themeColor(mark.level === "info" ? "--accent" : `--${mark.level}`);
      context.fillRect(at - 0.5, 0, 1.5, whole);
    }
  }
  context.restore();
}

const shorten = (name: string): string => (name.length > 10 ? `…${name.slice(-9)}` : name);

function describeRanks(rows: Rows): string {
  const parts = rows.outliers.map((one) => `${one.member} ${one.text}`);
  return `${rows.lines.length} ranks over time. ${parts.join("; ") || (rows.lines.length > 2 ? "No rank has a finding" : MISSING)}`;
}
