// Rows of the replica table: one for each device, or one for a replica without devices.
import type { JobDetail, Replica } from "../api/client";
import { compareNatural } from "../format";

export interface MemberRow {
  replica: string;
  node: string;
  device: string;
  rank: number | null;
  attempt: number;
  pod: string;
  state: Replica["state"];
  took: number | null;
  first: boolean;
}

/** Return the newest attempt of each replica. */
export function newestAttempts(replicas: readonly Replica[]): Map<string, Replica> {
  const found = new Map<string, Replica>();
  for (const one of replicas) if ((found.get(one.name)?.attempt ?? -1) <= one.attempt) found.set(one.name, one);
  return found;
}

/** Return the rows, by rank, then by name. */
export function memberRows(detail: JobDetail, newest: ReadonlyMap<string, Replica>): MemberRow[] {
  const rows: MemberRow[] = [];
  const names = new Set([...newest.keys(), ...detail.devices.map((one) => one.replica)]);
  for (const name of names) {
    const replica = newest.get(name);
    const devices = detail.devices.filter((one) => one.replica === name);
    const start = replica?.start ?? null;
    const end = replica?.end ?? detail.job.end ?? (detail.job.state === "Running" ? Date.now() : null);
    const base = { replica: name, attempt: replica?.attempt ?? 0, pod: replica?.pod ?? "", state: replica?.state ?? null, took: start === null || end === null ? null : end - start };
    if (!devices.length) rows.push({ ...base, node: replica?.node ?? "", device: "", rank: replica?.rank ?? null, first: true });
    devices.forEach((one, at) => rows.push({ ...base, node: one.node, device: one.device, rank: one.rank ?? replica?.rank ?? null, first: at === 0 }));
  }
  return rows.sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9) || compareNatural(a.replica, b.replica) || compareNatural(a.device, b.device));
}
