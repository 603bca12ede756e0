// Checks of a node: requested ones, their results, and a button for a new check.
import { useEffect, useState } from "preact/hooks";
import { BASE, Refusal, type Schemas, address } from "../api/client";
import { send } from "../api/send";
import { useRead } from "../parts/hooks";
import { Moment, Problem, Section } from "../parts/small";

const EVERY = 2_000;
type Task = Schemas["DiagnosticTask"];

export function Checks({ node, cluster }: { node: string; cluster: string }) {
  const response = useRead<Schemas["TaskPage"]>(address("/api/jobmeter/v1/tasks", {}, { type: ["node"], limit: 100 }));
  const [refused, setRefused] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const mine = (response.data?.tasks ?? []).filter((task) => task.nodes?.includes(node)).slice(0, 5);
  const open = mine.some((task) => task.state === "waiting" || task.state === "running");
  useEffect(() => {
    if (!open) return;
    const timer = setInterval(() => !document.hidden && response.again(), EVERY);
    return () => clearInterval(timer);
  }, [open]);
  const start = async () => {
    setBusy(true);
    setRefused(null);
    try {
      await send<Task>("POST", `${BASE}/tasks`, { type: "node", cluster, nodes: [node] });
    } catch (error) {
      if (error instanceof Refusal) setRefused(error);
    }
    setBusy(false);
    response.again();
  };
  const aside = (
    <button type="button" disabled={busy || open} onClick={() => void start()}>
      {open ? "Checking" : "Check now"}
    </button>
  );
  return (
    <Section id="checks" title="Checks" aside={aside}>
      {refused && <Problem error={refused} />}
      {response.error && <Problem error={response.error} again={response.again} />}
      {response.data && !mine.length && <p class="hint">This node was not checked lately. “Check now” has its agent look at disks, clocks, memory and devices; it changes nothing.</p>}
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
