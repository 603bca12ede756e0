// Numbers above the list of jobs: running jobs, problems, nodes and users. A click filters by what the number counts.
import { type LiveJobs, type Schemas, address } from "../api/client";
import { useReadEvery } from "../parts/hooks";
import { href } from "../router";

type Values = Record<string, string | null>;

const NOTHING: Values = { state: null, severity: null, finding: null, open: null };

/** Filters of the list that select the jobs of each number. */
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
    <div class="band" role="group" aria-label="Current numbers">
      {number(COUNTED.running, now.running, "running", "")}
      {number(COUNTED.critical, now.critical, "with critical findings", "critical")}
      {number(COUNTED.idle, now.idle_devices, `idle GPU${now.idle_devices === 1 ? "" : "s"}`, "wasted")}
      <NodeNumbers />
      {now.users?.slice(0, FEW).map((one) => (
        <a key={one.user} class={`button ${one.idle_devices ? "wasted" : "critical"}`} href={href([], { user: one.user, state: "Running" })} title={`Running jobs of ${one.user}`}>
          <b>{one.user}</b> {trouble(one)}
        </a>
      ))}
    </div>
  );
}

/** Maximum number of users in the band: those with the most idle devices or critical jobs. */
const FEW = 3;
/** Polling interval of the node counts, in milliseconds. */
const EVERY = 30_000;

function trouble({ idle_devices: idle, critical }: Schemas["UserTrouble"]): string {
  if (idle) return `has ${idle.toLocaleString("en")} idle GPU${idle === 1 ? "" : "s"}`;
  return `has ${critical} critical ${critical === 1 ? "job" : "jobs"}`;
}

/** Show the numbers of faulty nodes and nodes that are down. Empty without problems, or without permission to see nodes. */
function NodeNumbers() {
  const { data } = useReadEvery<Schemas["NodeCounts"]>(address("/api/jobmeter/v1/fleet/counts"), EVERY);
  const link = (show: string, count: number, text: string) =>
    count > 0 && (
      <a class="button critical" href={href(["nodes"], { show })}>
        <b>{count.toLocaleString("en")}</b> node{count === 1 ? "" : "s"} {text}
      </a>
    );
  return (
    <>
      {link("faults", data?.faulty ?? 0, "with faults")}
      {link("down", data?.down ?? 0, "down")}
    </>
  );
}
