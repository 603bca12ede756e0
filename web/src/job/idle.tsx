// Idle device hours of the job and their cost, as computed by the server.
import { type Schemas, address } from "../api/client";
import { formatMoney, formatQuantity } from "../format";
import { useWholeJob } from "./data";

export type Idle = Schemas["IdleBody"];

/** Minimum length of a job in milliseconds: devices count as idle only after this time. */
const HOLD = 15 * 60_000;
/** Share of unmeasured time above which the hint mentions it. */
const UNMEASURED = 0.05;

/** Read the idle time of a job with devices. */
export const useIdle = (job: { id: string; project: string }, due: boolean, running: boolean): Idle | null =>
  useWholeJob<Idle>(address("/api/jobmeter/v1/jobs/{job}/idle", { job: job.id }, { project: job.project }), due, running);

/** Format idle time: "5.0 % idle, 6.40 of 128 device hours, 16.00 CNY". Null without idle time. */
export function describeIdle(idle: Idle): { text: string; hint: string; wasted: boolean } | null {
  if (idle.idle === null || !idle.allocated || idle.end - idle.start < HOLD) return null;
  const all = `${hours(idle.allocated)} device hours`;
  const missing = 1 - idle.measured / idle.allocated;
  const parts = [`${formatQuantity(idle.idle / idle.allocated, "1")} idle`];
  if (idle.idle) parts.push(`${hours(idle.idle)} of ${all}`);
  if (idle.idle && idle.cost !== null) parts.push(formatMoney(idle.cost, idle.currency));
  if (missing > UNMEASURED) parts.push(`${formatQuantity(missing, "1")} not measured`);
  const hints = [`The job had its devices for ${all}. A device is idle after 15 minutes at 1 % or less.`];
  if (idle.idle && idle.cost !== null && idle.unpriced) hints.push(`${hours(idle.unpriced)} of these hours have no price.`);
  return { text: parts.join(", "), hint: hints.join(" "), wasted: idle.idle > 0 };
}

/** Format device seconds as hours: "6.40", "1,054". */
export function hours(seconds: number): string {
  const value = seconds / 3600;
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(value >= 10 ? 1 : 2);
}
