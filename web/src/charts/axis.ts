// One time axis for everything on a page: the range that is shown, and the moment that the pointer is at.
export interface Range {
  start: number;
  end: number;
}

/** A span or a moment that is marked on every chart. */
export interface Mark extends Range {
  level: "info" | "warning" | "critical";
  text: string;
}

type Tell = (time: number | null, source: object | null) => void;

/** The moment that the pointer is at, told to every chart without drawing the page again. */
export class Cursor {
  private readonly listeners = new Set<Tell>();
  time: number | null = null;

  move(time: number | null, source: object | null): void {
    if (time === this.time) return;
    this.time = time;
    this.listeners.forEach((tell) => tell(time, source));
  }

  listen(tell: Tell): () => void {
    this.listeners.add(tell);
    return () => this.listeners.delete(tell);
  }
}
