import { useMemo, useState } from "preact/hooks";
import type { JobDetail, Line } from "../api/client";
import { METRICS } from "../catalog";
import { median } from "../charts/lines";
import { formatDuration, compareNatural, pluralize, formatQuantity } from "../format";
import { memo } from "../parts/memo";
import { Section, State } from "../parts/elements";
import { nodeHref } from "../router";
import { formatDifference, isOutlier } from "./differences";
import { type MemberRow, newestAttempts, memberRows } from "./member-rows";

const SHOWN = 32;
/** Network and disk metrics have charts only: the row has no room for them. */
const COLUMNS = METRICS.filter((metric) => metric.column && ["cpu", "memory", "accelerators"].includes(metric.group));

/** Sort order. Without one, the rows of findings come first. */
interface Order {
  by: string;
  down: boolean;
}

interface Column {
  id: string;
  title: string;
  number?: boolean;
  /** Sort key; null sorts last in both directions. */
  key: (row: MemberRow) => string | number | null;
}

/** Table of replicas and devices with their newest values in the range. A click shows one on every chart. */
export const Members = memo(function Members(given: {
  detail: JobDetail;
  lines: ReadonlyMap<string, readonly Line[]>;
  /** Replicas of findings with their statements, worst first. */
  named: ReadonlyMap<string, string>;
  chosen: string | null;
  choose: (member: string | null) => void;
  guest: boolean;
}) {
  const { detail, lines, named, chosen, choose, guest } = given;
  const [all, setAll] = useState(false);
  const [order, setOrder] = useState<Order | null>(null);
  const newest = useMemo(() => newestAttempts(detail.replicas), [detail]);
  const rows = memberRows(detail, newest);
  if (!rows.length) return null;
  const metrics = COLUMNS.filter(({ name }) => lines.has(name)).map(({ name, column }) => {
    const mine = indexLines(lines.get(name) ?? []);
    const valueOf = (row: MemberRow) => newestOf(mine, row);
    const values = rows.map(valueOf).filter((value): value is number => value !== null);
    return { id: name, title: column, number: true, key: valueOf, unit: lines.get(name)?.[0]?.unit ?? "", middle: values.length > 2 ? median(values) : null };
  });
  // If all replicas ran equally long, the header shows the duration.
  const vary = new Set(rows.map((row) => row.took && Math.round(row.took / 1000))).size > 1;
  const took = detail.job.state === "Running" ? "Running for" : "Took";
  const columns: Column[] = [
    { id: "rank", title: "Rank", number: true, key: (row) => row.rank },
    { id: "replica", title: "Replica", key: (row) => row.replica },
    { id: "device", title: "Device", key: (row) => row.device },
    { id: "node", title: "Node", key: (row) => row.node },
    ...(rows.some((row) => row.pod) ? [{ id: "pod", title: "Pod", key: (row: MemberRow) => row.pod }] : []),
    ...(rows.some((row) => row.state) ? [{ id: "state", title: "State", key: (row: MemberRow) => row.state }] : []),
    ...(vary ? [{ id: "took", title: took, number: true, key: (row: MemberRow) => row.took }] : []),
    ...metrics,
  ];
  const has = (id: string) => columns.some((column) => column.id === id);
  const sorting = columns.find((column) => column.id === order?.by);
  const sorted = sorting ? sortByKey(rows, sorting.key, order!.down) : sortByFinding(rows, named);
  const shown = all ? sorted : sorted.slice(0, SHOWN);
  // In another order the rows of a replica are separated, so each shows its name.
  const isFirst = (row: MemberRow) => row.first || sorting !== undefined;
  const turn = (id: string, number = false) => setOrder(order?.by !== id ? { by: id, down: number && id !== "rank" } : order.down === (number && id !== "rank") ? { by: id, down: !order.down } : null);
  const [replicas, devices] = [newest.size || rows.length, detail.devices.length];
  return (
    <Section id="replicas" title={`${replicas} ${pluralize(replicas, "replica")}, ${devices} ${pluralize(devices, "device")}`}>
      <div class="wide" tabIndex={0} role="region" aria-label="Replicas and devices">
        <table class="sortable">
          <thead>
            <tr>
              {columns.map(({ id, title, number }) => (
                <th scope="col" key={id} class={`${number ? "number" : ""} ${id === "rank" ? "rank" : ""}`} aria-sort={order?.by !== id ? undefined : order.down ? "descending" : "ascending"}>
                  <button type="button" onClick={() => turn(id, number)}>
                    {title}
                    {order?.by === id && (order.down ? " ↓" : " ↑")}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => {
              const text = named.get(row.replica);
              return (
                <tr key={`${row.replica} ${row.node} ${row.device}`} class={`${row.replica === chosen ? "chosen" : ""} ${text ? "named" : ""}`}>
                  <td class="number rank">{row.rank ?? ""}</td>
                  <th scope="row">
                    {row.device === "" || isFirst(row) ? (
                      <button type="button" class="link" aria-pressed={row.replica === chosen} title={text} onClick={() => choose(row.replica === chosen ? null : row.replica)}>
                        {row.replica}
                      </button>
                    ) : (
                      <span class="same">{row.replica}</span>
                    )}
                    {row.attempt > 0 && isFirst(row) && <small> attempt {row.attempt}</small>}
                  </th>
                  <td>{row.device}</td>
                  <td>{guest || !row.node ? row.node : <a href={nodeHref(row.node)}>{row.node}</a>}</td>
                  {has("pod") && <td>{isFirst(row) ? row.pod : ""}</td>}
                  {has("state") && <td>{row.state && isFirst(row) ? <State state={row.state} /> : ""}</td>}
                  {has("took") && <td class="number">{isFirst(row) && row.took !== null ? formatDuration(row.took) : ""}</td>}
                  {metrics.map(({ id, key, unit, middle }) => {
                    const own = key(row);
                    return (
                      <td class="number" key={id}>
                        {own === null ? "" : formatQuantity(own, unit)}
                        {text && own !== null && middle !== null && isOutlier(own, middle) && <b class="apart"> {formatDifference(own, middle, unit, true)}</b>}
                      </td>
                    );
                  })}
                </tr>
              );
            })}
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

/** Move the rows of findings to the top, worst first. The others keep their order. */
function sortByFinding(rows: readonly MemberRow[], named: ReadonlyMap<string, string>): MemberRow[] {
  const places = new Map([...named.keys()].map((name, at) => [name, at]));
  const place = (row: MemberRow) => places.get(row.replica) ?? places.size;
  return [...rows].sort((a, b) => place(a) - place(b));
}

function sortByKey(rows: readonly MemberRow[], key: Column["key"], down: boolean): MemberRow[] {
  const compare = (a: string | number, b: string | number) => (typeof a === "number" && typeof b === "number" ? a - b : compareNatural(String(a), String(b)));
  return [...rows].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return down ? compare(b, a) : compare(a, b);
  });
}

const memberKey = (replica: string, device: string): string => `${replica}\u0000${device}`;

/** Index the series of a metric by replica and device. A replica that moved has several: the first one counts. */
function indexLines(lines: readonly Line[]): Map<string, Line> {
  const found = new Map<string, Line>();
  for (const line of lines) {
    const key = memberKey(line.replica, line.device);
    if (!found.has(key)) found.set(key, line);
  }
  return found;
}

function newestOf(lines: ReadonlyMap<string, Line>, row: MemberRow): number | null {
  const own = lines.get(memberKey(row.replica, row.device)) ?? (row.first ? lines.get(memberKey(row.replica, "")) : undefined);
  return own?.value[own.value.length - 1] ?? null;
}
