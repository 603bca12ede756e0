// End of a failed job's log, from the last traceback on.
import { type LogLine, type Schemas, address } from "../api/client";
import { useScrollToEnd, useRead } from "../parts/hooks";
import { keyOf } from "../parts/log";
import type { LogPlace } from "./finding";

/** Number of lines that are read. */
const READ = 80;
/** Number of lines shown if none is a traceback. */
const SHOWN = 8;
/** Milliseconds after the relevant line within which lines belong to it. */
const AFTER = 1000;
const BEGINNING = "Traceback (most recent call last)";

export function LogEnd(given: { job: { id: string; project: string }; place: LogPlace; open: (replica: string) => void }) {
  const { job, place, open } = given;
  const query = { project: job.project, replica: place.replica ? [place.replica] : [], order: "desc", limit: READ, end: place.end === null ? null : place.end + AFTER };
  const response = useRead<Schemas["LogList"]>(address("/api/jobmeter/v1/jobs/{job}/logs", { job: job.id }, query));
  const { box, onScroll } = useScrollToEnd(response.data, true);
  const lines = fromLastTraceback([...(response.data?.lines ?? [])].reverse());
  if (!lines.length) return null;
  return (
    <div class="log-end">
      <p>
        <b>{place.replica ? `End of the log of ${place.replica}` : "End of the log"}</b>{" "}
        <button type="button" class="link" onClick={() => open(place.replica)}>
          Whole log
        </button>
      </p>
      <div class="log" tabIndex={0} role="log" aria-label="End of the log" aria-live="off" ref={box} onScroll={onScroll}>
        {lines.map((line) => (
          <div key={keyOf(line)} class={`line ${line.level ?? ""}`}>
            <span class="text">{line.text}</span>
          </div>
        ))}
      </div>
    </div>
  );
}

/** Return the lines from the start of the last traceback on, else the last lines. */
function fromLastTraceback(lines: readonly LogLine[]): readonly LogLine[] {
  const at = lines.map((line) => line.text.includes(BEGINNING)).lastIndexOf(true);
  return at < 0 ? lines.slice(-SHOWN) : lines.slice(at);
}
