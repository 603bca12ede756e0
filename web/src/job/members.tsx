import { useMemo, useState } from "preact/hooks";
import type { JobDetail, Line, Replica } from "../api/client";
import { METRICS } from "../catalog";
import { duration, natural, quantity } from "../format";
import { memo } from "../parts/memo";
import { Section, State } from "../parts/small";

const SHOWN = 32;
/** Network and disk have charts alone: a replica's row would not fit. */
const COLUMNS = METRICS.filter((metric) => metric.column && ["cpu", "memory", "accelerators"].includes(metric.group));

/** Every replica with its newest values in the range, its devices below it. A click shows it on every chart. */
export const Members = memo(function Members(given: {
  detail: JobDetail;
  lines: ReadonlyMap<string, readonly Line[]>;
  chosen: string | null;
  choose: (member: string | null) => void;
}) {
  const { detail, lines, chosen, choose } = given;
  const [all, setAll] = useState(false);
  const newest = useMemo(() => latest(detail.replicas), [detail]);
  const rows = rowsOf(detail, newest);
  if (!rows.length) return null;
  const columns = COLUMNS.filter(({ name }) => lines.has(name));
  const values = new Map(columns.map(({ name }) => [name, byMember(lines.get(name) ?? [])]));
  const states = rows.some((row) => row.state);
  const pods = rows.some((row) => row.pod);
  const shown = all ? rows : rows.slice(0, SHOWN);
  return (
    <Section id="replicas" title={`${newest.size || rows.length} ${newest.size === 1 ? "replica" : "replicas"}, ${detail.devices.length} ${detail.devices.length === 1 ? "device" : "devices"}`}>
      <div class="wide" tabIndex={0} role="region" aria-label="Replicas and devices">
        <table>
          <thead>
            <tr>
              <th scope="col" class="number rank">
                Rank
              </th>
              <th scope="col">Replica</th>
              <th scope="col">Device</th>
              <th scope="col">Node</th>
              {pods && <th scope="col">Pod</th>}
              {states && <th scope="col">State</th>}
              <th scope="col" class="number">
                {detail.job.state === "Running" ? "Running for" : "Took"}
              </th>
              {columns.map(({ name, column }) => (
                <th scope="col" class="number" key={name}>
                  {column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={`${row.replica} ${row.node} ${row.device}`} class={row.replica === chosen ? "chosen" : ""}>
                <td class="number rank">{row.rank ?? ""}</td>
                <th scope="row">
                  {row.device === "" || row.first ? (
                    <button type="button" class="link" aria-pressed={row.replica === chosen} onClick={() => choose(row.replica === chosen ? null : row.replica)}>
                      {row.replica}
                    </button>
                  ) : (
                    <span class="same">{row.replica}</span>
                  )}
                  {row.attempt > 0 && row.first && <small> attempt {row.attempt}</small>}
                </th>
                <td>{row.device}</td>
                <td>{row.node}</td>
                {pods && <td>{row.first ? row.pod : ""}</td>}
                {states && <td>{row.state && row.first ? <State state={row.state} /> : ""}</td>}
                <td class="number">{row.first && row.took !== null ? duration(row.took) : ""}</td>
                {columns.map(({ name }) => (
                  <td class="number" key={name}>
                    {value(values.get(name), row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown.length && (
        <button type="button" onClick={() => setAll(true)}>
          All {rows.length} rows
        </button>
      )}
    </Section>
  );
});

interface MemberRow {
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

function latest(replicas: readonly Replica[]): Map<string, Replica> {
  const found = new Map<string, Replica>();
  for (const one of replicas) if ((found.get(one.name)?.attempt ?? -1) <= one.attempt) found.set(one.name, one);
  return found;
}

function rowsOf(detail: JobDetail, newest: ReadonlyMap<string, Replica>): MemberRow[] {
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
  return rows.sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9) || natural(a.replica, b.replica) || natural(a.device, b.device));
}

const memberKey = (replica: string, device: string): string => `${replica}\u0000${device}`;

/** The lines of a metric by whose they are; of several of a replica, as after a move, the first one. */
function byMember(lines: readonly Line[]): Map<string, Line> {
  const found = new Map<string, Line>();
  for (const line of lines) {
    const key = memberKey(line.replica, line.device);
    if (!found.has(key)) found.set(key, line);
  }
  return found;
}

function value(lines: ReadonlyMap<string, Line> | undefined, row: MemberRow): string {
  const own = lines?.get(memberKey(row.replica, row.device)) ?? (row.first ? lines?.get(memberKey(row.replica, "")) : undefined);
  return own ? quantity(own.value[own.value.length - 1], own.unit) : "";
}
