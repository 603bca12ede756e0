import { memo } from "preact/compat";
import type { Job } from "../api/client";
import { duration } from "../format";
import { Moment, State } from "../parts/small";
import { Sparkline } from "../parts/sparkline";
import { href } from "../router";
import { type Use, keyOf } from "./pages";
import { useSparks } from "./sparks";

interface Given {
  at: number;
  top: number;
  job: Job | null;
  use: ReadonlyMap<string, Use>;
}

export function Row({ at, top, job, use }: Given) {
  if (!job) {
    return (
      <div class="row waiting" role="row" aria-rowindex={at + 2} style={{ transform: `translateY(${top}px)` }}>
        <div role="cell">…</div>
      </div>
    );
  }
  return (
    <div class="row" role="row" aria-rowindex={at + 2} data-at={at} style={{ transform: `translateY(${top}px)` }}>
      <Facts job={job} now={job.state === "Running" ? Math.floor(Date.now() / 1000) : 0} />
      <Sparks key={keyOf(job)} job={job} use={use.get(keyOf(job))} />
    </div>
  );
}

const Facts = memo(function Facts({ job }: { job: Job; now: number }) {
  const start = job.start ?? job.first_sample;
  const end = job.end ?? (job.state === "Running" ? Date.now() : job.last_sample);
  const query = { ...(job.project === "default" ? {} : { project: job.project }) };
  return (
    <>
      <div role="cell" class="c-state">
        <State state={job.state} />
      </div>
      <div role="cell" class="c-name">
        <a href={href(["jobs", job.id], query)} title={job.name ? `${job.name}\n${job.id}` : job.id}>
          <b>{job.name || job.id}</b>
          {job.name && job.name !== job.id && <small>{job.id}</small>}
        </a>
      </div>
      <div role="cell" class="c-type">{job.type}</div>
      <div role="cell" class="c-project">{job.project}</div>
      <div role="cell" class="c-user">{job.user}</div>
      <div role="cell" class="c-group">{job.resource_group}</div>
      <div role="cell" class="c-start">
        <Moment ms={start} short />
      </div>
      <div role="cell" class="c-duration">{start === null || end === null ? "–" : duration(end - start)}</div>
    </>
  );
});

function Sparks({ job, use }: { job: Job; use: Use | undefined }) {
  const sparks = useSparks(job, use);
  const device = sparks?.lines["gpu.utilization"] ? "gpu.utilization" : "npu.utilization";
  const draw = (metric: string, kind: "cpu" | "gpu") => {
    const points = sparks?.lines[metric];
    if (!sparks || !points) return <span class="none">{sparks ? "–" : ""}</span>;
    const unit = kind === "cpu" ? "{core}" : "1";
    return <Sparkline points={points} start={sparks.start} end={sparks.end} step={sparks.step} top={kind === "gpu" ? 1 : 0} unit={unit} kind={kind} />;
  };
  return (
    <>
      <div role="cell" class="c-cpu">{draw("cpu.usage", "cpu")}</div>
      <div role="cell" class="c-gpu">{draw(device, "gpu")}</div>
    </>
  );
}
