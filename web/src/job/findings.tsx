// Diagnosis of the job: the worst finding is open, each other one is a line.
import { useEffect, useState } from "preact/hooks";
import type { Job, Schemas } from "../api/client";
import { BASE, address, queryText } from "../api/client";
import { formatDuration } from "../format";
import { memo } from "../parts/memo";
import { Advice, useRules } from "./rules";
import { useRead } from "../parts/hooks";
import { Moment, Problem, Sentence } from "../parts/elements";
import { type Finding, type FindingGroup, groupFindings, logPlaceOf, namesOf, isSpan } from "./finding";
import { LogEnd } from "./log-end";

/** Maximum number of subjects named in a group. */
const FEW = 4;
/** Number of lines shown before "N more". */
const SHOWN = 4;

interface Given {
  job: { id: string; project: string };
  state: Job["state"];
  /** Name of the chosen finding in the address. */
  chosen: string | null;
  choose: (name: string | null) => void;
  report: (found: readonly Finding[]) => void;
  openLog: (replica: string) => void;
  settled: boolean;
  measured: boolean;
  guest: boolean;
  ready: boolean;
}

export const Findings = memo(function Findings(given: Given) {
  const { job, report } = given;
  const url = `${BASE}/jobs/${encodeURIComponent(job.id)}/findings?${queryText({ project: job.project })}`;
  const response = useRead<Finding[]>(given.ready ? url : null);
  useEffect(() => {
    if (response.data) response.reload();
  }, [given.state]);
  const found = response.data;
  useEffect(() => {
    if (found) report(found);
  }, [response.data, report]);
  if (response.error) {
    if (response.error.status !== 404) return <Problem error={response.error} reload={response.reload} />;
    return <p class="findings none">This server does not diagnose jobs. The charts below show its measurements.</p>;
  }
  if (!found) return <StoredFinding {...given} />;
  if (!found.length) return <NoFindings {...given} />;
  return <FindingList {...given} found={found} />;
});

/** Show the worst stored finding at once, while the diagnosis runs. */
function StoredFinding({ job, guest, state }: Given) {
  const query = { id: [job.id], project: job.project, findings: "true", limit: 1 };
  const response = useRead<Schemas["JobList"]>(guest ? null : address("/api/jobmeter/v1/jobs", {}, query));
  const stored = response.data?.findings?.find((one) => one.id === job.id);
  // The line is there from the start, so that the page below does not move.
  const hint = "Searching the measurements for problems …";
  if (!stored) return <p class="findings none">{hint}</p>;
  return (
    <section class={`findings soon ${state.toLowerCase()}`} aria-label="Findings">
      <p class={`finding stored ${stored.severity}`}>
        <b>{stored.sentence}</b> <span class="severity">{stored.severity}</span>{" "}
        {stored.start !== null && (
          <span class="when">
            since <Moment ms={stored.start} short />
          </span>
        )}
      </p>
      <p class="hint">{hint}</p>
    </section>
  );
}

function FindingList(given: Given & { found: readonly Finding[] }) {
  const { found, choose, job, state } = given;
  const [all, setAll] = useState(false);
  const [sought, setSought] = useState<string | null>(null);
  const rules = useRules(found.map((one) => one.advice));
  const names = namesOf(found);
  const chosen = found.find((one) => names.get(one) === given.chosen) ?? null;
  const groups = groupFindings(found);
  const open = groups.find((group) => chosen && group.includes(chosen)) ?? groups[0]!;
  const few = all || groups.length <= SHOWN + 1 ? groups : groups.filter((group, at) => at < SHOWN || group === open);
  useEffect(() => {
    // Scroll to the finding whose rule was clicked in an advice.
    const button = sought && document.querySelector<HTMLElement>(`[data-rule="${sought}"] button`);
    if (!button) return;
    button.scrollIntoView({ block: "nearest" });
    button.focus({ preventScroll: true });
    setSought(null);
  }, [sought, chosen]);
  const show = (rule: string) => {
    setSought(rule);
    choose(names.get(found.find((one) => one.rule === rule)!)!);
  };
  const here = new Set(found.map((one) => one.rule));
  const named = (one: Finding) => <FindingLine one={one} chosen={one === chosen} choose={() => choose(one === chosen ? null : names.get(one)!)} />;
  return (
    <section class="findings" aria-label="Findings">
      <ol>
        {few.map((group) => {
          const [first, ...others] = group;
          const isOpen = group === open;
          return (
            <li key={names.get(first)} data-rule={first.rule} class={`finding ${first.severity} ${first.role} ${isOpen ? "open" : "line"}`}>
              {named(first)}
              {isOpen && (
                <>
                  <Evidence one={first} withLog={state !== "Failed"} />
                  <Advice text={first.advice} rules={rules} here={here} show={show} />
                  {state === "Failed" && <LogEnd key={names.get(first)} job={job} place={logPlaceOf(first, found)} open={given.openLog} />}
                </>
              )}
              {others.length > 0 && (isOpen ? <Others others={others} named={named} isOpen={others.some((one) => one === chosen)} /> : <small>{countSimilar(group)}</small>)}
            </li>
          );
        })}
      </ol>
      {few.length < groups.length && (
        <button type="button" class="link" aria-expanded="false" onClick={() => setAll(true)}>
          {groups.length - few.length} more
        </button>
      )}
    </section>
  );
}

/** Return the replica of a finding, or its subject if it has none or several. */
const subjectOf = (one: Finding): string => (one.replicas.length === 1 ? one.replicas[0]! : one.subject.name);

const countSimilar = (group: FindingGroup): string => `and ${group.length - 1} similar`;

function Others({ others, named, isOpen }: { others: readonly Finding[]; named: (one: Finding) => preact.JSX.Element; isOpen: boolean }) {
  return (
    <details open={isOpen}>
      <summary>
        Also{others.length > 1 && ` (${others.length})`}: {others.slice(0, FEW).map(subjectOf).join(", ")}
        {others.length > FEW && " …"}
      </summary>
      {others.map((one, at) => (
        <div key={at}>
          {named(one)}
          <Evidence one={one} withLog />
        </div>
      ))}
    </details>
  );
}

function FindingLine({ one, chosen, choose }: { one: Finding; chosen: boolean; choose: () => void }) {
  return (
    <button type="button" aria-pressed={chosen} onClick={choose} title="Mark on every chart">
      <b>
        <Sentence text={one.sentence} />
      </b>
      <span class="severity">{one.severity}</span>
      <code class="rule">{one.rule}</code>
      <span class="when">
        {isSpan(one) ? "since " : "at "}
        <Moment ms={one.start} short />
        {isSpan(one) ? `, for ${formatDuration(one.end - one.start)}` : ""}
      </span>
    </button>
  );
}

/** Evidence of a finding. Log lines are left out if the end of the log is shown below. */
const Evidence = ({ one, withLog }: { one: Finding; withLog: boolean }) => (
  <ul>
    {one.evidence.map(({ kind, text }, at) => !one.sentence.includes(text) && (withLog || kind !== "log") && <li key={at}>{text}</li>)}
  </ul>
);

/** Say what was checked: no finding does not prove that all is well. */
function NoFindings(given: Given) {
  const { settled, measured, state, guest } = given;
  if (state === "Queued") return <p class="findings none">No findings yet: the job has not started.</p>;
  const bound = guest ? " A link shows no findings from the logs of nodes." : "";
  const end = state === "Failed" && <LogEnd job={given.job} place={logPlaceOf(null, [])} open={given.openLog} />;
  const text = !settled
    ? "No rule fired."
    : !measured
      ? "No rule fired, but nothing was measured: it is unknown if the job had problems."
      : "No findings: the rules found no problem.";
  return (
    <>
      <p class={settled && measured && !bound ? "findings well" : "findings none"}>
        {text}
        {bound}
      </p>
      {end}
    </>
  );
}
