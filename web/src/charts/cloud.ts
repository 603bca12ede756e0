// Draw many series as one picture in which overlaps are darker. Canvas paths for 128 series take twenty times as long.
import type { Row } from "./lines";

/** Colour and opacity of one series. Overlaps add up as with canvas paths. */
const INK = { light: [90, 100, 110, 0.18], dark: [160, 170, 180, 0.22] } as const;
const MOST = 64;
const DOT = 3;

/** Projection of values to pixels: `left` is the first column, `stride` the distance of columns, `zero` the y of 0, `scale` the pixels per unit. */
export interface Projection {
  left: number;
  stride: number;
  zero: number;
  scale: number;
}

/** Reusable buffers: charts have the same size and are drawn one after the other. */
interface Buffers {
  canvas: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  image: ImageData;
  pixels: Uint32Array;
  /** By column, from the top: change of the number of series from the pixel above. */
  changes: Int32Array;
}
let buffers: Buffers | null = null;

/** Draw the series on a canvas of `width` by `height` pixels, with lines of `thick` pixels. The next call reuses the canvas. */
export function drawCloud(rows: readonly Row[], place: Projection, width: number, height: number, thick: number, dark: boolean): HTMLCanvasElement | null {
  if (width < 1 || height < 1 || !rows.length) return null;
  if (buffers?.image.width !== width || buffers.image.height !== height) buffers = makeBuffers(width, height);
  const { canvas, context, image, pixels, changes } = buffers;
  changes.fill(0);
  for (const row of rows) addLine(row, place, changes, width, height, thick);
  shadePixels(pixels, changes, width, height, makeInks(dark));
  context.putImageData(image, 0, 0);
  return canvas;
}

function makeBuffers(width: number, height: number): Buffers {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  return { canvas, context: canvas.getContext("2d", { willReadFrequently: true })!, image, pixels: new Uint32Array(image.data.buffer), changes: new Int32Array(width * (height + 1)) };
}

function makeInks(dark: boolean): Uint32Array {
  const [red, green, blue, alpha] = dark ? INK.dark : INK.light;
  return Uint32Array.from({ length: MOST + 1 }, (_, lines) => ((lines && Math.round(255 * (1 - (1 - alpha) ** lines)) << 24) | (blue << 16) | (green << 8) | red) >>> 0);
}

/** Set each pixel to the colour for its number of series. */
function shadePixels(pixels: Uint32Array, changes: Int32Array, width: number, height: number, shades: Uint32Array): void {
  for (let x = 0, change = 0; x < width; x += 1, change += 1) {
    for (let at = x, lines = 0, end = x + width * height; at < end; at += width, change += 1) {
      lines += changes[change]!;
      pixels[at] = shades[lines < MOST ? lines : MOST]!;
    }
  }
}

/** Add a series to the counts. Missing values leave a gap, and a single value is a dot. */
function addLine(row: Row, { left, stride, zero, scale }: Projection, changes: Int32Array, width: number, height: number, thick: number): void {
  let before = Number.NaN;
  for (let at = 0; at < row.length; at += 1) {
    const y = zero + scale * row[at]!;
    const x = left + at * stride;
    if (before === before && y === y) addSegment(changes, width, height, thick, x - stride, before, x, y);
    else if (y === y && !(row[at + 1]! === row[at + 1]!)) {
      for (let dot = 0; dot < DOT; dot += 1) addColumn(changes, width, height, Math.floor(x) + dot, y, y + DOT - thick, thick);
    }
    before = y;
  }
}

/** Add a vertical stroke between two heights to the counts of a pixel column. */
function addColumn(changes: Int32Array, width: number, height: number, x: number, from: number, to: number, thick: number): void {
  if (x < 0 || x >= width) return;
  const low = Math.floor((from < to ? from : to) + 0.5);
  const end = Math.floor((from < to ? to : from) + 0.5) + thick;
  const top = x * (height + 1);
  changes[top + (low < 0 ? 0 : low > height ? height : low)]! += 1;
  changes[top + (end < 0 ? 0 : end > height ? height : end)]! -= 1;
}

function addSegment(changes: Int32Array, width: number, height: number, thick: number, left: number, from: number, right: number, to: number): void {
  if (right < 0 || left >= width) return;
  const first = left < 0 ? 0 : Math.floor(left);
  const last = right > width ? width : Math.floor(right);
  if (last <= first) {
    addColumn(changes, width, height, first, from, to, thick);
    return;
  }
  const slope = (to - from) / (right - left);
  let begin = from + (first > left ? first - left : 0) * slope;
  for (let x = first; x < last; x += 1) {
    const end = x + 1 < right ? from + (x + 1 - left) * slope : to;
    addColumn(changes, width, height, x, begin, end, thick);
    begin = end;
  }
}

/** Return the index of the series nearest to `y` within `most` pixels, else null. */
export function nearestLine(rows: readonly Row[], column: number, y: number, place: (value: number) => number, most: number): number | null {
  let [found, least]: [number | null, number] = [null, most];
  rows.forEach((row, at) => {
    const distance = Math.abs(place(row[column] ?? Number.NaN) - y);
    if (distance < least) [found, least] = [at, distance];
  });
  return found;
}
