import { useMemo, useState } from "preact/hooks";
import { type Node, type Schemas, address } from "../api/client";
import { duration, natural, quantity } from "../format";
import { useRead, useZone } from "../parts/hooks";
import { Moment, Notice, Problem } from "../parts/small";
import { href } from "../router";

const QUIET = 5 * 60_000;

/** Every node by resource group: whether its agent is heard, what it has, and the jobs on it. */
export function NodesPage() {
  useZone();
  const asked = useRead<Schemas["NodeList"]>(address("/api/jobmeter/v1/nodes"));
  const [text, setText] = useState("");
  const now = Date.now();
  const nodes = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const found = (asked.data?.nodes ?? []).filter((node) => `${node.name} ${node.cluster} ${node.resource_group}`.toLowerCase().includes(wanted));
    return [...found].sort((a, b) => natural(a.cluster, b.cluster) || natural(a.name, b.name));
  }, [asked.data, text]);
  const byGroup = useMemo(() => {
    const found = new Map<string, Node[]>();
    for (const node of nodes) found.set(node.resource_group, [...(found.get(node.resource_group) ?? []), node]);
    return [...found].sort(([a], [b]) => natural(a, b));
  }, [nodes]);
  const all = asked.data?.nodes ?? [];
  const quiet = all.filter((node) => now - (node.last_seen ?? 0) > QUIET).length;
  if (asked.error) return <Problem error={asked.error} again={asked.again} />;
  return (
    <>
      <div class="heading">
        <h1>Nodes</h1>
        {asked.data && (
          <p class="figures">
            <b>{all.length.toLocaleString("en")}</b> {all.length === 1 ? "node" : "nodes"}, <b>{all.length - quiet}</b> heard in the last 5 minutes
          </p>
        )}
      </div>
      {all.length > 0 && (
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <input type="search" aria-label="Search nodes" placeholder="Search nodes" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </form>
      )}
      {asked.data && !all.length && (
        <Notice title="No node was heard of yet.">
          <pre>jobmeter agent --server {location.origin} --key TOKEN</pre>
        </Notice>
      )}
      {byGroup.map(([group, members]) => (
        <section key={group} aria-label={group || "No resource group"}>
          <header class="section">
            <h2>{group || (byGroup.length > 1 ? "No resource group" : "All nodes")}</h2>
            <span class="aside hint">{members.length}</span>
          </header>
          <div class="wide" tabIndex={0} role="region" aria-label={`Nodes of ${group || "no group"}`}>
            <table>
              <thead>
                <tr>
                  <th scope="col">Node</th>
                  <th scope="col">Cluster</th>
                  <th scope="col" class="number">Cores</th>
                  <th scope="col" class="number">Memory</th>
                  <th scope="col">Devices</th>
                  <th scope="col">Last heard</th>
                  <th scope="col">Jobs</th>
                </tr>
              </thead>
              <tbody>
                {members.slice(0, 500).map((node) => (
                  <tr key={`${node.project} ${node.cluster} ${node.name}`}>
                    <th scope="row">{node.name}</th>
                    <td>{node.cluster}</td>
                    <td class="number">{number(node.info["cores"] ?? node.info["cpus"])}</td>
                    <td class="number">{typeof node.info["memory"] === "number" ? quantity(node.info["memory"], "By") : ""}</td>
                    <td>{devices(node.info["devices"])}</td>
                    <td class={now - (node.last_seen ?? 0) > QUIET ? "quiet" : ""}>
                      {node.last_seen === null ? "never" : now - node.last_seen > QUIET ? <Moment ms={node.last_seen} /> : `${duration(now - node.last_seen)} ago`}
                    </td>
                    <td>
                      <a href={href([], { node: node.name })}>jobs on it</a>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {members.length > 500 && <p class="hint">{members.length - 500} more: search for them.</p>}
        </section>
      ))}
      {asked.data && all.length > 0 && !nodes.length && <p class="hint">No node matches.</p>}
    </>
  );
}

const number = (value: unknown): string => (typeof value === "number" ? String(value) : "");

/** `8 × NVIDIA H200` of what the agent said of its devices. */
function devices(told: unknown): string {
  if (!Array.isArray(told) || !told.length) return "";
  const counts = new Map<string, number>();
  for (const one of told as unknown[]) {
    const name = typeof one === "object" && one !== null && "name" in one ? String(one.name) : typeof one === "string" ? one : "device";
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, count]) => `${count} × ${name}`).join(", ");
}
