// Retention of each project's samples by level: every reading, minutes, hours.
import { useState } from "preact/hooks";
import { BASE, type Schemas, address, send } from "../api/client";
import { useAction, useRead } from "../parts/hooks";
import { Problem } from "../parts/elements";
import { Confirm } from "./confirm";
import { AccessProblem, type Who } from "./page";

type Row = Schemas["ProjectRetention"];
const LEVELS = [
  ["raw_days", "Every reading"],
  ["minute_days", "Minutes"],
  ["hour_days", "Hours"],
] as const;

export function RetentionPage({ who }: { who: Who }) {
  const response = useRead<Schemas["RetentionList"]>(address("/api/jobmeter/v1/retention", {}, { project: who.project }));
  const { error, perform } = useAction();
  const [saved, setSaved] = useState("");
  if (response.error) return <AccessProblem error={response.error} who="how long samples are stored" reload={response.reload} />;
  const found = response.data;
  if (!found) return null;
  const change = async (project: string, body: unknown) => {
    setSaved("");
    const url = `${BASE}/projects/${encodeURIComponent(project)}/retention`;
    const done = await perform(() => send(body === null ? "DELETE" : "PUT", url, body ?? undefined));
    if (done) setSaved(body === null ? `Project ${project} uses the server’s retention again.` : `Saved: project ${project} has its own retention.`);
    response.reload();
  };
  return (
    <section aria-label="Retention">
      <p class="hint">
        The server stores every reading for {found.raw_days} days, minute values for {found.minute_days} and hour values for {found.hour_days}. Summaries of jobs
        are never deleted. A change affects new samples only: stored samples keep the retention with which they arrived.
      </p>
      {error && <Problem error={error} />}
      <p role="status" class="findings well">
        {saved}
      </p>
      {!found.projects.length && <p class="hint">No projects yet. The first sample of a job or node creates one.</p>}
      {found.projects.map((row) => (
        <Project key={`${row.project} ${row.raw_days} ${row.minute_days} ${row.hour_days}`} row={row} change={change} />
      ))}
    </section>
  );
}

function Project({ row, change }: { row: Row; change: (project: string, body: unknown) => Promise<void> }) {
  const [days, setDays] = useState({ raw_days: row.raw_days, minute_days: row.minute_days, hour_days: row.hour_days });
  const changed = LEVELS.some(([name]) => days[name] !== row[name]);
  const shorter = LEVELS.some(([name]) => days[name] < row[name]);
  const save = () => void change(row.project, days);
  return (
    <form
      class="make project"
      aria-label={`Retention of ${row.project}`}
      onSubmit={(event) => {
        event.preventDefault();
        if (changed && !shorter) save();
      }}
    >
      <b class="who-is">{row.project}</b>
      {LEVELS.map(([name, text]) => (
        <label key={name}>
          {text}, days
          <input type="number" min={1} max={36_500} required value={days[name]} onInput={(event) => setDays({ ...days, [name]: Math.round(event.currentTarget.valueAsNumber) || 1 })} />
        </label>
      ))}
      {changed && !shorter && (
        <button type="submit" class="primary">
          Save
        </button>
      )}
      {changed && shorter && <Confirm text="Save" name={row.project} sure="Shorten retention" act={save} />}
      {!changed && row.own && (
        <button type="button" onClick={() => void change(row.project, null)}>
          Use the server’s default
        </button>
      )}
      {!changed && !row.own && <span class="none">the server’s default</span>}
    </form>
  );
}
