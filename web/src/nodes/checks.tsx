// Checks of a node: requested ones, their results, and a button for a new check.
import { useEffect } from "preact/hooks";
import { BASE, type Schemas, address, send } from "../api/client";
import { useAction, useRead } from "../parts/hooks";
import { Moment, Problem, Section } from "../parts/elements";

const EVERY = 2_000;

export function Checks({ node, cluster }: { node: string; cluster: string }) {
  const response = useRead<Schemas["TaskPage"]>(address("/api/jobmeter/v1/tasks", {}, { type: ["node"], limit: 100 }));
  const { busy, error, perform } = useAction();
  const mine = (response.data?.tasks ?? []).filter((task) => task.nodes?.includes(node)).slice(0, 5);
  const open = mine.some((task) => task.state === "waiting" || task.state === "running");
  useEffect(() => {
    if (!open) return;
    const timer = setInterval(() => !document.hidden && response.reload(), EVERY);
    return () => clearInterval(timer);
  }, [open]);
  const start = async () => {
    await perform(() => send("POST", `${BASE}/tasks`, { type: "node", cluster, nodes: [node] }));
    response.reload();
  };
  const aside = (
    <button type="button" disabled={busy || open} onClick={() => void start()}>
      {open ? "Checking" : "Check now"}
    </button>
  );
  return (
    <Section id="checks" title="Checks" aside={aside}>
      {error && <Problem error={error} />}
      {response.error && <Problem error={response.error} reload={response.reload} />}
      {response.data && !mine.length && <p class="hint">No recent checks. Press “Check now”: the agent checks disks, clocks, memory and devices, and changes nothing.</p>}
      {mine.map((task) => (
        <details key={task.id} class="check" open={task === mine[0]}>
          <summary>
            <b class={task.verdict === "fault" ? "lost" : ""}>{task.verdict ?? task.state}</b> <Moment ms={task.created} /> {task.message && <span class="hint">{task.message}</span>}
          </summary>
          <ul>
            {(task.answers ?? [])
              .filter((answer) => answer.node === node)
              .flatMap((answer) => answer.checks ?? [])
              .map((check) => (
                <li key={check.name} class={check.status}>
                  <b>{check.name}</b> {check.status} <span class="hint">{check.text}</span>
                </li>
              ))}
            {(task.findings ?? []).map((finding) => (
              <li key={`${finding.rule} ${finding.start}`} class={finding.severity}>
                <b>{finding.rule}</b> {finding.severity} <span class="hint">{finding.advice}</span>
              </li>
            ))}
          </ul>
        </details>
      ))}
    </Section>
  );
}
