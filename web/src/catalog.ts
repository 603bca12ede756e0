// Titles, groups and places of metrics and rules. `make docs` writes ../catalog.json from the program's catalogue.
import data from "../catalog.json";

interface Metric {
  name: string;
  title: string;
  group: string;
  unit: string;
  column: string;
  views: readonly string[];
}

/** Every metric of the catalogue, in the order in which people see them. */
export const METRICS: readonly Metric[] = data.metrics;
/** The groups of metrics, in their order. */
export const GROUPS: readonly { id: string; title: string }[] = data.groups;

const byName = new Map(METRICS.map((metric) => [metric.name, metric]));
const ruleTitles: Readonly<Record<string, string>> = data.rules;

/** The row of a metric; undefined for names that programs make up. */
export const metricOf = (name: string): Metric | undefined => byName.get(name);

/** The names of the metrics that people see in a place, by group. */
export const shownIn = (view: string): string[] => GROUPS.flatMap(({ id }) => METRICS.filter((metric) => metric.group === id && metric.views.includes(view)).map(({ name }) => name));

/** The heading of a metric; without a row it is made from the name. */
export function title(name: string): string {
  const words = name.replace(/^(app|external)\./, "").replace(/[._]/g, " ");
  return byName.get(name)?.title ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** The heading of a rule; a rule of a plug-in may have no row here. */
export function ruleTitle(name: string): string {
  const words = name.replace(/_/g, " ");
  return ruleTitles[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}
