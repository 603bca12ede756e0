// Requests of the comparison: the metrics of the jobs, then their series.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Line, type Point, type Schemas, Refusal, address, read } from "../api/client";
import { groupMetrics } from "../charts/groups";
import { median } from "../charts/lines";
import { stepText } from "../charts/steps";
import { useRead } from "../parts/hooks";

export type Comparison = Omit<Schemas["Comparison"], "lines"> & { lines: (Omit<Schemas["ComparedLine"], "points"> & { points: Point[] })[] };
export type Compared = Schemas["ComparedJob"];
export type Setting = Schemas["ComparedSetting"];
/** Values of the whole job, or the mean of its devices. */
export type Per = "job" | "device";
const AGAIN_MS = 15_000;
const MOST_METRICS = 40;

/** Return the metrics of any of the jobs, and their groups as on the job page; null until loaded. */
export function useMetrics(jobs: readonly string[], project: string | null): { names: string[] | null; error: Refusal | null } {
  const [state, setState] = useState<{ names: string[] | null; error: Refusal | null }>({ names: null, error: null });
  useEffect(() => {
    const gone = new AbortController();
    const ask = (job: string) => read<Schemas["MetricNames"]>(address("/api/jobmeter/v1/jobs/{job}/metrics/names", { job }, { project }), gone.signal);
    Promise.all(jobs.map(ask)).then(
      (catalog) => {
        const names = groupMetrics([...new Set(catalog.flatMap((one) => one.metrics))]).flatMap((group) => group.main);
        setState({ names: names.slice(0, MOST_METRICS), error: null });
      },
      (error: unknown) => error instanceof Refusal && setState({ names: null, error }),
    );
    return () => gone.abort();
  }, [jobs.join("\u0000"), project]);
  return state;
}

/** Read the comparison; poll it while one of the jobs runs. */
export function useComparison(jobs: readonly string[], project: string | null, metrics: readonly string[] | null, step: number | null, per: Per) {
  const query = { job: jobs, metric: metrics ?? [], step: step === null ? null : stepText(step), per: per === "job" ? null : per, project };
  const response = useRead<Comparison>(metrics && jobs.length ? address("/api/jobmeter/v1/compare", {}, query) : null);
  const running = response.data?.jobs.some(({ job }) => job.state === "Running") ?? false;
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => document.hidden || response.reload(), AGAIN_MS);
    return () => clearInterval(timer);
  }, [running]);
  return response;
}

/** Number of steps above which the distance of two samples is a gap. Unaligned samples are one or two steps apart. */
const GAP = 2.5;

/** Fill in values up to a series' next sample, because one job may be sampled more rarely than another. */
function fillGaps(points: readonly Point[], step: number): Pick<Line, "time" | "value"> {
  const gaps = points.slice(1).map(([time], at) => time - points[at]![0]);
  const most = GAP * (median(gaps) ?? step);
  const all = points.flatMap(([time, value], at) => {
    const next = points[at + 1]?.[0] ?? time;
    const until = next - time <= most ? next : time + step;
    return Array.from({ length: Math.max(1, Math.ceil((until - time) / step)) }, (_, more): Point => [time + more * step, value]);
  });
  return { time: all.map(([time]) => time), value: all.map(([, value]) => value) };
}

/** Return the label of each job: its name if unique, else its id. */
export function jobLabels(jobs: readonly Compared[]): string[] {
  const names = jobs.map(({ job }) => job.name || job.id);
  return jobs.map(({ job }, at) => (names.filter((name) => name === names[at]).length > 1 ? job.id : names[at]!));
}

/** Return the series by metric, one for each job, so that a job has the same colour in all charts. */
export function useLines(comparison: Comparison | null): Map<string, Line[]> {
  return useMemo(() => {
    const found = new Map<string, Line[]>();
    if (!comparison) return found;
    const called = jobLabels(comparison.jobs);
    for (const metric of new Set(comparison.lines.map((line) => line.metric))) {
      const mine = comparison.lines.filter((line) => line.metric === metric);
      const lines = comparison.jobs.map(({ job }, rank): Line => {
        const line = mine.find((one) => one.job === job.id && one.project === job.project);
        return { metric, unit: mine[0]!.unit, replica: called[rank]!, node: "", device: "", rank, ...fillGaps(line?.points ?? [], comparison.step) };
      });
      found.set(metric, lines);
    }
    return found;
  }, [comparison]);
}
