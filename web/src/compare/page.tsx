import { useMemo } from "preact/hooks";
import { Cursor, type Range } from "../charts/axis";
import { Chart } from "../charts/chart";
import { title, titleWithDevice } from "../catalog";
import { groupMetrics } from "../charts/groups";
import { step } from "../charts/steps";
import { formatDuration, isUtc } from "../format";
import { useDark, useZone } from "../parts/hooks";
import { isQuiet, spanClass } from "../job/charts";
import { Choice, Notice, Problem, Section } from "../parts/elements";
import { mergeQuery, go, href } from "../router";
import { type Comparison, type Per, useComparison, useLines, useMetrics } from "./data";
import { Figures, Jobs, Settings } from "./tables";

const SHOWN = 240;
const MOST_BUCKETS = 2000;

/** Comparison of jobs, each from its own start. The address holds the jobs and the zoom. */
export function ComparePage({ query }: { query: URLSearchParams }) {
  useZone();
  const jobs = query.getAll("job");
  if (jobs.length < 2) {
    return (
      <>
        <div class="heading">
          <h1>Compare</h1>
        </div>
        <Notice title="Choose at least two jobs to compare.">
          <p>Each job is shown from its own start, with its charts and figures beside the other jobs.</p>
          <p>
            <a href="#/">Select jobs in the list</a> with the check boxes, or compare them in a terminal:
          </p>
          <pre>jobmeter compare JOB JOB</pre>
        </Notice>
      </>
    );
  }
  return <LoadedPage jobs={jobs} query={query} />;
}

function LoadedPage({ jobs, query }: { jobs: readonly string[]; query: URLSearchParams }) {
  const project = query.get("project");
  const metrics = useMetrics(jobs, project);
  const zoom = zoomOf(query);
  const whole = Number(query.get("whole")) || null;
  const finer = zoom && whole ? Math.max(step(zoom.start, zoom.end, SHOWN), step(0, whole, MOST_BUCKETS)) : null;
  const response = useComparison(jobs, project, metrics.names, finer, perOf(query));
  const error = metrics.error ?? response.error;
  // An old comparison must not be shown for jobs that do not exist.
  if (error && (error.status === 404 || !response.data)) {
    return (
      <>
        <div class="heading">
          <h1>Compare</h1>
        </div>
        <Problem error={error} reload={response.reload} />
        <a href="#/">Select other jobs in the list</a>
      </>
    );
  }
  return (
    <>
      <div class="heading">
        <h1>Compare</h1>
        <p class="figures">
          <b>{jobs.length}</b> jobs, each from its own start
        </p>
      </div>
      {error && <Problem error={error} reload={response.reload} />}
      {response.data ? <ComparisonView comparison={response.data} query={query} zoom={zoom} names={metrics.names ?? []} busy={response.busy} /> : <p class="waiting">…</p>}
    </>
  );
}

function ComparisonView({ comparison, query, zoom, names, busy }: { comparison: Comparison; query: URLSearchParams; zoom: Range | null; names: readonly string[]; busy: boolean }) {
  const dark = useDark();
  const cursor = useMemo(() => new Cursor(), []);
  const lines = useLines(comparison);
  const quiet = [...lines].filter(([metric, mine]) => isQuiet(metric, mine)).map(([metric]) => metric);
  const longest = Math.max(1000, ...comparison.jobs.map(({ summary }) => summary.duration_ms ?? 0), ...comparison.lines.map((line) => (line.points.at(-1)?.[0] ?? 0) + comparison.step));
  const range = zoom ?? { start: 0, end: longest };
  const set = (values: Record<string, string | null>) => go(href(["compare"], mergeQuery(query, values)), true);
  const brush = (range: Range) => set({ from: String(Math.max(0, Math.round(range.start))), to: String(Math.round(range.end)), whole: String(longest) });
  const without = (id: string) => {
    const next = mergeQuery(query, { job: null });
    for (const job of query.getAll("job")) if (job !== id) next.append("job", job);
    go(href(["compare"], next), true);
  };
  return (
    <>
      <Jobs jobs={comparison.jobs} dark={dark} without={without} />
      <Settings jobs={comparison.jobs} settings={comparison.settings} />
      <Choice<Per>
        label="Values"
        value={perOf(query)}
        options={[
          ["job", "Whole job"],
          ["device", "Per device"],
        ]}
        choose={(per) => set({ per: per === "job" ? null : per })}
      />
      {zoom && (
        <p class="zoomed">
          From {formatDuration(zoom.start)} to {formatDuration(zoom.end)} after the start{" "}
          <button type="button" onClick={() => set({ from: null, to: null, whole: null })}>
            Whole jobs
          </button>
        </p>
      )}
      {!lines.size && <Notice title="No measurements of these jobs." />}
      <div class="groups" aria-busy={busy}>
        {groupMetrics(names.filter((name) => !quiet.includes(name))).map((group) => (
          <Section key={group.id} id={group.id} title={group.title} kind={spanClass(group.main.length)}>
            <div class="grid">
              {group.main.map((metric) => {
                const mine = lines.get(metric);
                const view = { range, step: comparison.step, cursor, marks: [], chosen: null, dark, utc: isUtc(), brush };
                return mine && <Chart key={metric} metric={metric} title={title(metric)} lines={mine} {...view} relative />;
              })}
            </div>
          </Section>
        ))}
      </div>
      {quiet.length > 0 && (
        <p class="hint">
          {quiet.length} that stayed 0: {quiet.map(titleWithDevice).join(", ")}
        </p>
      )}
      <Figures jobs={comparison.jobs} metrics={names} per={perOf(query)} />
    </>
  );
}

const perOf = (query: URLSearchParams): Per => (query.get("per") === "device" ? "device" : "job");

function zoomOf(query: URLSearchParams): Range | null {
  const [start, end] = [Number(query.get("from") ?? Number.NaN), Number(query.get("to") ?? Number.NaN)];
  return start >= 0 && end > start ? { start, end } : null;
}
