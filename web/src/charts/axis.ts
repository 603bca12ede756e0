// Shared time axis: the visible range, and the time under the pointer.
export interface Range {
  start: number;
  end: number;
}

/** Span or moment marked on every chart. */
export interface Mark extends Range {
  level: "info" | "warning" | "critical";
  text: string;
  /** Identity of a mark if text and time are not unique. */
  key?: string;
  /** Draw a flag on the time axis, as for notes. */
  flag?: boolean;
}

const MINUTE = 60_000;
const STEPS = [1000, 5000, 15_000, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE, 180 * MINUTE, 360 * MINUTE, 720 * MINUTE, 1440 * MINUTE, 10_080 * MINUTE];

/** Return at most about `most` round times of a range, in the chosen zone. */
export function roundTimes(range: Range, most: number, utc: boolean): number[] {
  const length = range.end - range.start;
  const step = STEPS.find((one) => length / one <= most) ?? Math.ceil(length / most);
  const shift = utc ? 0 : new Date(range.start).getTimezoneOffset() * MINUTE;
  const first = Math.ceil((range.start - shift) / step) * step + shift;
  const found: number[] = [];
  for (let at = first; at <= range.end; at += step) found.push(at);
  return found;
}

type Tell = (time: number | null, source: object | null) => void;

/** Time under the pointer, sent to every chart without rendering the page. */
export class Cursor {
  private readonly listeners = new Set<Tell>();
  time: number | null = null;

  move(time: number | null, source: object | null): void {
    if (time === this.time) return;
    this.time = time;
    this.listeners.forEach((listener) => listener(time, source));
  }

  listen(listener: Tell): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
