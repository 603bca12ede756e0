// Silences of alerts about a job, and the form for a new one. Writers may add and end them.
import { useState } from "preact/hooks";
import { type Schemas, BASE, queryText, send } from "../api/client";
import { ownUser } from "../jobs/saved";
import { useAction } from "../parts/hooks";
import { Moment, Problem } from "../parts/elements";

export interface SilencedJob {
  id: string;
  project: string;
}

const HOUR = 3600;
const LENGTHS: readonly (readonly [number, string])[] = [
  [HOUR, "1 hour"],
  [2 * HOUR, "2 hours"],
  [8 * HOUR, "8 hours"],
  [24 * HOUR, "1 day"],
  [7 * 24 * HOUR, "7 days"],
];
const LONGEST_TEXT = 1000;

/** Return a function that changes silences, with its progress and error. */
function useChange(job: SilencedJob, reload: () => void) {
  const { busy, error, perform } = useAction();
  const act = async (method: "POST" | "DELETE", path: string, body?: object) => {
    const url = `${BASE}/jobs/${encodeURIComponent(job.id)}/silences${path}?${queryText({ project: job.project })}`;
    if (await perform(() => send(method, url, body))) reload();
  };
  return { busy, error, act };
}

/** Silence that covers an alert. It can be ended here only if it covers this job alone. */
export function Covered({ job, silence, writer, reload }: { job: SilencedJob; silence: Schemas["Silence"]; writer: boolean; reload: () => void }) {
  const { busy, error, act } = useChange(job, reload);
  const own = silence.project === job.project && silence.matchers.some(({ name, value, isRegex, isEqual }) => name === "job_id" && value === job.id && !isRegex && isEqual !== false);
  return (
    <div class="silence">
      <p>
        Silenced until <Moment ms={silence.end} short /> by {silence.author}: {silence.comment}{" "}
        {writer && own && (
          <button type="button" class="link" disabled={busy} onClick={() => void act("DELETE", `/${encodeURIComponent(silence.id)}`)}>
            End the silence
          </button>
        )}
      </p>
      {error && <Problem error={error} />}
    </div>
  );
}

export function NewSilence({ job, alert, reload }: { job: SilencedJob; alert: string; reload: () => void }) {
  const { busy, error, act } = useChange(job, reload);
  const [seconds, setSeconds] = useState(2 * HOUR);
  const [author, setAuthor] = useState(ownUser);
  const [comment, setComment] = useState("");
  const valid = author.trim() !== "" && comment.trim() !== "";
  return (
    <form
      class="line"
      aria-label={`Silence ${alert}`}
      onSubmit={(event) => {
        event.preventDefault();
        if (valid) void act("POST", "", { alert, seconds, author: author.trim(), comment: comment.trim() });
      }}
    >
      <select aria-label="Length of the silence" value={seconds} onChange={(event) => setSeconds(Number(event.currentTarget.value))}>
        {LENGTHS.map(([length, text]) => (
          <option key={length} value={length}>
            {text}
          </option>
        ))}
      </select>
      <input type="text" aria-label="Your name" placeholder="Your name" size={12} maxLength={LONGEST_TEXT} value={author} onInput={(event) => setAuthor(event.currentTarget.value)} />
      <input type="text" aria-label="Reason" placeholder="Reason" size={30} maxLength={LONGEST_TEXT} value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
      <button type="submit" class="primary" disabled={busy || !valid}>
        Silence
      </button>
      {error && <Problem error={error} />}
    </form>
  );
}
