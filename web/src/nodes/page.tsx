import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { type Fleet, type FleetNode, groupNodes, countFleet, stateOf, faultsOf, formatHourly, useFleet } from "../fleet/data";
import { FleetMap, Legend } from "../fleet/map";
import { formatQuantity } from "../format";
import { useZone } from "../parts/hooks";
import { Choice, Notice, Problem } from "../parts/elements";
import { mergeQuery, go, href } from "../router";

const SHOWN = [
  ["", "All"],
  ["idle", "Idle"],
  ["free", "Free"],
  ["down", "Down"],
  ["faults", "With faults"],
  ["unknown", "Unknown"],
] as const;
type Shown = (typeof SHOWN)[number][0];
const CONDITIONS: Record<Shown, string> = { "": "", idle: "has idle devices", free: "has free devices", down: "is down", faults: "has faults", unknown: "has an unknown state" };

/** Map of all nodes by resource group. A choice shows only idle, free, faulty nodes and the like. */
export function NodesPage({ query }: { query: URLSearchParams }) {
  useZone();
  const { fleet, error, live, reload } = useFleet();
  const text = query.get("q") ?? "";
  const shown = (SHOWN.find(([name]) => name === query.get("show"))?.[0] ?? "") as Shown;
  const nodes = useMemo(() => (fleet?.nodes ?? []).filter((node) => matches(node, text, shown)), [fleet, text, shown]);
  const groups = useMemo(() => groupNodes(nodes), [nodes]);
  const set = (values: Record<string, string>) => go(href(["nodes"], mergeQuery(query, values)), true);
  if (error && !fleet) return <Problem error={error} reload={reload} />;
  return (
    <>
      <div class="heading">
        <h1>Nodes</h1>
        {fleet && fleet.nodes.length > 0 && <Figures fleet={fleet} />}
        {live && <span class={`live live-${live}`}>{live === "live" ? "live" : live === "lost" ? "connection lost" : "ended"}</span>}
      </div>
      {fleet && !fleet.nodes.length && <Empty />}
      {fleet && fleet.nodes.length > 0 && (
        <>
          <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
            <div class="first">
              <input type="search" aria-label="Search nodes" placeholder="Name, group or cluster" value={text} onInput={(event) => set({ q: event.currentTarget.value })} />
              <Choice label="Show" value={shown} options={SHOWN} choose={(value) => set({ show: value })} />
            </div>
          </form>
          <Legend />
          {nodes.length > 0 ? <FleetMap fleet={fleet} groups={groups} /> : <p class="hint none-shown">No node {[CONDITIONS[shown], text && `matches “${text}”`].filter(Boolean).join(" and ")}.</p>}
        </>
      )}
    </>
  );
}

function matches(node: FleetNode, text: string, shown: Shown): boolean {
  const searched = text.trim().toLowerCase();
  if (searched && !`${node.name} ${node.cluster} ${node.resource_group}`.toLowerCase().includes(searched)) return false;
  if (shown === "faults") return faultsOf(node).length > 0;
  if (shown === "down") return node.state === "down";
  if (shown === "unknown") return node.state === "unknown" || (node.state === "up" && node.devices.some((device) => stateOf(node, device) === "unknown"));
  return !shown || node.devices.some((device) => stateOf(node, device) === shown);
}

function Figures({ fleet }: { fleet: Fleet }) {
  const all = countFleet(fleet, fleet.nodes);
  return (
    <p class="figures">
      <b>{all.nodes.toLocaleString("en")}</b> {all.nodes === 1 ? "node" : "nodes"}, <b>{all.up.toLocaleString("en")}</b> up
      {all.down > 0 && <Count text="down">{all.down}</Count>}
      {all.unknown > 0 && <Count text="unknown">{all.unknown}</Count>}
      {all.faulty > 0 && (
        <>
          {", "}
          <a class="lost" href={href(["nodes"], { show: "faults" })}>
            <b>{all.faulty.toLocaleString("en")}</b> with faults
          </a>
        </>
      )}
      {all.devices > 0 && (
        <>
          {" · "}
          <b>{all.devices.toLocaleString("en")}</b> devices, <b>{all.free.toLocaleString("en")}</b> free
          {all.use !== null && (
            <>
              , the others <b>{formatQuantity(all.use, "1")}</b> in use
            </>
          )}
          {all.idle > 0 && (
            <>
              , <b class="wasted">{all.idle.toLocaleString("en")} idle</b>
              {all.cost !== null && <b class="wasted"> at {formatHourly(fleet, all.cost)}</b>}
            </>
          )}
        </>
      )}
    </p>
  );
}

const Count = ({ text, children }: { text: string; children: ComponentChildren }) => (
  <>
    , <b>{children}</b> {text}
  </>
);

function Empty() {
  return (
    <Notice title="No node has reported yet.">
      <p>Start an agent on each node:</p>
      <pre>jobmeter agent --server {location.origin} --key TOKEN</pre>
      <p>
        TOKEN is that of a <a href="#/admin/keys">key of role writer</a>.
      </p>
    </Notice>
  );
}
