// Differences between a replica and the median, and between jobs.
import { formatQuantity } from "../format";

/** Share of the median from which on a replica is an outlier. */
const OUTLIER_SHARE = 0.08;

export const isOutlier = (own: number | null, middle: number): boolean => own !== null && Math.abs(own - middle) > Math.max(Math.abs(middle) * OUTLIER_SHARE, 1e-9);

/** Ratio from which on a difference is shown as a multiple instead of a percentage. */
const MULTIPLE_FROM = 3;

/**
 * Format a difference: "−8.0 points" for ratios, "+2.5 °C", "+12 %", "× 3.4". Empty without a difference. `jobmeter
 * compare` follows the same rule.
 */
export function formatChange(before: number | null, after: number | null, unit: string): string {
  if (before === null || after === null) return "";
  if (unit === "1" || unit === "Cel") {
    const delta = (after - before) * (unit === "1" ? 100 : 1);
    return Math.abs(delta) < 0.05 ? "" : `${delta < 0 ? "−" : "+"}${Math.abs(delta).toFixed(1)} ${unit === "1" ? "points" : "°C"}`;
  }
  if (before <= 0 || after < 0) return "";
  const ratio = after / before;
  if (ratio >= MULTIPLE_FROM) return `× ${ratio.toLocaleString("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 })}`;
  const share = Math.round((ratio - 1) * 100);
  return share ? `${share > 0 ? "+" : "−"}${Math.abs(share)} %` : "";
}

/** "−35.1 points" of a ratio, "+12 W (+3 %)" of another value. */
export function formatDifference(own: number, middle: number, unit: string, brief = false): string {
  const delta = own - middle;
  const sign = delta < 0 ? "−" : "+";
  if (unit === "1") return `${sign}${(Math.abs(delta) * 100).toFixed(1)} points`;
  const share = middle && unit !== "Cel" ? `${sign}${Math.abs((delta / middle) * 100).toFixed(0)} %` : "";
  if (brief && share) return share;
  return `${sign}${formatQuantity(Math.abs(delta), unit)}${share && ` (${share})`}`;
}
