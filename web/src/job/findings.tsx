// What the server found out about the job: is it healthy, and why not.
import { useEffect } from "preact/hooks";
import type { Job } from "../api/client";
import { BASE, queryText } from "../api/client";
import type { Mark } from "../charts/axis";
import { ruleTitle } from "../catalog";
import { duration } from "../format";
import { memo } from "../parts/memo";
import { Advice, useRules } from "./rules";
import { useRead } from "../parts/hooks";
import { Moment, Problem } from "../parts/small";

/** So many subjects are named in the line that stands for them. */
const FEW = 4;

export interface Finding {
  rule: string;
  role: string;
  severity: "info" | "warning" | "critical";
  confidence: unknown;
  subject: { kind: string; name: string };
  start: number | null;
  end: number | null;
  evidence: unknown[];
  advice: string;
  source: string;
  sentence?: string;
  /** Those that it is about, by themselves or by a device of theirs. */
  replicas?: string[];
}

/** The replicas that findings are about, those of the worst first, and what the worst one says of each. */
export function replicasOf(found: readonly Finding[]): ReadonlyMap<string, string> {
  const named = new Map<string, string>();
  for (const one of found) {
    for (const name of one.replicas ?? []) if (!named.has(name)) named.set(name, about(one, name));
  }
  return named;
}

/** The sentence without the name that it begins with: "worker-5 (node-1, gpu0) computes at 40 %" says "computes at 40 %". */
function about(one: Finding, name: string): string {
  const text = one.sentence ?? "";
  const rest = text.startsWith(`${name} (`) ? text.slice(text.indexOf(")") + 1) : "";
  return rest.replace(/^:?\s+/, "") || ruleTitle(one.rule);
}

export const markOf = (one: Finding): Mark | null =>
  one.start === null ? null : { start: one.start, end: one.end ?? one.start, level: one.severity, text: one.rule };

export const Findings = memo(function Findings(given: { job: { id: string; project: string }; state: Job["state"]; chosen: Finding | null; choose: (one: Finding | null) => void; report: (found: readonly Finding[]) => void; settled: boolean; measured: boolean; guest: boolean; ready: boolean }) {
  const { job, chosen, choose, report } = given;
  const url = `${BASE}/jobs/${encodeURIComponent(job.id)}/findings?${queryText({ project: job.project })}`;
  const response = useRead<Finding[] | { findings: Finding[] }>(given.ready ? url : null);
  useEffect(() => {
    if (response.data) response.again();
  }, [given.state]);
  const found = response.data === null ? null : Array.isArray(response.data) ? response.data : response.data.findings;
  useEffect(() => {
    if (found) report(found);
  }, [response.data, report]);
  const rules = useRules((found ?? []).map((one) => one.advice));
  const here = new Set((found ?? []).map((one) => one.rule));
  if (response.error) {
    if (response.error.status !== 404) return <Problem error={response.error} again={response.again} />;
    return <p class="findings none">This server does not look for findings: what it measured is below.</p>;
  }
  // The line is there from the start: what comes later moves nothing below it.
  if (!found) return <p class="findings none">Looking through what was measured for what is wrong …</p>;
  if (!found.length) return <Nothing {...given} />;
  return (
    <section class="findings" aria-label="Findings">
      <ol>
        {alike(found).map(([first, ...others]) => (
          <li key={keyOf(first)} data-rule={first.rule} class={`finding ${first.severity} ${first.role}`}>
            <Named one={first} chosen={chosen === first} choose={choose} />
            <Evidence one={first} />
            <Advice text={first.advice} rules={rules} here={here} />
            {others.length > 0 && (
              <details>
                <summary>
                  The same {others.length === 1 ? "once more" : `${others.length} times more`}: {others.slice(0, FEW).map((one) => one.subject.name).join(", ")}
                  {others.length > FEW && " …"}
                </summary>
                {others.map((one) => (
                  <div key={keyOf(one)}>
                    <Named one={one} chosen={chosen === one} choose={choose} />
                    <Evidence one={one} />
                  </div>
                ))}
              </details>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
});

const keyOf = (one: Finding): string => `${one.rule} ${one.subject.name} ${one.start}`;

/** Findings of one rule with the same advice, where they follow each other, are read once. */
function alike(found: readonly Finding[]): [Finding, ...Finding[]][] {
  const groups: [Finding, ...Finding[]][] = [];
  for (const one of found) {
    const last = groups[groups.length - 1];
    const same = last && (["rule", "role", "severity", "advice"] as const).every((field) => last[0][field] === one[field]);
    if (same) last.push(one);
    else groups.push([one]);
  }
  return groups;
}

function Named({ one, chosen, choose }: { one: Finding; chosen: boolean; choose: (one: Finding | null) => void }) {
  return (
    <button type="button" aria-pressed={chosen} onClick={() => choose(chosen ? null : one)} title="Mark it on every chart">
      <b>{one.sentence || `${ruleTitle(one.rule)}: ${one.subject.name}`}</b>
      <span class="severity">{one.severity}</span>
      <code class="rule">{one.rule}</code>
      {one.start !== null && (
        <span class="when">
          {one.end !== null && one.end > one.start ? "since " : "at "}
          <Moment ms={one.start} short />
          {one.end !== null && one.end > one.start ? `, for ${duration(one.end - one.start)}` : ""}
        </span>
      )}
    </button>
  );
}

const Evidence = ({ one }: { one: Finding }) => (
  <ul>
    {one.evidence.map(evidence).map((text, at) => !one.sentence?.includes(text) && <li key={at}>{text}</li>)}
  </ul>
);

/** That no rule fired is no promise that all is well: it says what was looked at. */
function Nothing({ settled, measured, state, guest }: { settled: boolean; measured: boolean; state: Job["state"]; guest: boolean }) {
  if (state === "Queued") return <p class="findings none">Nothing to look at yet: the job has not started.</p>;
  const bound = guest ? " What the logs of its nodes say is not shown by a link." : "";
  if (!settled) return <p class="findings none">No rule fired.{bound}</p>;
  if (!measured) return <p class="findings none">No rule fired, but there are no figures to look at: whether the job was well is not known.{bound}</p>;
  return <p class={bound ? "findings none" : "findings well"}>No findings: nothing of what the rules look for was seen.{bound}</p>;
}

function evidence(piece: unknown): string {
  if (typeof piece === "string") return piece;
  if (piece === null || typeof piece !== "object") return String(piece);
  const fields = piece as Record<string, unknown>;
  if (typeof fields["text"] === "string") return fields["text"];
  if (typeof fields["message"] === "string") return fields["message"];
  return Object.entries(fields)
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : String(value)}`)
    .join(", ");
}
