// Page of a node: record, devices and their jobs, charts, checks, system log.
import { useMemo } from "preact/hooks";
import { type Node, type Schemas, address, linesByMetric } from "../api/client";
import { metricsIn, title } from "../catalog";
import { Cursor } from "../charts/axis";
import { Chart } from "../charts/chart";
import { sortLines } from "../charts/lines";
import { type Fleet, type FleetNode, stateOf, faultText, faultsOf, formatHourly, priceOf, useFleet } from "../fleet/data";
import { formatDuration, isUtc, formatQuantity } from "../format";
import { useDark, useRead, useZone } from "../parts/hooks";
import { Choice, Moment, Notice, Problem, Section } from "../parts/elements";
import { mergeQuery, go, href, jobHref } from "../router";
import { Checks } from "./checks";
import { NodeLog } from "./log";

const SPANS = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["24h", "24 h"],
] as const;
type Span = (typeof SPANS)[number][0];
const STEP: Record<Span, string> = { "15m": "10s", "1h": "30s", "6h": "2m", "24h": "10m" };
const STEP_MS: Record<Span, number> = { "15m": 10_000, "1h": 30_000, "6h": 120_000, "24h": 600_000 };
/** Metrics with charts on the page, devices first. */
const SHOWN = metricsIn("node");
const NODE = SHOWN.filter((name) => name.startsWith("node."));
const DEVICE = SHOWN.filter((name) => !name.startsWith("node."));

export function NodePage({ name, query }: { name: string; query: URLSearchParams }) {
  useZone();
  const cluster = query.get("cluster") ?? "";
  const { fleet, error, reload } = useFleet();
  const response = useRead<Schemas["NodeList"]>(address("/api/jobmeter/v1/nodes", {}, { name: [name] }));
  const record = response.data?.nodes.find((node) => !cluster || node.cluster === cluster);
  const node = fleet?.nodes.find((one) => one.name === name && (!cluster || one.cluster === cluster));
  if (error && !fleet) return <Problem error={error} reload={reload} />;
  if (response.data && !record) {
    return (
      <Notice title={`There is no node ${name}.`}>
        <a href="#/nodes">All nodes</a>
      </Notice>
    );
  }
  return (
    <article class="node">
      <header class="job">
        <nav class="crumbs" aria-label="Breadcrumb">
          <a href="#/nodes">Nodes</a>
        </nav>
        <div class="name">
          <h1>{name}</h1>
          {node && <NodeState state={node.state} faults={faultsOf(node).length} />}
        </div>
        {record && <Facts record={record} />}
      </header>
      {node && faultsOf(node).length > 0 && <Faults node={node} />}
      {fleet && node && <Devices fleet={fleet} node={node} />}
      {/* Render these once the number of devices is known, so that they do not move. */}
      <div class={(fleet && response.data) || response.error ? undefined : "unready"}>
        <Curves name={name} cluster={cluster} query={query} />
        <Checks node={name} cluster={record?.cluster ?? cluster} />
        <NodeLog node={name} />
      </div>
    </article>
  );
}

/** State of a node. A node that is up may have faults too. */
function NodeState({ state, faults }: { state: string; faults: number }) {
  const bad = state === "down" || faults > 0;
  const word = bad ? "state-failed" : state === "up" ? "state-succeeded" : "";
  const shape = faults ? "M6 1.2L11 10.6H1z" : state === "up" ? "M1.5 6.5l3 3l6-7" : state === "down" ? "M2.5 2.5l7 7M9.5 2.5l-7 7" : "M2 6h8";
  return (
    <span class={`state ${word}`}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        <path d={shape} />
      </svg>
      {state === "up" ? "Up" : state === "down" ? "Down" : "Unknown"}
      {faults > 0 && `, with ${faults === 1 ? "a fault" : `${faults} faults`}`}
    </span>
  );
}

function Facts({ record }: { record: Node }) {
  const info = record.info;
  const [cores, memory] = [info["cores"] ?? info["cpus"], info["memory"]];
  const seen = record.last_seen;
  const facts: [string, unknown][] = [
    ["Last report", seen === null ? "never" : Date.now() - seen < 3_600_000 ? `${formatDuration(Date.now() - seen)} ago` : <Moment ms={seen} />],
    ["Cores", typeof cores === "number" ? String(cores) : null],
    ["Memory", typeof memory === "number" ? formatQuantity(memory, "By") : null],
    ["Resource group", record.resource_group],
    ["Cluster", record.cluster],
    ["Project", record.project],
    ["Kernel", typeof info["kernel"] === "string" ? info["kernel"] : null],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) =>
        value ? (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value as string}</dd>
          </div>
        ) : null,
      )}
    </dl>
  );
}

/** Faults with their start and the affected jobs. */
function Faults({ node }: { node: FleetNode }) {
  return (
    <Section id="faults" title="Faults">
      <ul class="faults">
        {faultsOf(node).map((one) => (
          <li key={`${one.device} ${one.reason} ${one.start}`}>
            <b>{faultText(one)}</b> since <Moment ms={one.start} short />
            {one.count > 1 && (
              <>
                , {one.count} times, last <Moment ms={one.last} short />
              </>
            )}
            {one.jobs.length === 0 ? ". No affected job is visible to you." : one.jobs.length === 1 ? ". Affected job: " : ". Affected jobs: "}
            {one.jobs.slice(0, FEW_JOBS).map((job, place) => (
              <>
                {place > 0 && ", "}
                <a href={jobHref(job)}>{job.name || job.id}</a>
              </>
            ))}
            {one.jobs.length > FEW_JOBS && ` and ${one.jobs.length - FEW_JOBS} more`}
          </li>
        ))}
      </ul>
    </Section>
  );
}

const FEW_JOBS = 4;
const WORDS = { busy: "in use", idle: "idle", free: "free", away: "node is down", unknown: "not measured" } as const;

function Devices({ fleet, node }: { fleet: Fleet; node: FleetNode }) {
  const all = <a href={href([], { node: node.name })}>All jobs that ran here</a>;
  const faulty = new Set(faultsOf(node).map((one) => one.device));
  return (
    <Section id="devices" title="Devices and jobs" aside={all}>
      {node.devices.length === 0 && <p class="hint">This node reports no devices. “All jobs that ran here” lists the jobs on its CPUs.</p>}
      {node.devices.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Devices">
          <table class="devices">
            <thead>
              <tr>
                <th scope="col">Device</th>
                <th scope="col">Type</th>
                <th scope="col">In use</th>
                <th scope="col">State</th>
                <th scope="col">Job</th>
                <th scope="col">User</th>
              </tr>
            </thead>
            <tbody>
              {node.devices.map((device) => {
                const job = device.job === undefined || device.job === null ? null : fleet.jobs[device.job];
                const does = stateOf(node, device);
                const cost = does === "idle" ? priceOf(fleet, device) : null;
                return (
                  <tr key={device.device}>
                    <th scope="row">{device.device}</th>
                    <td>{device.type === undefined || device.type === null ? "" : fleet.types[device.type]?.name}</td>
                    <td>
                      {device.use === undefined || device.use === null ? (
                        <span class="none">–</span>
                      ) : (
                        <span class="meter">
                          <i>
                            <i style={{ width: `${Math.min(100, device.use * 100)}%` }} />
                          </i>
                          {formatQuantity(device.use, "1")}
                        </span>
                      )}
                    </td>
                    <td class={does === "idle" ? "wasted" : ""}>
                      {device.state ? "not measured: " : WORDS[does]}
                      {device.state && <b class="lost">{device.state}</b>}
                      {cost !== null && `, ${formatHourly(fleet, cost)}`}
                      {faulty.has(device.device) && (
                        <>
                          , <b class="lost">with a fault</b>
                        </>
                      )}
                    </td>
                    <td>{job ? <a href={jobHref(job)}>{job.name || job.id}</a> : ""}</td>
                    <td>{job?.user}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}

function Curves({ name, cluster, query }: { name: string; cluster: string; query: URLSearchParams }) {
  const chosen = query.get("last");
  const last: Span = SPANS.find(([one]) => one === chosen)?.[0] ?? "1h";
  const ask = (metric: readonly string[], by: string) => address("/api/jobmeter/v1/nodes/{node}/metrics", { node: name }, { metric, by, since: last, step: STEP[last], format: "columns", cluster });
  const own = useRead<Schemas["NodeMetricsBody"]>(ask(NODE, "node"));
  const devices = useRead<Schemas["NodeMetricsBody"]>(ask(DEVICE, "device"));
  const cursor = useMemo(() => new Cursor(), []);
  const dark = useDark();
  const found = useMemo(() => {
    const lines = [...linesByMetric(devices.data), ...linesByMetric(own.data)];
    return lines.sort(([a], [b]) => SHOWN.indexOf(a) - SHOWN.indexOf(b)).map(([metric, mine]) => [metric, sortLines(mine)] as const);
  }, [own.data, devices.data]);
  const body = own.data ?? devices.data;
  const problem = own.error ?? devices.error;
  const aside = <Choice label="Range" value={last} options={SPANS} choose={(value) => go(href(["nodes", name], mergeQuery(query, { last: value })), true)} />;
  return (
    <Section id="curves" title="Metrics" aside={aside}>
      {problem && <Problem error={problem} reload={() => (own.reload(), devices.reload())} />}
      {!problem && body && found.length === 0 && <p class="hint">No samples of this node in this range. Choose a longer one, or check that its agent runs.</p>}
      {body && (
        <div class="grid">
          {found.map(([metric, lines]) => (
            <Chart
              key={metric}
              metric={metric}
              title={title(metric)}
              lines={lines}
              range={{ start: body.start, end: body.end }}
              step={STEP_MS[last]}
              cursor={cursor}
              marks={[]}
              chosen={null}
              dark={dark}
              utc={isUtc()}
              brush={() => null}
            />
          ))}
        </div>
      )}
    </Section>
  );
}
