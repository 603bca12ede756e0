// Many lines as one picture: each pixel is as dark as lines go through it. A path for each of 128 lines takes twenty times as long.
import type { Row } from "./lines";

/** The grey of one line; where several lie over each other it adds up as that of paths would. */
const INK = { light: [90, 100, 110, 0.18], dark: [160, 170, 180, 0.22] } as const;
const MOST = 64;
const DOT = 3;

/** Where values lie in a picture: `x` of the first column and the distance of columns, `y` of 0 and how far 1 is below it; pixels. */
export interface Place {
  left: number;
  apart: number;
  zero: number;
  scale: number;
}

/** Where a picture is put together: charts are as large as each other, and drawn one after the other. */
interface Sheet {
  canvas: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  image: ImageData;
  pixels: Uint32Array;
  /** By column, from the top: how many more lines go through a pixel than through the one above it. */
  changes: Int32Array;
}
let sheet: Sheet | null = null;

/** The picture of the lines, `width` by `height` pixels; lines are as many pixels wide as `thick`. It holds until the next one. */
export function cloud(rows: readonly Row[], place: Place, width: number, height: number, thick: number, dark: boolean): HTMLCanvasElement | null {
  if (width < 1 || height < 1 || !rows.length) return null;
  if (sheet?.image.width !== width || sheet.image.height !== height) sheet = sheetOf(width, height);
  const { canvas, context, image, pixels, changes } = sheet;
  changes.fill(0);
  for (const row of rows) trace(row, place, changes, width, height, thick);
  shade(pixels, changes, width, height, inks(dark));
  context.putImageData(image, 0, 0);
  return canvas;
}

function sheetOf(width: number, height: number): Sheet {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  return { canvas, context: canvas.getContext("2d", { willReadFrequently: true })!, image, pixels: new Uint32Array(image.data.buffer), changes: new Int32Array(width * (height + 1)) };
}

function inks(dark: boolean): Uint32Array {
  const [red, green, blue, alpha] = dark ? INK.dark : INK.light;
  return Uint32Array.from({ length: MOST + 1 }, (_, lines) => ((lines && Math.round(255 * (1 - (1 - alpha) ** lines)) << 24) | (blue << 16) | (green << 8) | red) >>> 0);
}

/** Each pixel in the ink of as many lines as go through it. */
function shade(pixels: Uint32Array, changes: Int32Array, width: number, height: number, shades: Uint32Array): void {
  for (let x = 0, change = 0; x < width; x += 1, change += 1) {
    for (let at = x, lines = 0, end = x + width * height; at < end; at += width, change += 1) {
      lines += changes[change]!;
      pixels[at] = shades[lines < MOST ? lines : MOST]!;
    }
  }
}

/** Count the pixels that one line goes through; values that are missing leave a gap, one alone is a dot. */
function trace(row: Row, { left, apart, zero, scale }: Place, changes: Int32Array, width: number, height: number, thick: number): void {
  let before = Number.NaN;
  for (let at = 0; at < row.length; at += 1) {
    const y = zero + scale * row[at]!;
    const x = left + at * apart;
    if (before === before && y === y) segment(changes, width, height, thick, x - apart, before, x, y);
    else if (y === y && !(row[at + 1]! === row[at + 1]!)) {
      for (let dot = 0; dot < DOT; dot += 1) column(changes, width, height, Math.floor(x) + dot, y, y + DOT - thick, thick);
    }
    before = y;
  }
}

/** One more line through the pixels of a column of the picture between two heights, as thick as the line. */
function column(changes: Int32Array, width: number, height: number, x: number, from: number, to: number, thick: number): void {
  if (x < 0 || x >= width) return;
  const low = Math.floor((from < to ? from : to) + 0.5);
  const end = Math.floor((from < to ? to : from) + 0.5) + thick;
  const top = x * (height + 1);
  changes[top + (low < 0 ? 0 : low > height ? height : low)]! += 1;
  changes[top + (end < 0 ? 0 : end > height ? height : end)]! -= 1;
}

function segment(changes: Int32Array, width: number, height: number, thick: number, left: number, from: number, right: number, to: number): void {
  if (right < 0 || left >= width) return;
  const first = left < 0 ? 0 : Math.floor(left);
  const last = right > width ? width : Math.floor(right);
  if (last <= first) {
    column(changes, width, height, first, from, to, thick);
    return;
  }
  const slope = (to - from) / (right - left);
  let begin = from + (first > left ? first - left : 0) * slope;
  for (let x = first; x < last; x += 1) {
    const end = x + 1 < right ? from + (x + 1 - left) * slope : to;
    column(changes, width, height, x, begin, end, thick);
    begin = end;
  }
}

/** The line that is nearest to a place, where one is within `most` pixels; its number. */
export function nearestLine(rows: readonly Row[], column: number, y: number, place: (value: number) => number, most: number): number | null {
  let [found, least]: [number | null, number] = [null, most];
  rows.forEach((row, at) => {
    const apart = Math.abs(place(row[column] ?? Number.NaN) - y);
    if (apart < least) [found, least] = [at, apart];
  });
  return found;
}
