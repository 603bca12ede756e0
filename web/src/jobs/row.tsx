import type { ComponentChildren } from "preact";
import type { Job } from "../api/client";
import { findMetric, ruleTitle } from "../catalog";
import { formatDuration, formatQuantity } from "../format";
import { memo } from "../parts/memo";
import { Sentence, Severity, State, renderTime } from "../parts/elements";
import { Sparkline } from "../parts/sparkline";
import { mergeQuery, go, href, place, jobHref } from "../router";
import { type Found, keyOf } from "./pages";
import type { Column, Size } from "./columns";
import { type Sparks, loadOf } from "./sparks";

interface Given {
  at: number;
  top: number;
  job: Job | null;
  sparks: Sparks | null;
  found: Found | undefined;
  size: Size | undefined;
  tags: readonly string[] | undefined;
  /** Time of the last live update for a running or queued job, else 0. */
  now: number;
  picked: boolean;
  /** True if the maximum number of jobs is selected and this job is not among them. */
  closed: boolean;
  columns: readonly Column[];
  /** Name of the time zone. A change renders the row again. */
  zone: string;
}

export const Row = memo(function Row({ at, top, job, sparks, found, size, tags, now, picked, closed, columns }: Given) {
  if (!job) {
    return (
      <div class="row waiting" role="row" aria-rowindex={at + 2} style={{ top: `${top}px` }}>
        <div role="cell">…</div>
      </div>
    );
  }
  const key = keyOf(job);
  const has = (id: string) => columns.some((one) => one.id === id);
  return (
    <div class="row" role="row" aria-rowindex={at + 2} data-at={at} style={{ top: `${top}px` }}>
      <div role="cell" class="c-pick">
        <input type="checkbox" aria-label={`Compare ${job.name || job.id}`} checked={picked} disabled={closed} onChange={(event) => pick(key, event.currentTarget.checked)} />
      </div>
      <NameCells job={job} found={has("findings") ? undefined : found} tags={has("tags") ? undefined : tags} />
      <Cells key={key} job={job} sparks={sparks} found={found} size={size} tags={tags} now={now} columns={columns} />
    </div>
  );
});

/** Select a job for comparison, or deselect it. */
function pick(key: string, on: boolean): void {
  const { query } = place();
  const next = mergeQuery(query, { pick: null });
  for (const one of query.getAll("pick").filter((other) => other !== key).concat(on ? [key] : [])) next.append("pick", one);
  go(href([], next), true);
}

/** First cells of a row: state, name, and the worst finding and tags if these have no column. */
function NameCells({ job, found, tags }: { job: Job; found: Found | undefined; tags: readonly string[] | undefined }) {
  return (
    <>
      <div role="cell" class="c-state">
        <State state={job.state} />
      </div>
      <div role="cell" class="c-name">
        <a href={jobHref(job)} data-step title={[...new Set([job.name || job.id, job.id, ...(tags ?? [])])].join("\n")}>
          {found && <FindingMark found={found} />}
          <b>{job.name || job.id}</b>
          {tags?.map((one) => <i key={one} class="tag">{one}</i>)}
          {found?.sentence ? (
            <small class="why">
              <Sentence text={found.sentence} />
            </small>
          ) : (
            job.name && job.name !== job.id && <small>{job.id}</small>
          )}
        </a>
      </div>
    </>
  );
}

/** Cells of the chosen columns. */
function Cells({ job, sparks, found, size, tags, now, columns }: Pick<Given, "sparks" | "found" | "size" | "tags" | "now" | "columns"> & { job: Job }) {
  return (
    <>
      {columns.map((one) => (
        <div role="cell" key={one.id} class={`c-${one.id}`}>
          {one.id === "findings" ? found && <Finding found={found} running={job.state === "Running"} /> : one.id === "tags" ? <span title={tags?.join("\n")}>{tags?.join(", ")}</span> : cell(one.id, job, sparks, size, now)}
        </div>
      ))}
    </>
  );
}

/** Worst finding with its start, and the number of others. */
const Finding = ({ found, running }: { found: Found; running: boolean }) => (
  <FindingMark found={found} passed={running && !found.open}>
    <span class="rule"><Sentence text={found.sentence || ruleTitle(found.rules[0] ?? "")} /></span>
    <small>
      {found.start !== null && renderTime(found.start, "brief")}
      {found.count > 1 && <span>+{found.count - 1}</span>}
    </small>
  </FindingMark>
);

function FindingMark({ found, passed = false, children }: { found: Found; passed?: boolean; children?: ComponentChildren }) {
  const count = `${found.count} ${found.count === 1 ? "finding" : "findings"}${passed ? ", none of them open" : ""}`;
  const all = `${found.sentence}\n${count}, the worst ${found.severity}:\n${found.rules.map(ruleTitle).join("\n")}`;
  return (
    <Severity severity={found.severity} passed={passed} title={all}>
      {children ?? <span class="hidden">{ruleTitle(found.rules[0] ?? "")} </span>}
    </Severity>
  );
}

function cell(id: string, job: Job, sparks: Sparks | null, size: Size | undefined, now: number) {
  const start = job.start ?? job.first_sample;
  const end = job.end ?? (now || job.last_sample);
  switch (id) {
    case "group":
      return job.resource_group;
    case "type":
    case "project":
    case "user":
    case "workspace":
      return job[id];
    case "error":
      return <span title={job.error}>{job.error}</span>;
    case "exit":
      return job.exit_code ?? "";
    case "created":
      return renderTime(job.created, "brief");
    case "start":
      return renderTime(start, "brief");
    case "end":
      return renderTime(job.end, "brief");
    case "duration":
      if (job.state === "Queued" && job.created !== null && now) return <span class="none" title="Time in the queue">{formatDuration(now - job.created)}</span>;
      return start === null || end === null ? "–" : formatDuration(end - start);
    case "replicas":
    case "devices":
    case "nodes":
      return size?.[id] ? size[id].toLocaleString("en") : <span class="none">–</span>;
    case "memory":
      return sparks?.memory !== undefined && <Peak bytes={sparks.memory} limit={limitOf(job, size, "memory")} />;
    case "cpu":
      return curve(sparks, "cpu.usage", "cpu", limitOf(job, size, "cpu"));
    default:
      return curve(sparks, loadOf(sparks?.lines ?? {}), "gpu", 1);
  }
}

/** Return the limit of the whole job (a replica's limit times the replicas); 0 if unknown. */
const limitOf = (job: Job, size: Size | undefined, resource: string): number => (job.limits?.[`${resource}.limit`] ?? 0) * (size?.replicas ?? 0);

/** Peak memory of a job and its share of the limit. */
function Peak({ bytes, limit }: { bytes: number | null; limit: number }) {
  if (bytes === null) return <span class="none">–</span>;
  return (
    <span title={limit ? `${formatQuantity(bytes, "By")} of ${formatQuantity(limit, "By")}` : ""}>
      {formatQuantity(bytes, "By")}
      {limit > 0 && <small>{Math.round((100 * bytes) / limit)} % of limit</small>}
    </span>
  );
}

function curve(sparks: Sparks | null, metric: string, kind: "cpu" | "gpu", limit: number) {
  const points = sparks?.lines[metric];
  if (!sparks) return null;
  if (!points) return <span class="none">–</span>;
  return <Sparkline points={points} start={sparks.start} end={sparks.end} step={sparks.step} top={limit} unit={findMetric(metric)?.unit ?? ""} kind={kind} />;
}
