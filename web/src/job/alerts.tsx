// Pending and firing alerts about the job, with the silences that cover them.
import { type Schemas, address } from "../api/client";
import type { Mark } from "../charts/axis";
import { type ReadState, useReadEvery } from "../parts/hooks";
import { memo } from "../parts/memo";
import { Moment } from "../parts/elements";
import { type Alert, groupAlerts, levelOf, silenceCommand } from "./alert-groups";
import { Covered, NewSilence, type SilencedJob } from "./silences";

type Found = Schemas["JobAlerts"];

const AGAIN = 30_000;

/** Poll the alerts of a job. */
export const useAlerts = (job: SilencedJob, due: boolean): ReadState<Found> =>
  useReadEvery<Found>(due ? address("/api/jobmeter/v1/jobs/{job}/alerts", { job: job.id }, { project: job.project }) : null, AGAIN);

/** List of alerts. A click marks the time of an alert on every chart. Empty without alerts. */
export const Alerts = memo(function Alerts(given: { found: Found | null; reload: () => void; job: SilencedJob; writer: boolean; chosen: Mark | null; choose: (mark: Mark | null) => void }) {
  const { found, reload, job, writer, chosen, choose } = given;
  if (!found?.total) return null;
  const row = (one: Alert) => <Row one={one} chosen={chosen?.key === one.fingerprint} choose={choose} />;
  return (
    <section class="findings" id="alerts" aria-label="Alerts">
      <ol>
        {groupAlerts(found.alerts).map(([first, ...others]) => {
          const names = new Set([first, ...others].flatMap((one) => one.silences));
          return (
            <li key={first.fingerprint} class={`finding line ${levelOf(first.severity)}`}>
              {row(first)}
              {others.length > 0 && (
                <details>
                  <summary>{others.length} more of this rule</summary>
                  {others.map((one) => (
                    <div key={one.fingerprint}>{row(one)}</div>
                  ))}
                </details>
              )}
              {found.silences.map((one) => names.has(one.id) && <Covered key={one.id} job={job} silence={one} writer={writer} reload={reload} />)}
              <details>
                <summary>{first.description ? "More" : "Silence"}</summary>
                <div>
                  {first.description && <p>{first.description}</p>}
                  {writer && <NewSilence job={job} alert={first.name} reload={reload} />}
                  <p>In a terminal, for two hours:</p>
                  <code>{silenceCommand(first.name, job.id)}</code>
                </div>
              </details>
            </li>
          );
        })}
      </ol>
      {found.total > found.alerts.length && <p class="hint">{found.total - found.alerts.length} more alerts are not listed.</p>}
    </section>
  );
});

function Row({ one, chosen, choose }: { one: Alert; chosen: boolean; choose: (mark: Mark | null) => void }) {
  const mark = () => ({ start: one.start, end: Math.max(Date.now(), one.start), level: levelOf(one.severity), text: one.name, key: one.fingerprint });
  return (
      <button type="button" aria-pressed={chosen} onClick={() => choose(chosen ? null : mark())} title="Mark on every chart">
        <b>{one.summary || one.name}</b>
        <span class="severity">{one.severity} alert</span>
        <code class="rule">{one.name}</code>
        <span class="when">
          {one.state} since <Moment ms={one.start} short />
          {one.muted && ", muted"}
        </span>
      </button>
  );
}
