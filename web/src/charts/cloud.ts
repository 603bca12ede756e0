// Many lines as one picture: each pixel is as dark as lines go through it. A path for each of 128 lines takes twenty times as long.
/** The grey of one line; where several lie over each other it adds up as that of paths would. */
const INK = { light: [90, 100, 110, 0.18], dark: [160, 170, 180, 0.22] } as const;
const MOST = 64;
const DOT = 3;

export type Row = readonly (number | null)[];

/** Where values lie in a picture: `x` of the first column and the distance of columns, `y` of a value; pixels. */
export interface Place {
  left: number;
  apart: number;
  y: (value: number) => number;
}

/** Where a picture is put together: charts are as large as each other, and drawn one after the other. */
interface Sheet {
  canvas: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  image: ImageData;
  pixels: Uint32Array;
  counts: Uint16Array;
}
let sheet: Sheet | null = null;

/** The picture of the lines, `width` by `height` pixels; lines are as many pixels wide as `thick`. It holds until the next one. */
export function cloud(rows: readonly Row[], place: Place, width: number, height: number, thick: number, dark: boolean): HTMLCanvasElement | null {
  if (width < 1 || height < 1 || !rows.length) return null;
  if (sheet?.image.width !== width || sheet.image.height !== height) sheet = sheetOf(width, height);
  const { canvas, context, image, pixels, counts } = sheet;
  counts.fill(0);
  for (const row of rows) trace(row, place, counts, width, height, thick);
  const shades = inks(dark);
  for (let at = 0; at < counts.length; at += 1) pixels[at] = shades[Math.min(counts[at]!, MOST)]!;
  context.putImageData(image, 0, 0);
  return canvas;
}

function sheetOf(width: number, height: number): Sheet {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  return { canvas, context: canvas.getContext("2d", { willReadFrequently: true })!, image, pixels: new Uint32Array(image.data.buffer), counts: new Uint16Array(width * height) };
}

function inks(dark: boolean): Uint32Array {
  const [red, green, blue, alpha] = dark ? INK.dark : INK.light;
  return Uint32Array.from({ length: MOST + 1 }, (_, lines) => ((lines && Math.round(255 * (1 - (1 - alpha) ** lines)) << 24) | (blue << 16) | (green << 8) | red) >>> 0);
}

/** Count the pixels that one line goes through; values that are missing leave a gap, one alone is a dot. */
function trace(row: Row, place: Place, counts: Uint16Array, width: number, height: number, thick: number): void {
  const column = (x: number, from: number, to: number) => {
    if (x < 0 || x >= width) return;
    const low = Math.max(Math.round(Math.min(from, to)), 0);
    const high = Math.min(Math.round(Math.max(from, to)) + thick - 1, height - 1);
    for (let y = low; y <= high; y += 1) counts[y * width + x]! += 1;
  };
  let before: number | null = null;
  for (let at = 0; at < row.length; at += 1) {
    const value = row[at] ?? null;
    const x = place.left + at * place.apart;
    const y = value === null ? 0 : place.y(value);
    if (value !== null && before === null && (row[at + 1] ?? null) === null) {
      for (let dot = 0; dot < DOT; dot += 1) column(Math.floor(x) + dot, y, y + DOT - thick);
    }
    if (value !== null && before !== null) segment(column, x - place.apart, before, x, y, width);
    before = value === null ? null : y;
  }
}

function segment(column: (x: number, from: number, to: number) => void, left: number, from: number, right: number, to: number, width: number): void {
  const [first, last] = [Math.max(Math.floor(left), 0), Math.min(Math.floor(right), width)];
  if (last <= first) {
    column(first, from, to);
    return;
  }
  const slope = (to - from) / (right - left);
  for (let x = first; x < last; x += 1) column(x, from + Math.max(x - left, 0) * slope, from + Math.min(x + 1 - left, right - left) * slope);
}

/** The line that is nearest to a place, where one is within `most` pixels; its number. */
export function nearestLine(rows: readonly Row[], column: number, y: number, place: (value: number) => number, most: number): number | null {
  let [found, least]: [number | null, number] = [null, most];
  rows.forEach((row, at) => {
    const value = row[column] ?? null;
    const apart = value === null ? Number.POSITIVE_INFINITY : Math.abs(place(value) - y);
    if (apart < least) [found, least] = [at, apart];
  });
  return found;
}
