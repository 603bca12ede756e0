// What the processes wrote: newest at the end, followed while the job runs, searched by the server.
import { useEffect, useRef, useState } from "preact/hooks";
import { type LogLine, type Schemas, Refusal, address, follow, read } from "../api/client";
import type { Cursor, Mark, Range } from "../charts/axis";
import { parts } from "../format";
import { useAgain, useNewest, useRested } from "../parts/hooks";
import { Follow, LogTools } from "../parts/log-tools";
import { Problem, Section } from "../parts/small";

const PAGE = 200;
const MOST = 5_000;
/** Lines of an update, at most. */
const UPDATE = 500;
type LogList = Schemas["LogList"];

export function Logs(given: { job: { id: string; project: string }; range: Range | null; running: boolean; replica: string | null; cursor: Cursor; chosen: Mark | null; choose: (mark: Mark | null) => void; ready: boolean }) {
  const { job, range, running, replica, cursor, chosen, choose, ready } = given;
  const [text, setText] = useState("");
  const [level, setLevel] = useState("");
  const [following, setFollowing] = useState(true);
  const [lines, setLines] = useState<LogLine[] | null>(null);
  const [more, setMore] = useState(false);
  const { box, onScroll, toEnd } = useNewest(lines, following);
  const [error, setError] = useState<Refusal | null>(null);
  const [turn, setTurn] = useState(0);
  const again = () => setTurn((now) => now + 1);
  useAgain(error, again);
  const contains = useRested(text.trim(), 200);
  const [shownFor, setShownFor] = useState("");
  const question = [job.id, job.project, contains, level, replica, range?.start, range?.end].join("\u0000");
  const held = useRef<LogLine[]>([]);
  const base = {
    project: job.project,
    contains,
    level: level || null,
    replica: replica ? [replica] : [],
  };
  const ask = (query: Record<string, string | number | null>, signal?: AbortSignal) =>
    read<LogList>(address("/api/jobmeter/v1/jobs/{job}/logs", { job: job.id }, { ...base, ...query, limit: PAGE }), signal);
  const keep = (next: LogLine[]) => {
    held.current = next.slice(-MOST);
    setLines(held.current);
  };

  useEffect(() => {
    if (!ready) return;
    const gone = new AbortController();
    const bounds = { start: range ? Math.floor(range.start) : null, end: range ? Math.ceil(range.end) : null };
    ask({ ...bounds, order: "desc" }, gone.signal).then(
      (page) => {
        keep([...page.lines].reverse());
        setShownFor(question);
        setMore(page.lines.length === PAGE);
        setError(null);
      },
      (problem: unknown) => {
        if (!(problem instanceof Refusal)) return;
        // Lines that another question found are none of this one.
        setLines(null);
        setError(problem);
      },
    );
    return () => gone.abort();
  }, [ready, job.id, job.project, contains, level, replica, range?.start, range?.end, turn]);

  useEffect(() => {
    if (!running || !following || range || shownFor !== question) return;
    const take = (update: LogList) => {
      const before = new Set(held.current.map(keyOf));
      const first = held.current[0]?.time_ns ?? "";
      const fresh = update.lines.filter((line) => line.time_ns >= first && !before.has(keyOf(line)));
      // More came than an update holds: what lies between is asked for.
      if (fresh.length >= UPDATE) again();
      else if (fresh.length) keep([...held.current, ...fresh].sort(inTime));
    };
    return follow<LogList>(address("/api/jobmeter/v1/jobs/{job}/logs/live", { job: job.id }, base), take, () => null);
  }, [running, following, shownFor, question]);

  const earlier = async () => {
    const first = held.current[0];
    if (!first) return;
    const page = await ask({ end: first.time + 1, start: range ? Math.floor(range.start) : null, order: "desc" });
    const known = new Set(held.current.slice(0, PAGE).map(keyOf));
    const fresh = page.lines.filter((line) => !known.has(keyOf(line))).reverse();
    setFollowing(false);
    setMore(fresh.length > 0 && page.lines.length === PAGE);
    keep([...fresh, ...held.current].slice(0, MOST));
  };
  const several = new Set(lines?.map((line) => line.replica)).size > 1;
  const narrowed = Boolean(contains || level || replica || range);
  const aside = (
    <LogTools of="the log" text={text} level={level} setText={setText} setLevel={setLevel}>
      {running && !range && <Follow following={following} setFollowing={setFollowing} toEnd={toEnd} />}
    </LogTools>
  );
  return (
    <Section id="logs" title={replica ? `Log of ${replica}` : "Log"} aside={aside}>
      {error && <Problem error={error} again={again} />}
      {lines && !lines.length && <p class="hint">{narrowed ? "No line matches." : "No line was stored. jobmeter run stores what its command writes; others push lines to the API."}</p>}
      {lines && lines.length > 0 && (
        <div class="log" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-label="Log lines" aria-live="off">
          {more && (
            <button type="button" onClick={() => void earlier()}>
              Earlier lines
            </button>
          )}
          {lines.map((line) => (
            <div key={keyOf(line)} class={`line ${line.level ?? ""} ${line.stream === "stderr" ? "stderr" : ""} ${chosen?.key === keyOf(line) ? "marked" : ""}`} onPointerEnter={() => cursor.move(line.time, null)}>
              <time>
                <button
                  type="button"
                  class="link"
                  aria-pressed={chosen?.key === keyOf(line)}
                  aria-label={`Mark ${parts(line.time).time} on every chart`}
                  onClick={() => choose(chosen?.key === keyOf(line) ? null : markOf(line))}
                >
                  {parts(line.time).time}
                </button>
              </time>
              {several && <span class="where">{line.replica}</span>}
              <span class="text">{marked(line.text, contains)}</span>
            </div>
          ))}
        </div>
      )}
    </Section>
  );
}

const markOf = (line: LogLine): Mark => ({
  start: line.time,
  end: line.time,
  level: line.level === "error" ? "critical" : line.level === "warning" ? "warning" : "info",
  text: line.text,
  key: keyOf(line),
});

/** Nanoseconds are texts of one length. */
const inTime = (a: LogLine, b: LogLine): number => (a.time_ns < b.time_ns ? -1 : a.time_ns > b.time_ns ? 1 : 0);

const keyOf = (line: LogLine): string => `${line.time_ns} ${line.replica} ${line.attempt} ${line.stream} ${line.text}`;

/** The text with what was searched for marked. */
function marked(text: string, wanted: string) {
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
