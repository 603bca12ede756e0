import { title } from "../catalog";

/** Return the title of a metric for lists without groups: accelerator metrics start with "GPU". */
export function named(metric: string): string {
  const text = title(metric);
  return metric.startsWith("gpu.") ? `GPU ${text.charAt(0).toLowerCase()}${text.slice(1)}` : text;
}
