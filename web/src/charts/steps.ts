const SECOND = 1000;
const STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800].map((one) => one * SECOND);

/** Return the smallest round step, in milliseconds, that splits a range into at most `most` buckets. */
export function step(start: number, end: number, most: number): number {
  return STEPS.find((one) => Math.ceil(end / one) - Math.floor(start / one) <= most) ?? STEPS[STEPS.length - 1]!;
}

/** Format a step for the API. */
export const stepText = (ms: number): string => `${ms / SECOND}s`;
