import type { Mark, Range } from "../charts/axis";
import { formatDuration, formatTime } from "../format";

const LEAST = 60_000;

/** Show what is marked on every chart, with a button that zooms to it. */
export function Marked(given: { marks: readonly Mark[]; range: Range; whole: Range; brush: (range: Range) => void; clear: () => void }) {
  const { marks, range, whole, brush, clear } = given;
  const start = Math.min(...marks.map((one) => one.start));
  const end = Math.max(...marks.map((one) => one.end));
  const outside = end < range.start || start > range.end;
  // A single moment has no length, so some time around it is shown.
  const around = Math.max((end - start) * 0.25, LEAST);
  const zoom = () => brush({ start: Math.max(start - around, whole.start), end: Math.min(end + around, Math.max(whole.end, end + 1000)) });
  return (
    <p class="marked-bar" role="status">
      <b>Marked:</b> {formatTime(start, true)}
      {end > start ? `, ${formatDuration(end - start)}` : ""} {outside && <span class="hint">outside the visible range</span>}
      <button type="button" onClick={zoom}>
        Zoom to it
      </button>
      <button type="button" onClick={clear}>
        Clear
      </button>
    </p>
  );
}
