// What runs now and what is wrong with it, in numbers: each shows the jobs that it counts.
import type { LiveJobs } from "../api/client";

type Values = Record<string, string | null>;

const NOTHING: Values = { state: null, severity: null, finding: null, open: null };

/** What each number counts, as filters of the list. */
const COUNTED = {
  running: { ...NOTHING, state: "Running" },
  critical: { ...NOTHING, severity: "critical", open: "true" },
  idle: { ...NOTHING, finding: "gpu_idle_allocated", open: "true" },
} as const;

export function Band({ now, query, set }: { now: LiveJobs; query: URLSearchParams; set: (values: Values) => void }) {
  const number = (values: Values, count: number, text: string, kind: string) => {
    const pressed = Object.entries(values).every(([name, value]) => query.get(name) === value);
    return (
      <button type="button" class={count ? kind : ""} aria-pressed={pressed} onClick={() => set(pressed ? NOTHING : values)}>
        <b>{count.toLocaleString("en")}</b> {text}
      </button>
    );
  };
  return (
    <div class="band" role="group" aria-label="Jobs that run">
      {number(COUNTED.running, now.running, "running", "")}
      {number(COUNTED.critical, now.critical, "with critical findings", "critical")}
      {number(COUNTED.idle, now.idle_devices, `idle GPU${now.idle_devices === 1 ? "" : "s"}`, "wasted")}
    </div>
  );
}
