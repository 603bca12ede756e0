// Order of a job's alerts, and the command that silences them.
import type { Schemas } from "../api/client";
import type { Mark } from "../charts/axis";
import { quoteForShell } from "../format";

export type Alert = Schemas["JobAlert"];

const LEVELS: readonly Mark["level"][] = ["critical", "warning", "info"];
const CRITICAL = new Set(["critical", "page", "error"]);
const SAFE = /^[\w.:@=-]+$/;

/** Map a rule's severity, which is free text, to a level of marks. */
export const levelOf = (severity: string): Mark["level"] => (CRITICAL.has(severity) ? "critical" : severity === "warning" ? "warning" : "info");

/** Group alerts by rule and state: firing before pending, then by severity. */
export function groupAlerts(alerts: readonly Alert[]): [Alert, ...Alert[]][] {
  const groups = new Map<string, [Alert, ...Alert[]]>();
  for (const one of alerts) {
    const key = JSON.stringify([one.state, one.name, one.severity]);
    const group = groups.get(key);
    if (group) group.push(one);
    else groups.set(key, [one]);
  }
  const rank = ([one]: [Alert, ...Alert[]]) => (one.state === "firing" ? 0 : LEVELS.length) + LEVELS.indexOf(levelOf(one.severity));
  return [...groups.values()].sort((a, b) => rank(a) - rank(b));
}

/** Return the command that silences a rule's alerts about a job for two hours. */
export function silenceCommand(name: string, job: string): string {
  const matchers = [`alertname=${name}`, `job_id=${job}`].map((text) => (SAFE.test(text) ? text : quoteForShell(text)));
  return `jobmeter silence add ${matchers.join(" ")} --for 2h --comment REASON`;
}
