import { useState } from "preact/hooks";
import { type JobEvent, type Schemas, address } from "../api/client";
import type { Cursor, Mark, Range } from "../charts/axis";
import { compareNatural } from "../format";
import { useRead } from "../parts/hooks";
import { memo } from "../parts/memo";
import { Choice, Moment, Problem, Section, Sentence } from "../parts/elements";

const PAGE = 100;
/** Number of replicas from which on equal events share a row. */
const GROUP_FROM = 4;

/** List of events, newest last. A click marks the time of an event on every chart. */
export const Events = memo(function Events(given: {
  job: { id: string; project: string };
  range: Range | null;
  turn: number;
  chosen: Mark | null;
  choose: (mark: Mark | null) => void;
  cursor: Cursor;
  ready: boolean;
}) {
  const { job, range, chosen, choose, cursor } = given;
  const [level, setLevel] = useState<"debug" | "warning">("debug");
  const [limit, setLimit] = useState(PAGE);
  const query = {
    project: job.project,
    level: level === "debug" ? null : level,
    start: range ? Math.floor(range.start) : null,
    end: range ? Math.ceil(range.end) : null,
    order: "desc",
    limit,
  };
  // `turn` changes with the job's record, because there may be new events.
  const url = `${address("/api/jobmeter/v1/jobs/{job}/events", { job: job.id }, query)}`;
  const response = useRead<Schemas["JobEvents"]>(given.ready ? `${url}#${given.turn}` : null);
  const events = [...(response.data?.events ?? [])].reverse();
  const total = response.data?.total ?? 0;
  const aside = (
    <Choice
      label="Level of events"
      value={level}
      options={[
        ["debug", "All"],
        ["warning", "Warnings"],
      ]}
      choose={setLevel}
    />
  );
  return (
    <Section id="events" title={total ? `${total} ${total === 1 ? "event" : "events"}` : "Events"} aside={aside}>
      {response.error && <Problem error={response.error} reload={response.reload} />}
      {response.data && !events.length && <p class="hint">{range ? "No events in this range." : "No events yet. Agents, schedulers and rules report them."}</p>}
      {total > events.length && (
        <button type="button" onClick={() => setLimit(Math.min(limit + 400, 1000))} disabled={limit >= 1000}>
          Earlier events ({total - events.length})
        </button>
      )}
      <ol class="events" tabIndex={0} aria-label="List of events">
        {groupEvents(events).map(([event, ...others], at) => {
          const mark = markOf(event);
          const same = chosen !== null && chosen.start === mark.start && chosen.text === mark.text;
          return (
            <li key={`${event.time} ${at}`} class={event.level} onPointerEnter={() => cursor.move(event.time, null)} onPointerLeave={() => cursor.move(null, null)}>
              <button type="button" class="link" aria-pressed={same} onClick={() => choose(same ? null : mark)}>
                <Moment ms={event.time} short />
              </button>
              <span class="level">{event.level}</span>
              <b>{event.reason}</b>
              {others.length ? <Where events={[event, ...others]} /> : <span class="where">{placeOf(event)}</span>}
              <span class="text" title={event.message}>
                <Sentence text={textOf(event)} />
              </span>
            </li>
          );
        })}
      </ol>
    </Section>
  );
});

/** Text of a finding's event: "rule (subject): sentence (since 2026-11-27T12:00:00Z)". */
const FINDING = /^\w+ \([^)]*\): (.*?)(?: \(since [-:\dTZ]+\))?$/;

/** Return the text of an event. For findings this is the sentence, because the row already shows time and replica. */
const textOf = ({ reason, message }: JobEvent): string => (reason === "Finding" && FINDING.exec(message)?.[1]) || message;

const placeOf = (event: JobEvent): string => [event.replica, event.node].filter(Boolean).join(" on ");

/** Group equal events of many replicas at one time. */
function groupEvents(events: readonly JobEvent[]): [JobEvent, ...JobEvent[]][] {
  const groups: [JobEvent, ...JobEvent[]][] = [];
  for (const event of events) {
    const last = groups[groups.length - 1];
    const same = last?.[0].replica && event.replica && (["time", "reason", "level", "message"] as const).every((field) => last[0][field] === event[field]);
    if (last && same) last.push(event);
    else groups.push([event]);
  }
  return groups.flatMap((group): [JobEvent, ...JobEvent[]][] => (group.length < GROUP_FROM ? group.map((one): [JobEvent] => [one]) : [group]));
}

function Where({ events }: { events: readonly JobEvent[] }) {
  const names = [...events].sort((a, b) => compareNatural(a.replica, b.replica));
  return (
    <details class="where">
      <summary>
        {new Set(names.map((one) => one.replica)).size} replicas, {names[0]?.replica} to {names[names.length - 1]?.replica}
      </summary>
      {names.map(placeOf).join(", ")}
    </details>
  );
}

const markOf = (event: JobEvent): Mark => ({
  start: event.time,
  end: event.time,
  level: event.level === "error" ? "critical" : event.level === "warning" ? "warning" : "info",
  text: event.reason,
});
