// Findings of all jobs: open ones, worst first, or recent ones, newest first.
import { useEffect, useState } from "preact/hooks";
import { type Schemas, address } from "../api/client";
import { ruleTitle } from "../catalog";
import { useReadEvery, useZone } from "../parts/hooks";
import { Choice, Notice, Problem, Sentence, Severity, State, renderTime } from "../parts/elements";
import { mergeQuery, go, href, jobHref } from "../router";

type Entry = Schemas["FindingEntry"];

const PAGE = 100;
/** Polling interval of open findings, in milliseconds. */
const EVERY = 10_000;
const SHOWN = [
  ["open", "Open now"],
  ["24h", "Last day"],
  ["7d", "Last week"],
  ["30d", "Last month"],
] as const;
type Shown = (typeof SHOWN)[number][0];
const SEVERITIES = [
  ["", "All"],
  ["critical", "Critical"],
  ["warning", "Warning"],
  ["info", "Info"],
] as const;

export function FindingsPage({ query }: { query: URLSearchParams }) {
  useZone();
  const shown: Shown = SHOWN.find(([name]) => name === query.get("show"))?.[0] ?? "open";
  const severity = SEVERITIES.find(([name]) => name === query.get("severity"))?.[0] ?? "";
  const rule = query.get("finding") ?? "";
  const [count, setCount] = useState(PAGE);
  useEffect(() => setCount(PAGE), [shown, severity, rule]);
  const range = shown === "open" ? { open: "true" } : { since: shown };
  const url = address("/api/jobmeter/v1/findings", {}, { ...range, severity, finding: rule, limit: count });
  const { data: found, error, reload } = useReadEvery<Schemas["FindingList"]>(url, EVERY);
  const set = (values: Record<string, string | null>) => go(href(["findings"], mergeQuery(query, values)), true);
  const counts = (of: string) => found?.findings.filter((one) => one.severity === of).length ?? 0;
  const jobs = new Set(found?.findings.map((one) => `${one.project}/${one.job}`)).size;
  return (
    <>
      <div class="heading">
        <h1>Findings</h1>
        {found && (
          <p class="figures" aria-live="polite">
            <b>{found.findings.length.toLocaleString("en")}</b>
            {found.more ? " shown, there are more" : ` in ${jobs.toLocaleString("en")} ${jobs === 1 ? "job" : "jobs"}`}
            {counts("critical") > 0 && (
              <>
                , <b class="lost">{counts("critical")} critical</b>
              </>
            )}
          </p>
        )}
      </div>
      <div class="filters">
        <div class="first">
          <Choice label="When" value={shown} options={SHOWN} choose={(value) => set({ show: value === "open" ? null : value })} />
          <Choice label="Severity" value={severity} options={SEVERITIES} choose={(value) => set({ severity: value })} />
          {rule && (
            <button type="button" aria-label={`Remove filter: ${ruleTitle(rule)}`} onClick={() => set({ finding: null })}>
              {ruleTitle(rule)} <span aria-hidden="true">×</span>
            </button>
          )}
        </div>
      </div>
      {error && <Problem error={error} reload={reload} />}
      {found && !found.findings.length && !error && <EmptyFindings shown={shown} narrowed={severity !== "" || rule !== ""} />}
      {found && found.findings.length > 0 && <Table found={found.findings} only={(name) => set({ finding: name })} open={shown === "open"} />}
      {found?.more && (
        <button type="button" onClick={() => setCount(Math.min(count + 4 * PAGE, 1000))} disabled={count >= 1000}>
          {count >= 1000 ? "For more, run jobmeter findings --json" : "Show more"}
        </button>
      )}
    </>
  );
}

function EmptyFindings({ shown, narrowed }: { shown: Shown; narrowed: boolean }) {
  return (
    <Notice title={shown === "open" ? (narrowed ? "No open findings match." : "No open findings.") : "No findings in this time."}>
      <p>{narrowed ? "Choose another severity or rule to see others." : "The rules check running jobs, and each job once more after its end."}</p>
    </Notice>
  );
}

/** Table of findings. Ended jobs show their state; running jobs show if the finding is open. */
function Table({ found, only, open }: { found: readonly Entry[]; only: (rule: string) => void; open: boolean }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Findings of all jobs">
      <table class="foundtable">
        <thead>
          <tr>
            <th scope="col">Finding</th>
            <th scope="col">Job</th>
            <th scope="col">User</th>
            {!open && <th scope="col">State</th>}
            <th scope="col">Since</th>
            <th scope="col">Rule</th>
          </tr>
        </thead>
        <tbody>
          {found.map((one) => (
            <tr key={`${one.project} ${one.job} ${one.rule} ${one.time} ${one.sentence}`}>
              <th scope="row">
                <Severity severity={one.severity} passed={!open && !one.open && one.state === "Running"}>
                  <Sentence text={one.sentence || ruleTitle(one.rule)} />
                </Severity>
              </th>
              <td>
                <a href={jobHref({ id: one.job, project: one.project })} data-step>
                  {one.name || one.job}
                </a>
              </td>
              <td>{one.user && <a href={href([], { user: one.user })}>{one.user}</a>}</td>
              {!open && (
                <td>
                  <State state={one.state} />
                </td>
              )}
              <td>{renderTime(one.start, "brief")}</td>
              <td>
                <button type="button" class="link" title="Only findings of this rule" onClick={() => only(one.rule)}>
                  {ruleTitle(one.rule)}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
