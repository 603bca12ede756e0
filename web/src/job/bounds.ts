// Limits shown in charts, from the job's record, else measured.
import { useMemo } from "preact/hooks";
import { type Job, type MetricLines, address, linesOf } from "../api/client";
import type { Range } from "../charts/axis";
import { step, stepText } from "../charts/steps";
import { useRead } from "../parts/hooks";
import type { By } from "./data";

export type Bounds = ReadonlyMap<string, readonly number[]>;

/** Maximum number of different limits shown in one chart. */
const MOST = 3;

const limitOf = (metric: string): string => `${metric.replace(/\.usage$/, "")}.limit`;

/** Return the limits by metric, in the unit of the metric. */
export function useBounds(job: Job, names: readonly string[], by: By | null, life: Range, due: boolean): Bounds {
  const limits = names.map(limitOf);
  const asked = names.filter((name) => name.endsWith(".limit") && limits.includes(name) && job.limits[name] === undefined);
  // Whole days keep the URL stable, so the response stays cached while the job runs.
  const [start, end] = [Math.floor(life.start / DAY) * DAY, Math.ceil(life.end / DAY) * DAY];
  const query = { metric: asked.slice(0, 90), by, start, end, step: stepText(step(start, end, 1)), statistic: "last", format: "columns", project: job.project };
  const response = useRead<MetricLines>(due && by && asked.length ? address("/api/jobmeter/v1/jobs/{job}/metrics", { job: job.id }, query) : null);
  return useMemo(() => {
    const measured = new Map<string, Set<number>>();
    for (const { metric, value } of response.data ? linesOf(response.data) : []) {
      const newest = value[value.length - 1];
      if (newest) measured.set(metric, (measured.get(metric) ?? new Set()).add(newest));
    }
    const found = names.flatMap((name): [string, number[]][] => {
      const limit = limitOf(name);
      const own = job.limits[limit];
      const all = own === undefined ? [...(measured.get(limit) ?? [])] : [own];
      return all.length && all.length <= MOST ? [[name, all.sort((a, b) => a - b)]] : [];
    });
    return new Map(found);
  }, [response.data, names, job.limits]);
}

const DAY = 86_400_000;
