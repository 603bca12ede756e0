import type { ComponentChildren } from "preact";
import type { Job, JobDetail } from "../api/client";
import { title } from "../catalog";
import { formatDuration, formatQuantity } from "../format";
import { memo } from "../parts/memo";
import { Moment, State } from "../parts/elements";
import { type Idle, describeIdle } from "./idle";
import { href, nodeHref } from "../router";

/** Header of the job page: name, state, owner, times and resources. */
export const Header = memo(function Header({ job, detail, idle, guest }: { job: Job; detail: JobDetail; idle: Idle | null; guest: boolean }) {
  const start = job.start ?? job.first_sample;
  const end = job.end ?? (job.state === "Running" ? Date.now() : job.last_sample);
  const waited = job.created ?? job.updated;
  const replicas = new Set(detail.replicas.map((one) => one.name)).size;
  const devices = detail.devices.length;
  const nodes = detail.nodes;
  const wasted = idle && describeIdle(idle);
  return (
    <header class="job">
      {!guest && (
        <p class="crumbs">
          <a href="#/">Jobs</a>
        </p>
      )}
      <div class="name">
        <h1>{job.name || job.id}</h1>
        <State state={job.state} />
      </div>
      <p class="id">{job.id}</p>
      {job.error && <p class="error">{job.error}</p>}
      <dl class="facts">
        {job.state === "Queued" ? (
          <Fact name="Waiting">{waited === null ? "–" : formatDuration(Date.now() - waited)}</Fact>
        ) : (
          <>
            <Fact name="Started">
              <Moment ms={start} />
            </Fact>
            <Fact name={job.state === "Running" ? "Running for" : "Took"}>{start === null || end === null ? "–" : formatDuration(end - start)}</Fact>
          </>
        )}
        {job.end !== null && (
          <Fact name="Ended">
            <Moment ms={job.end} />
          </Fact>
        )}
        {job.exit_code !== null && <Fact name="Exit status">{job.exit_code}</Fact>}
        <Text name="User" value={job.user} to={guest ? undefined : href([], { user: job.user })} />
        <Text name="Project" value={job.project} to={guest ? undefined : href([], { project: job.project })} />
        <Text name="Type" value={job.type} />
        <Text name="Resource group" value={job.resource_group} to={guest ? undefined : href([], { group: job.resource_group })} />
        {(replicas > 0 || job.state !== "Queued") && <Fact name="Replicas">{replicas || "–"}</Fact>}
        {devices > 0 && <Fact name="Devices">{devices}</Fact>}
        {(nodes.length > 0 || job.state !== "Queued") && <Fact name={nodes.length === 1 ? "Node" : "Nodes"}>{nodes.length === 0 ? "–" : nodes.length > 3 ? <span title={nodes.join(", ")}>{nodes.length}</span> : guest ? nodes.join(", ") : nodes.map((node, at) => (
            <>
              {at > 0 && ", "}
              <a href={nodeHref(node)}>{node}</a>
            </>
          ))}</Fact>}
        {wasted && (
          <Fact name="Device time">
            <span class={wasted.wasted ? "wasted" : undefined} title={wasted.hint}>
              {wasted.text}
            </span>
          </Fact>
        )}
        {Object.entries(job.limits).map(([name, value]) => (
          <Fact name={title(name)} key={name}>
            {formatQuantity(value, name.startsWith("cpu") ? "{core}" : "By")}
          </Fact>
        ))}
      </dl>
      {(job.command || Object.keys(job.labels).length > 0) && (
        <details class="record">
          <summary>Command and labels</summary>
          {job.command && <pre>{job.command}</pre>}
          <ul class="labels">
            {Object.entries(job.labels).map(([name, value]) => (
              <li key={name}>
                {name}: {value}
              </li>
            ))}
          </ul>
        </details>
      )}
    </header>
  );
});

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Text({ name, value, to }: { name: string; value: string; to?: string | undefined }) {
  if (!value) return null;
  return <Fact name={name}>{to ? <a href={to}>{value}</a> : value}</Fact>;
}
