// What metrics are called where they stand in one table.
import { title } from "../catalog";

/** A table has no groups: what is an accelerator's says so. */
export function named(metric: string): string {
  const text = title(metric);
  return metric.startsWith("gpu.") ? `GPU ${text.charAt(0).toLowerCase()}${text.slice(1)}` : text;
}
