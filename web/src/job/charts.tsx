import { useMemo, useState } from "preact/hooks";
import { type Line, type MetricLines, address, linesOf } from "../api/client";
import { title } from "../catalog";
import type { Cursor, Mark, Range } from "../charts/axis";
import { Chart } from "../charts/chart";
import type { Group } from "../charts/groups";
import { ordered } from "../charts/lines";
import { stepText } from "../charts/steps";
import { isUtc } from "../format";
import { useDark, useRead, useZone } from "../parts/hooks";
import { memo } from "../parts/memo";
import { Problem, Section } from "../parts/small";

interface View {
  range: Range;
  step: number;
  cursor: Cursor;
  marks: readonly Mark[];
  chosen: string | null;
  brush: (range: Range) => void;
}

interface Given extends View {
  groups: readonly Group[];
  lines: ReadonlyMap<string, readonly Line[]>;
  busy: boolean;
  refused: boolean;
  job: { id: string; project: string };
  by: string;
}

/** The charts in their groups: what is worth a first look, and the rest where it is asked for. */
export const Charts = memo(function Charts(given: Given) {
  const dark = useDark();
  useZone();
  const utc = isUtc();
  const { groups, lines, busy, refused, job, by, ...view } = given;
  return (
    <div class="groups" aria-busy={busy}>
      {groups.map((group) => (
        <Section key={group.id} id={group.id} title={group.title} kind={`span-${Math.min(group.main.length, 3)}`}>
          <div class="grid">
            {group.main.map((metric) => {
              const mine = lines.get(metric);
              return mine ? <Chart key={metric} metric={metric} title={title(metric)} lines={mine} {...view} dark={dark} utc={utc} /> : <Waiting key={metric} metric={metric} busy={busy} refused={refused} />;
            })}
          </div>
          {group.more.length > 0 && <More group={group} job={job} by={by} {...view} dark={dark} utc={utc} />}
        </Section>
      ))}
    </div>
  );
});

function Waiting({ metric, busy, refused = false }: { metric: string; busy: boolean; refused?: boolean }) {
  return (
    <figure class="chart waiting">
      <figcaption>
        <span class="title">{title(metric)}</span>
      </figcaption>
      <div class="plot">{refused ? "The server did not answer this yet." : busy ? "" : "Nothing was measured in this range."}</div>
    </figure>
  );
}

function More(given: View & { group: Group; job: { id: string; project: string }; by: string; dark: boolean; utc: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="more" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {given.group.more.length} more of {given.group.title}
      </summary>
      {open && <Rest {...given} />}
    </details>
  );
}

function Rest(given: View & { group: Group; job: { id: string; project: string }; by: string; dark: boolean; utc: boolean }) {
  const { group, job, by, ...view } = given;
  // Asked for in whole buckets, so that what is shown live is not asked for with every update.
  const [start, end] = [view.range.start, view.range.end].map((time) => Math.ceil(time / (10 * view.step)) * 10 * view.step);
  const query = { metric: group.more.slice(0, 90), by, start: start! - 10 * view.step, end, step: stepText(view.step), format: "columns", project: job.project };
  const response = useRead<MetricLines>(address("/api/jobmeter/v1/jobs/{job}/metrics", { job: job.id }, query));
  const found = useMemo(() => {
    const lines = new Map<string, Line[]>();
    for (const line of response.data ? linesOf(response.data) : []) lines.set(line.metric, [...(lines.get(line.metric) ?? []), line]);
    return new Map([...lines].map(([name, mine]) => [name, ordered(mine)]));
  }, [response.data]);
  if (response.error) return <Problem error={response.error} again={response.again} />;
  return (
    <div class="grid">
      {group.more.map((metric) => {
        const mine = found.get(metric);
        return mine ? <Chart key={metric} metric={metric} title={title(metric)} lines={mine} {...view} /> : <Waiting key={metric} metric={metric} busy={response.busy} />;
      })}
    </div>
  );
}
