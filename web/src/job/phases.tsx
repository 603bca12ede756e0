// Phases of the job as a thin band on the time axis, with their durations.
import { type Schemas, address } from "../api/client";
import type { Range } from "../charts/axis";
import { formatDuration, formatQuantity } from "../format";
import { memo } from "../parts/memo";
import { useWholeJob } from "./data";

type Found = Schemas["JobPhases"];
type Span = Schemas["PhaseSpan"];
export type PhaseName = Span["phase"];

/** Order in which a job goes through the phases. */
const ORDER: readonly PhaseName[] = ["queued", "prepare", "start", "first_step", "training", "checkpoint", "restart", "repeat", "end", "unattributed"];
const TITLES: Partial<Record<PhaseName, string>> = { prepare: "image pull or prolog", first_step: "first step", repeat: "repeated steps" };
/** Share of the range below which a phase is too narrow to be visible. */
const LEAST = 0.0005;

export const usePhases = (job: { id: string; project: string }, due: boolean, running: boolean): Found | null =>
  useWholeJob<Found>(address("/api/jobmeter/v1/jobs/{job}/phases", { job: job.id }, { project: job.project }), due, running);

const phaseTitle = (phase: PhaseName): string => TITLES[phase] ?? phase;

/** Band over the visible range, and the durations over the whole job. */
export const Phases = memo(function Phases({ phases, range, expected }: { phases: Found | null; range: Range; expected: boolean }) {
  // Reserve the height, so that the page below does not move.
  if (!phases && expected) return <div class="phases" />;
  // A job without separable phases has nothing to draw.
  if (!phases?.spans.some((span) => span.phase !== "unattributed")) return null;
  const length = range.end - range.start;
  const share = (ms: number) => (ms - range.start) / length;
  const drawn = phases.spans
    .map((span) => ({ span, from: Math.max(share(span.start), 0), to: Math.min(share(span.end), 1) }))
    .filter(({ from, to }) => to - from > LEAST);
  const whole = phases.end - phases.start;
  return (
    <div class="phases" role="region" aria-label="Phases">
      <div class="band" aria-hidden="true">
        {drawn.map(({ span, from, to }) => (
          <i
            key={`${span.start}`}
            class={`phase-${span.phase}`}
            style={{ left: `${100 * from}%`, width: `${100 * (to - from)}%` }}
            title={`${phaseTitle(span.phase)}, ${formatDuration(span.end - span.start)}${span.attempt ? `, after restart ${span.attempt}` : ""}`}
          />
        ))}
      </div>
      <ul>
        {ORDER.filter((phase) => phases.totals[phase]).map((phase) => (
          <li key={phase} title={describePhase(phases, phase, whole)}>
            <i class={`phase-${phase}`} /> {phaseTitle(phase)} <b>{formatDuration(phases.totals[phase]!)}</b>
          </li>
        ))}
      </ul>
    </div>
  );
});

/** Describe a phase: "3 times, 12 % of the time from its submission". */
function describePhase(phases: Found, phase: PhaseName, whole: number): string {
  const times = phases.spans.filter((span) => span.phase === phase).length;
  return `${times === 1 ? "once" : `${times} times`}, ${formatQuantity(phases.totals[phase]! / whole, "1")} of the time`;
}
