import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import type { Job } from "../api/client";
import { duration, spoken } from "../format";
import { Moment, State } from "../parts/small";
import { Sparkline } from "../parts/sparkline";
import { href } from "../router";
import { type Found, type Use, keyOf } from "./pages";
import { MOST_COMPARED } from "./picked";
import type { Column } from "./columns";
import { type Sparks, useSparks } from "./sparks";

interface Given {
  at: number;
  top: number;
  job: Job | null;
  use: ReadonlyMap<string, Use>;
  found: ReadonlyMap<string, Found>;
  picked: ReadonlySet<string>;
  pick: (key: string, on: boolean) => void;
  columns: readonly Column[];
}

export function Row({ at, top, job, use, found, picked, pick, columns }: Given) {
  if (!job) {
    return (
      <div class="row waiting" role="row" aria-rowindex={at + 2} style={{ transform: `translateY(${top}px)` }}>
        <div role="cell">…</div>
      </div>
    );
  }
  return (
    <div class="row" role="row" aria-rowindex={at + 2} data-at={at} style={{ transform: `translateY(${top}px)` }}>
      <div role="cell" class="c-pick">
        <input
          type="checkbox"
          aria-label={`Compare ${job.name || job.id}`}
          checked={picked.has(keyOf(job))}
          disabled={!picked.has(keyOf(job)) && picked.size >= MOST_COMPARED}
          onChange={(event) => pick(keyOf(job), event.currentTarget.checked)}
        />
      </div>
      <Facts job={job} found={columns.some((one) => one.id === "findings") ? undefined : found.get(keyOf(job))} now={job.state === "Running" ? Math.floor(Date.now() / 1000) : 0} />
      <Cells key={keyOf(job)} job={job} use={use.get(keyOf(job))} found={found.get(keyOf(job))} columns={columns} />
    </div>
  );
}

/** What every row says. Where there is no column of findings a sign says that there are some. */
const Facts = memo(function Facts({ job, found }: { job: Job; found: Found | undefined; now: number }) {
  const query = { ...(job.project === "default" ? {} : { project: job.project }) };
  return (
    <>
      <div role="cell" class="c-state">
        <State state={job.state} />
      </div>
      <div role="cell" class="c-name">
        <a href={href(["jobs", job.id], query)} title={job.name ? `${job.name}\n${job.id}` : job.id}>
          {found && <Sign found={found} />}
          <b>{job.name || job.id}</b>
          {job.name && job.name !== job.id && <small>{job.id}</small>}
        </a>
      </div>
    </>
  );
});

/** The cells of the columns that were chosen; curves are asked for where they are shown. */
function Cells({ job, use, found, columns }: { job: Job; use: Use | undefined; found: Found | undefined; columns: readonly Column[] }) {
  const drawn = columns.some((one) => one.id === "cpu" || one.id === "gpu");
  const sparks = useSparks(job, use, drawn);
  return (
    <>
      {columns.map((one) => (
        <div role="cell" key={one.id} class={`c-${one.id}`}>
          {one.id === "findings" ? found && <Finding found={found} /> : cell(one.id, job, sparks)}
        </div>
      ))}
    </>
  );
}

const MARKS: Record<Found["severity"], string> = {
  critical: "M6 1.2L11 10.6H1z",
  warning: "M6 1.2L11 10.6H1z",
  info: "M2 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
};

/** The worst rule that found something in the job, and how many more findings there are. */
const Finding = ({ found }: { found: Found }) => (
  <Sign found={found}>
    <span class="rule">{spoken(found.rules[0] ?? "")}</span>
    {found.count > 1 && <small>+{found.count - 1}</small>}
  </Sign>
);

function Sign({ found, children }: { found: Found; children?: ComponentChildren }) {
  const all = `${found.count} ${found.count === 1 ? "finding" : "findings"}, the worst ${found.severity}:\n${found.rules.map(spoken).join("\n")}`;
  return (
    <span class={`found ${found.severity}`} title={all}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        <path d={MARKS[found.severity]} />
      </svg>
      <span class="hidden">{found.severity}: </span>
      {children ?? <span class="hidden">{spoken(found.rules[0] ?? "")} </span>}
    </span>
  );
}

function cell(id: string, job: Job, sparks: Sparks | null) {
  const start = job.start ?? job.first_sample;
  const end = job.end ?? (job.state === "Running" ? Date.now() : job.last_sample);
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
      return <Moment ms={job.created} brief />;
    case "start":
      return <Moment ms={start} brief />;
    case "end":
      return <Moment ms={job.end} brief />;
    case "duration":
      return start === null || end === null ? "–" : duration(end - start);
    case "cpu":
      return curve(sparks, "cpu.usage", "cpu");
    default:
      return curve(sparks, sparks?.lines["gpu.utilization"] ? "gpu.utilization" : "npu.utilization", "gpu");
  }
}

function curve(sparks: Sparks | null, metric: string, kind: "cpu" | "gpu") {
  const points = sparks?.lines[metric];
  if (!sparks || !points) return <span class="none">{sparks ? "–" : ""}</span>;
  const unit = kind === "cpu" ? "{core}" : "1";
  return <Sparkline points={points} start={sparks.start} end={sparks.end} step={sparks.step} top={kind === "gpu" ? 1 : 0} unit={unit} kind={kind} />;
}
