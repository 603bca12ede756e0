// Charts of a job, by group.
import { GROUPS, METRICS, findMetric } from "../catalog";

export interface Group {
  id: string;
  title: string;
  main: string[];
  more: string[];
}

const CUSTOM = /^(app|external)\./;
const FEW = 4;
const order = new Map(METRICS.map((metric, place) => [metric.name, place]));
const rank = (name: string): number => order.get(name) ?? METRICS.length;

/** Group the metrics of a job that have charts. Secondary charts are in `more`. */
export function groupMetrics(metrics: readonly string[]): Group[] {
  const sorted = [...metrics].sort((a, b) => rank(a) - rank(b));
  const has = (name: string, view: string): boolean => findMetric(name)?.views.includes(view) ?? (view === "first" && CUSTOM.test(name));
  return GROUPS.map(({ id, title }) => {
    const mine = sorted.filter((name) => (findMetric(name)?.group ?? "application") === id);
    const [main, more] = [mine.filter((name) => has(name, "first")), mine.filter((name) => has(name, "chart"))];
    return main.length ? { id, title, main, more } : { id, title, main: more.slice(0, FEW), more: more.slice(FEW) };
  }).filter((group) => group.main.length);
}
