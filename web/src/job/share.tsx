// Links that open this job without a key: create, list, copy and revoke.
import { useState } from "preact/hooks";
import { type Job, type Schemas, BASE, address, queryText, send } from "../api/client";
import { formatDuration } from "../format";
import { useAction, useRead } from "../parts/hooks";
import { CopyButton, Moment, Problem } from "../parts/elements";

type Link = Schemas["LinkBody"];
const DAY = 86_400;
const LENGTHS = [
  [3600, "1 hour"],
  [DAY, "1 day"],
  [7 * DAY, "1 week"],
  [30 * DAY, "30 days"],
  [365 * DAY, "1 year"],
] as const;

export function Share({ job }: { job: Job }) {
  const path = { job: job.id };
  const response = useRead<Schemas["LinkList"]>(address("/api/jobmeter/v1/jobs/{job}/links", path, { project: job.project }));
  const [length, setLength] = useState(7 * DAY);
  const { busy, error, perform } = useAction();
  const base = `${BASE}/jobs/${encodeURIComponent(job.id)}/links`;
  const query = queryText({ project: job.project });
  const act = async (work: () => Promise<unknown>) => {
    if (await perform(work)) response.reload();
  };
  const make = () => act(() => send<Link>("POST", `${base}?${query}`, { expires_in: length }));
  const end = (link: Link) => act(() => send("DELETE", `${base}/${encodeURIComponent(link.id)}?${query}`));
  if (response.error) {
    const text = response.error.status === 403 ? "Your key may not share jobs. Sign in with a key of role writer or admin." : null;
    return <div class="share">{text ? <p>{text}</p> : <Problem error={response.error} reload={response.reload} />}</div>;
  }
  const links = response.data?.links ?? [];
  return (
    <section class="share" aria-label="Links to this job">
      <form
        class="line"
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        <label>
          Valid for
          <select value={String(length)} onChange={(event) => setLength(Number(event.currentTarget.value))}>
            {LENGTHS.map(([seconds, text]) => (
              <option key={seconds} value={String(seconds)}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <button type="submit" class="primary" disabled={busy}>
          Create link
        </button>
        <span class="hint">
          Anyone with the link sees this job without a key: command, labels, charts, findings, tags, notes, events and log, but nothing else.
        </span>
      </form>
      {error && <Problem error={error} />}
      {response.data && !links.length && <p class="hint">There are no links to this job.</p>}
      <ul>
        {links.map((link) => (
          <One key={link.id} link={link} job={job} busy={busy} end={() => void end(link)} />
        ))}
      </ul>
    </section>
  );
}

function One({ link, job, busy, end }: { link: Link; job: Job; busy: boolean; end: () => void }) {
  const query = queryText({ link: link.token, job: job.id, project: job.project === "default" ? null : job.project });
  const url = `${link.public_url || location.origin}/#/open?${query}`;
  return (
    <li class="line">
      <input type="text" readOnly value={url} aria-label={`Link ${link.id}`} onFocus={(event) => event.currentTarget.select()} />
      <CopyButton text={url} />
      <span class="hint">
        valid until <Moment ms={link.expires} /> ({formatDuration(link.expires - Date.now())}), created by {link.by}
        {link.last_used === null ? ", not used yet" : ""}
      </span>
      <button type="button" disabled={busy} onClick={end} aria-label={`Revoke ${link.id}`}>
        Revoke
      </button>
    </li>
  );
}
