// Utilization: idle allocated devices with their cost, and the users of a resource group.
import { useMemo } from "preact/hooks";
import { type Schemas, address } from "../api/client";
import { formatQuantity } from "../format";
import { useRead } from "../parts/hooks";
import { Choice, Notice, Problem, Section } from "../parts/elements";
import { mergeQuery, go, href, jobHref } from "../router";
import { History } from "./history";
import { type Fleet, groupNodes, countFleet, formatHourly, useFleet, findWaste } from "./data";

const LAST = [
  ["5m", "5 min"],
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["24h", "24 h"],
] as const;
type Last = (typeof LAST)[number][0];

export function UsePage({ query }: { query: URLSearchParams }) {
  const { fleet, error, reload } = useFleet();
  if (error && !fleet) return <Problem error={error} reload={reload} />;
  return (
    <>
      <div class="heading">
        <h1>Utilization</h1>
      </div>
      {fleet && <Idle fleet={fleet} />}
      <History query={query} />
      {fleet && <Groups fleet={fleet} query={query} />}
    </>
  );
}

function Idle({ fleet }: { fleet: Fleet }) {
  const found = useMemo(() => findWaste(fleet), [fleet]);
  const all = useMemo(() => countFleet(fleet, fleet.nodes), [fleet]);
  const total = all.cost === null ? "" : `, ${formatHourly(fleet, all.cost)}`;
  const taken = all.devices - all.free - all.away;
  const aside = found.length > 0 && <b class="wasted">{`${all.idle} of ${taken} devices${total}`}</b>;
  const unmeasured = all.unmeasured ? `${all.unmeasured} of ${taken} allocated devices were not measured in the last 5 minutes. The others are not idle.` : "";
  const used = taken ? "No idle devices: every allocated device was used in the last 15 minutes." : "No devices are allocated now.";
  const emptyText = all.devices ? unmeasured || used : "No devices reported yet. Start an agent on each node.";
  return (
    <Section id="idle" title="Allocated and idle" aside={aside}>
      {!found.length && <p class="hint">{emptyText}</p>}
      {found.length > 0 && <IdleTable fleet={fleet} found={found} />}
      {found.length > 0 && unmeasured && <p class="hint">{all.unmeasured} more allocated devices were not measured in the last 5 minutes.</p>}
      {found.length > 0 && all.cost === null && <p class="hint">No price is set for these devices. Set one under [devices] in the price file, which JOBMETER_PRICES names.</p>}
    </Section>
  );
}

function IdleTable({ fleet, found }: { fleet: Fleet; found: ReturnType<typeof findWaste> }) {
  const priced = found.some((one) => one.cost !== null);
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Jobs with idle devices">
      <table>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">User</th>
            <th scope="col">Resource group</th>
            <th scope="col" class="number">Idle</th>
            <th scope="col" class="number">Allocated</th>
            {priced && (
              <th scope="col" class="number">
                Cost
              </th>
            )}
            <th scope="col">Nodes</th>
          </tr>
        </thead>
        <tbody>
          {found.slice(0, 200).map((one) => (
            <tr key={`${one.job.project} ${one.job.id}`}>
              <th scope="row">
                <a href={jobHref(one.job)} data-step>{one.job.name || one.job.id}</a>
              </th>
              <td>{one.user}</td>
              <td>{one.job.resource_group}</td>
              <td class="number wasted">{one.idle}</td>
              <td class="number">{one.devices}</td>
              {priced && <td class="number">{one.cost === null ? "–" : formatHourly(fleet, one.cost)}</td>}
              <td>{[...one.nodes].slice(0, 3).join(", ") + (one.nodes.size > 3 ? ` and ${one.nodes.size - 3} more` : "")}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.length > 200 && <p class="hint">{found.length - 200} more jobs with fewer or cheaper idle devices.</p>}
    </div>
  );
}

function Groups({ fleet, query }: { fleet: Fleet; query: URLSearchParams }) {
  const names = useMemo(() => [...new Set([...groupNodes(fleet.nodes).map(([name]) => name), ...fleet.jobs.map((job) => job.resource_group)])], [fleet]);
  const group = query.get("group") ?? fleet.jobs[0]?.resource_group ?? names[0] ?? "";
  const last: Last = LAST.find(([name]) => name === query.get("last"))?.[0] ?? "15m";
  const set = (values: Record<string, string>) => go(href(["use"], mergeQuery(query, values)), true);
  const response = useRead<Schemas["UserList"]>(names.length ? address("/api/jobmeter/v1/users", {}, { resource_group: group, last }) : null);
  if (!names.length) {
    return (
      <Notice title="No nodes and no running jobs yet. Run the demonstration:">
        <pre>jobmeter demo</pre>
      </Notice>
    );
  }
  const aside = (
    <>
      <select aria-label="Resource group" value={group} onChange={(event) => set({ group: event.currentTarget.value })}>
        {names.map((name) => (
          <option key={name} value={name}>
            {name || "no resource group"}
          </option>
        ))}
      </select>
      <Choice label="Over the last" value={last} options={LAST} choose={(value) => set({ last: value })} />
    </>
  );
  return (
    <Section id="users" title="Users of a resource group" aside={aside}>
      {response.error && (response.error.status === 404 ? <p class="hint">No usage was recorded for {group || "jobs without a resource group"}.</p> : <Problem error={response.error} reload={response.reload} />)}
      {response.data && !response.error && <Users found={response.data} />}
    </Section>
  );
}

function Users({ found }: { found: Schemas["UserList"] }) {
  if (!found.users.length) return <p class="hint">No usage of this group in this time.</p>;
  const all = { ...found.summary, user: "All users" };
  const network = found.users.some((one) => one.network_receive !== null || one.network_transmit !== null);
  const heads = ["Jobs", "Devices", "Devices in use", "Cores", "Cores in use", "Memory", "Memory in use", ...(network ? ["Received", "Sent"] : [])];
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Users">
      <table>
        <thead>
          <tr>
            <th scope="col">User</th>
            {heads.map((head, at) => (
              <th scope="col" class="number" key={at}>
                {head}
              </th>
            ))}
            <th scope="col">Nodes</th>
          </tr>
        </thead>
        <tbody>
          {[...found.users, ...(found.users.length > 1 ? [all] : [])].map((one, at) => (
            <tr key={at} class={one === all ? "sum" : ""}>
              <th scope="row">{one.user || <span class="none">unknown user</span>}</th>
              <td class="number">{one.jobs}</td>
              <td class="number">{one.requested.devices}</td>
              <td class="number">{formatQuantity(one.device, "1")}</td>
              <td class="number">{one.requested.cpu ? Number(one.requested.cpu.toFixed(1)).toLocaleString("en") : "–"}</td>
              <td class="number">{formatQuantity(one.cpu, "1")}</td>
              <td class="number">{one.requested.memory ? formatQuantity(one.requested.memory, "By") : "–"}</td>
              <td class="number">{formatQuantity(one.memory, "1")}</td>
              {network && <td class="number">{formatQuantity(one.network_receive, "By/s")}</td>}
              {network && <td class="number">{formatQuantity(one.network_transmit, "By/s")}</td>}
              <td>{one.nodes.length > 3 ? `${one.nodes.length} nodes` : one.nodes.join(", ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
