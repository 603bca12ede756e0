// Titles, groups and views of metrics and rules. `make docs` writes ../catalog.json from the program's catalogue.
import data from "../catalog.json";

interface Metric {
  name: string;
  title: string;
  group: string;
  unit: string;
  column: string;
  views: readonly string[];
}

/** Every metric of the catalogue, in display order. */
export const METRICS: readonly Metric[] = data.metrics;
/** Groups of metrics, in display order. */
export const GROUPS: readonly { id: string; title: string }[] = data.groups;

const byName = new Map(METRICS.map((metric) => [metric.name, metric]));
const ruleTitles: Readonly<Record<string, string>> = data.rules;

/** Return the catalogue entry of a metric; undefined for custom metrics. */
export const findMetric = (name: string): Metric | undefined => byName.get(name);

/** Return the names of the metrics that a view shows, by group. */
export const metricsIn = (view: string): string[] => GROUPS.flatMap(({ id }) => METRICS.filter((metric) => metric.group === id && metric.views.includes(view)).map(({ name }) => name));

/** Return the title of a metric. Custom metrics get one made from their name. */
export function title(name: string): string {
  const words = name.replace(/^(app|external)\./, "").replace(/[._]/g, " ");
  return byName.get(name)?.title ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** Return the title of a metric for lists without groups: accelerator metrics start with "GPU". */
export function titleWithDevice(name: string): string {
  const text = title(name);
  return name.startsWith("gpu.") ? `GPU ${text.charAt(0).toLowerCase()}${text.slice(1)}` : text;
}

/** Return the title of a rule. Rules of plug-ins have no entry and get one made from their name. */
export function ruleTitle(name: string): string {
  const words = name.replace(/_/g, " ");
  return ruleTitles[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}
