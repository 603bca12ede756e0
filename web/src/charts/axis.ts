// One time axis for everything on a page: the range that is shown, and the moment that the pointer is at.
export interface Range {
  start: number;
  end: number;
}

/** A span or a moment that is marked on every chart. */
export interface Mark extends Range {
  level: "info" | "warning" | "critical";
  text: string;
  /** What tells it from others, where text and time do not. */
  key?: string;
  /** Marked with a flag on the time axis: somebody wrote about the moment. */
  flag?: boolean;
}

const MINUTE = 60_000;
const STEPS = [1000, 5000, 15_000, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE, 180 * MINUTE, 360 * MINUTE, 720 * MINUTE, 1440 * MINUTE, 10_080 * MINUTE];

/** Round moments of a range in the zone that is shown, at most so many. */
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

/** The moment that the pointer is at, sent to every chart without drawing the page again. */
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
