import { useMemo, useRef, useState } from "preact/hooks";
import { type Line, type MetricLines, address, linesByMetric } from "../api/client";
import { findMetric, title, titleWithDevice } from "../catalog";
import type { Cursor, Mark, Range } from "../charts/axis";
import { Chart } from "../charts/chart";
import type { Group } from "../charts/groups";
import { sortLines } from "../charts/lines";
import type { Flag } from "../charts/series";
import { stepText } from "../charts/steps";
import { isUtc } from "../format";
import { useDark, useRead, useZone } from "../parts/hooks";
import { memo } from "../parts/memo";
import { Problem, Section } from "../parts/elements";
import type { Bounds } from "./bounds";

interface View {
  range: Range;
  step: number;
  cursor: Cursor;
  marks: readonly Mark[];
  chosen: string | null;
  flags: readonly Flag[];
  brush: (range: Range) => void;
}

interface Given extends View {
  groups: readonly Group[];
  lines: ReadonlyMap<string, readonly Line[]>;
  busy: boolean;
  refused: boolean;
  job: { id: string; project: string };
  by: string;
  bounds: Bounds;
  /** Metrics that are evidence of findings. Their charts are shown even if all values are 0. */
  spoken: ReadonlySet<string>;
}

/** Maximum number of charts in a row. */
const ROW = 4;
export const spanClass = (charts: number): string => `span-${Math.min(Math.max(charts, 1), ROW)}`;

const quietCache = new WeakMap<readonly Line[], boolean>();

/** Return true if all values of a metric are 0. Utilization metrics are never quiet. */
export function isQuiet(metric: string, lines: readonly Line[]): boolean {
  let quiet = quietCache.get(lines);
  if (quiet === undefined) quietCache.set(lines, (quiet = lines.every(({ value }) => value.every((one) => one === 0))));
  return quiet && !findMetric(metric)?.views.includes("use");
}

/** Return the metrics that were quiet since the page was opened. */
function useQuiet(groups: readonly Group[], lines: ReadonlyMap<string, readonly Line[]>, spoken: ReadonlySet<string>): ReadonlySet<string> {
  const seen = useRef(new Set<string>());
  return useMemo(() => {
    const quiet = new Set<string>();
    for (const metric of groups.flatMap((group) => group.main)) {
      const mine = lines.get(metric);
      if (!mine || seen.current.has(metric)) continue;
      if (isQuiet(metric, mine) && !spoken.has(metric)) quiet.add(metric);
      else seen.current.add(metric);
    }
    return quiet;
  }, [groups, lines, spoken]);
}

/** Charts by group: important ones first, the others on demand. */
export const Charts = memo(function Charts(given: Given) {
  const dark = useDark();
  useZone();
  const utc = isUtc();
  const { groups, lines, busy, refused, job, by, bounds, spoken, ...view } = given;
  const quiet = useQuiet(groups, lines, spoken);
  const [open, setOpen] = useState(false);
  const chart = (metric: string) => {
    const mine = lines.get(metric);
    return mine ? (
      <Chart key={metric} metric={metric} title={title(metric)} lines={mine} bounds={bounds.get(metric)} {...view} dark={dark} utc={utc} />
    ) : (
      <EmptyChart key={metric} metric={metric} busy={busy} refused={refused} />
    );
  };
  return (
    <div class="groups" aria-busy={busy}>
      {groups
        .map((group) => ({ group, shown: group.main.filter((metric) => !quiet.has(metric)) }))
        .filter(({ group, shown }) => shown.length || group.more.length)
        .map(({ group, shown }) => (
          <Section key={group.id} id={group.id} title={group.title} kind={spanClass(shown.length)}>
            <div class="grid">{shown.map(chart)}</div>
            {group.more.length > 0 && <More group={group} job={job} by={by} {...view} dark={dark} utc={utc} />}
          </Section>
        ))}
      {quiet.size > 0 && (
        <details class="more quiet span-4" onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>
            {quiet.size} that stayed 0: {[...quiet].map(titleWithDevice).join(", ")}
          </summary>
          {open && <div class="grid">{[...quiet].map(chart)}</div>}
        </details>
      )}
    </div>
  );
});

function EmptyChart({ metric, busy, refused = false }: { metric: string; busy: boolean; refused?: boolean }) {
  return (
    <figure class={`chart waiting ${busy && !refused ? "skeleton" : ""}`}>
      <figcaption>
        <span class="title">{title(metric)}</span>
      </figcaption>
      <div class="plot">{refused ? "The server has not answered yet." : busy ? "" : "No samples in this range."}</div>
    </figure>
  );
}

function More(given: View & { group: Group; job: { id: string; project: string }; by: string; dark: boolean; utc: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="more" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {given.group.more.length} more in {given.group.title}
      </summary>
      {open && <MoreCharts {...given} />}
    </details>
  );
}

function MoreCharts(given: View & { group: Group; job: { id: string; project: string }; by: string; dark: boolean; utc: boolean }) {
  const { group, job, by, ...view } = given;
  // Round the range to whole buckets, so that live updates do not request the charts again.
  const [start, end] = [view.range.start, view.range.end].map((time) => Math.ceil(time / (10 * view.step)) * 10 * view.step);
  const query = { metric: group.more.slice(0, 90), by, start: start! - 10 * view.step, end, step: stepText(view.step), format: "columns", project: job.project };
  const response = useRead<MetricLines>(address("/api/jobmeter/v1/jobs/{job}/metrics", { job: job.id }, query));
  const found = useMemo(() => new Map([...linesByMetric(response.data)].map(([name, mine]) => [name, sortLines(mine)])), [response.data]);
  if (response.error) return <Problem error={response.error} reload={response.reload} />;
  return (
    <div class="grid">
      {group.more.map((metric) => {
        const mine = found.get(metric);
        return mine ? <Chart key={metric} metric={metric} title={title(metric)} lines={mine} {...view} /> : <EmptyChart key={metric} metric={metric} busy={response.busy} />;
      })}
    </div>
  );
}
