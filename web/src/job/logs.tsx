// Log of the job: newest lines at the end, followed while the job runs, searched by the server.
import { useState } from "preact/hooks";
import { type LogLine, address } from "../api/client";
import type { Cursor, Mark, Range } from "../charts/axis";
import { splitTime } from "../format";
import { useScrollToEnd, useDebounced, useZone } from "../parts/hooks";
import { memo } from "../parts/memo";
import { keyOf, useLog } from "../parts/log";
import { LogLines } from "../parts/log-lines";
import { Follow, LogTools, searchOf } from "../parts/log-tools";
import { Problem, Section } from "../parts/elements";

export const Logs = memo(function Logs(given: { job: { id: string; project: string }; range: Range | null; running: boolean; replica: string | null; cursor: Cursor; chosen: Mark | null; choose: (mark: Mark | null) => void; ready: boolean }) {
  useZone();
  const { job, range, running, replica, cursor, chosen, choose, ready } = given;
  const [text, setText] = useState("");
  const [level, setLevel] = useState("");
  const [following, setFollowing] = useState(true);
  const searched = useDebounced(text.trim(), 200);
  const asked = searchOf(searched);
  const search = { project: job.project, ...asked, level: level || null, replica: replica ? [replica] : [] };
  const log = useLog({
    page: (query) => address("/api/jobmeter/v1/jobs/{job}/logs", { job: job.id }, { ...search, ...query }),
    live: running && following && !range ? address("/api/jobmeter/v1/jobs/{job}/logs/live", { job: job.id }, search) : null,
    start: range && Math.floor(range.start),
    end: range && Math.ceil(range.end),
    ready,
  });
  const { lines } = log;
  const box = useScrollToEnd(lines, following);
  const several = new Set(lines?.map((line) => line.replica)).size > 1;
  const narrowed = Boolean(searched || level || replica || range);
  const aside = (
    <LogTools of="the log" text={text} level={level} setText={setText} setLevel={setLevel}>
      {running && !range && <Follow following={following} setFollowing={setFollowing} toEnd={box.toEnd} />}
    </LogTools>
  );
  return (
    <Section id="logs" title={replica ? `Log of ${replica}` : "Log"} aside={aside}>
      {log.error && <Problem error={log.error} reload={log.reload} />}
      {lines && !lines.length && <p class="hint">{narrowed ? "No lines match." : "No log lines are stored for this job. jobmeter run stores the output of its command; other programs push lines to the API."}</p>}
      {lines && lines.length > 0 && (
        <LogLines
          log={log}
          name="Log lines"
          box={box}
          pause={() => setFollowing(false)}
          line={(line, key) => (
            <div class={`line ${line.level ?? ""} ${line.stream === "stderr" ? "stderr" : ""} ${chosen?.key === key ? "marked" : ""}`} onPointerEnter={() => cursor.move(line.time, null)}>
              <time>
                <button
                  type="button"
                  class="link"
                  aria-pressed={chosen?.key === key}
                  aria-label={`Mark ${splitTime(line.time).time} on every chart`}
                  onClick={() => choose(chosen?.key === key ? null : markOf(line))}
                >
                  {splitTime(line.time).time}
                </button>
              </time>
              {several && <span class="where">{line.replica}</span>}
              <span class="text">{highlight(line.text, asked.contains ?? "")}</span>
            </div>
          )}
        />
      )}
    </Section>
  );
});

const markOf = (line: LogLine): Mark => ({
  start: line.time,
  end: line.time,
  level: line.level === "error" ? "critical" : line.level === "warning" ? "warning" : "info",
  text: line.text,
  key: keyOf(line),
});

/** Highlight the search text. */
function highlight(text: string, wanted: string) {
  if (!wanted) return text;
  const pieces = [];
  const low = text.toLowerCase();
  const find = wanted.toLowerCase();
  let at = 0;
  for (let hit = low.indexOf(find); hit >= 0 && low.length === text.length; hit = low.indexOf(find, at)) {
    pieces.push(text.slice(at, hit), <mark key={hit}>{text.slice(hit, hit + find.length)}</mark>);
    at = hit + find.length;
  }
  pieces.push(text.slice(at));
  return pieces;
}
