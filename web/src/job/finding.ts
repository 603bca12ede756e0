// Findings: types, flagged ranks, and names in the address.
import type { Schemas } from "../api/client";
import type { Mark } from "../charts/axis";
import type { Flag } from "../charts/series";
import { ruleTitle } from "../catalog";

export type Finding = Schemas["Finding"];

/** Consecutive findings of one rule with the same advice. */
export type FindingGroup = [Finding, ...Finding[]];

/** Maximum number of flagged ranks in a chart: more would hide each other. */
const MOST_FLAGS = 3;

/** Return the replicas of findings with the statement of the worst finding about each, worst first. */
export function replicasOf(found: readonly Finding[]): ReadonlyMap<string, string> {
  const named = new Map<string, string>();
  for (const one of found) {
    for (const name of one.replicas) if (!named.has(name)) named.set(name, withoutReplica(one, name));
  }
  return named;
}

/** Return the ranks that charts draw in the warning colour, worst first. Rules that name more than half of the replicas flag none. */
export function flagsOf(found: readonly Finding[], replicas: number): Flag[] {
  const byRule = new Map<string, Set<string>>();
  for (const one of found) byRule.set(one.rule, new Set([...(byRule.get(one.rule) ?? []), ...one.replicas]));
  const flags = new Map<string, Flag>();
  for (const one of found) {
    if (one.severity === "info" || one.role === "cascade" || 2 * byRule.get(one.rule)!.size > replicas) continue;
    const device = one.subject.kind === "device" ? (one.subject.name.split("/").pop() ?? "") : "";
    for (const member of one.replicas) if (!flags.has(member)) flags.set(member, { member, device, text: withoutReplica(one, member) });
  }
  return [...flags.values()].slice(0, Math.min(MOST_FLAGS, Math.ceil(replicas / 2)));
}

/** Return a sentence without the leading replica: "worker-5 (node-1, gpu0) computes at 40 %" becomes "computes at 40 %". */
function withoutReplica(one: Finding, name: string): string {
  const rest = one.sentence.startsWith(`${name} (`) ? one.sentence.slice(one.sentence.indexOf(")") + 1) : "";
  return rest.replace(/^:?\s+/, "") || ruleTitle(one.rule);
}

export const markOf = (one: Finding): Mark => ({ start: one.start, end: one.end, level: one.severity, text: one.rule });

/** Return the name of each finding in the address: rule, subject, and a number if these are not unique. */
export function namesOf(found: readonly Finding[]): ReadonlyMap<Finding, string> {
  const times = new Map<string, number>();
  return new Map(
    found.map((one) => {
      const name = `${one.rule} ${one.subject.name}`;
      const time = (times.get(name) ?? 0) + 1;
      times.set(name, time);
      return [one, time === 1 ? name : `${name} ${time}`];
    }),
  );
}

export function groupFindings(found: readonly Finding[]): FindingGroup[] {
  const groups: FindingGroup[] = [];
  for (const one of found) {
    const last = groups[groups.length - 1];
    const same = last && (["rule", "role", "severity", "advice"] as const).every((field) => last[0][field] === one[field]);
    if (same) last.push(one);
    else groups.push([one]);
  }
  return groups;
}

const FRAMES = /^Traceback \(most recent call last\)|^\s*File "/;

/** Place in the log that explains why a job failed: a replica, and the time of the last relevant line. */
export interface LogPlace {
  replica: string;
  end: number | null;
}

/** Return the log place of a finding. For the worst finding without one, use a finding with a traceback. */
export function logPlaceOf(one: Finding | null, found: readonly Finding[]): LogPlace {
  const [worst] = found;
  const traced = found.find((other) => other.evidence.some(({ kind, text }) => kind === "log" && FRAMES.test(text)));
  const from = one && one !== worst ? one : (traced ?? worst);
  const lines = from?.evidence.filter(({ kind, time }) => kind === "log" && time !== null) ?? [];
  const replica = lines[0]?.replica || from?.replicas[0] || "";
  return { replica, end: from === traced && lines.length ? Math.max(...lines.map(({ time }) => time!)) : null };
}

/** Return true if a finding spans time. Findings shorter than a second are shown as a moment. */
export const isSpan = (one: Finding): boolean => one.end - one.start >= 1000;
