// What the server found out about the job: is it healthy, and why not.
import { useEffect } from "preact/hooks";
import type { Job } from "../api/client";
import { BASE, queryText } from "../api/client";
import type { Mark } from "../charts/axis";
import { duration } from "../format";
import { useRead } from "../parts/hooks";
import { Moment } from "../parts/small";

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
}

export const markOf = (one: Finding): Mark | null =>
  one.start === null ? null : { start: one.start, end: one.end ?? one.start, level: one.severity, text: one.rule };

const spoken = (rule: string): string => {
  const text = rule.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
};

export function Findings(given: { job: { id: string; project: string }; state: Job["state"]; chosen: Finding | null; choose: (one: Finding | null) => void }) {
  const { job, chosen, choose } = given;
  const url = `${BASE}/jobs/${encodeURIComponent(job.id)}/findings?${queryText({ project: job.project })}`;
  const asked = useRead<Finding[] | { findings: Finding[] }>(url);
  useEffect(() => {
    if (asked.data) asked.again();
  }, [given.state]);
  const found = asked.data === null ? null : Array.isArray(asked.data) ? asked.data : asked.data.findings;
  if (asked.error) {
    const text = asked.error.status === 404 ? "This server does not look for findings: what it measured is below." : asked.error.message;
    return <p class="findings none">{text}</p>;
  }
  if (!found) return null;
  if (!found.length) return <p class="findings well">No findings: nothing of what the rules look for was seen.</p>;
  return (
    <section class="findings" aria-label="Findings">
      <ol>
        {found.map((one) => (
          <li key={`${one.rule} ${one.subject.name} ${one.start}`} class={`finding ${one.severity} ${one.role}`}>
            <button type="button" aria-pressed={chosen === one} onClick={() => choose(chosen === one ? null : one)}>
              <b>{spoken(one.rule)}</b>
              <span class="subject">{one.subject.name}</span>
              <span class="severity">{one.severity}</span>
              {one.start !== null && (
                <span class="when">
                  <Moment ms={one.start} short />
                  {one.end !== null && one.end > one.start ? `, ${duration(one.end - one.start)}` : ""}
                </span>
              )}
            </button>
            <p>{one.advice}</p>
            <ul>
              {one.evidence.map((piece, at) => (
                <li key={at}>{evidence(piece)}</li>
              ))}
            </ul>
          </li>
        ))}
      </ol>
    </section>
  );
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
