// How far a member is from the middle of all.
import { quantity } from "../format";

/** A share of the median from which on a member is apart from the others. */
const APART = 0.08;

export const isApart = (own: number | null, middle: number): boolean => own !== null && Math.abs(own - middle) > Math.max(Math.abs(middle) * APART, 1e-9);

/** "−35.1 points" of a ratio, "+12 W (+3 %)" of another value. */
export function difference(own: number, middle: number, unit: string, brief = false): string {
  const apart = own - middle;
  const sign = apart < 0 ? "−" : "+";
  if (unit === "1") return `${sign}${(Math.abs(apart) * 100).toFixed(1)} points`;
  const share = middle && unit !== "Cel" ? `${sign}${Math.abs((apart / middle) * 100).toFixed(0)} %` : "";
  if (brief && share) return share;
  return `${sign}${quantity(Math.abs(apart), unit)}${share && ` (${share})`}`;
}
