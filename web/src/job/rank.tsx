// One rank beside the others: what it used, what the median rank used, and how far apart they are.
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { JobDetail, Line } from "../api/client";
import type { Range } from "../charts/axis";
import { byReplica, meanOf, median, place } from "../charts/lines";
import { quantity } from "../format";
import { memo } from "../parts/memo";
import { State } from "../parts/small";
import { named } from "../parts/titles";

const APART = 0.08;

interface Compared {
  metric: string;
  unit: string;
  own: number | null;
  middle: number;
}

export const RankPanel = memo(function RankPanel(given: {
  member: string;
  detail: JobDetail;
  lines: ReadonlyMap<string, readonly Line[]>;
  range: Range;
  choose: (member: string | null) => void;
  order: readonly Line[] | undefined;
}) {
  const { member, detail, lines, range, choose } = given;
  const panel = useRef<HTMLElement>(null);
  const compared = useMemo(() => compare(member, lines, range), [member, lines, range.start, range.end]);
  const members = (given.order ?? []).map((line) => line.replica || line.node);
  const at = members.indexOf(member);
  const own = detail.replicas.filter((one) => one.name === member).sort((a, b) => b.attempt - a.attempt)[0];
  const devices = detail.devices.filter((one) => one.replica === member);
  const node = own?.node || devices[0]?.node || "";
  const rank = own?.rank ?? devices[0]?.rank ?? null;
  useEffect(() => {
    const box = panel.current?.getBoundingClientRect();
    if (box && (box.top > innerHeight || box.bottom < 0)) panel.current?.scrollIntoView({ block: "center" });
  }, [member]);
  // Whoever opened it from the list of ranks is led into it, and back when it closes.
  useEffect(() => {
    if (document.activeElement?.closest(".heatrows")) panel.current?.querySelector<HTMLElement>("h3")?.focus({ preventScroll: true });
  }, [member]);
  const close = () => {
    choose(null);
    document.querySelector<HTMLElement>(".heatrows")?.focus({ preventScroll: true });
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Escape") close();
  };
  const step = (to: number, text: string, label: string) => (
    <button type="button" aria-label={label} disabled={members[to] === undefined} onClick={() => choose(members[to] ?? null)}>
      {text}
    </button>
  );
  return (
    <section class="panel rank-panel" ref={panel} aria-labelledby="rank-title" onKeyDown={keys}>
      <header>
        <h3 id="rank-title" tabIndex={-1}>{rank === null ? member : `Rank ${rank}: ${member}`}</h3>
        {own?.state && <State state={own.state} />}
        {node && <span class="hint">on {node}</span>}
        {own?.pod && <span class="hint">pod {own.pod}</span>}
        {devices.length > 0 && <span class="hint">{devices.map((one) => one.device).join(", ")}</span>}
        {own?.reason && <span class="hint">{own.reason}</span>}
        <span class="close">
          {at >= 0 && step(at - 1, "←", "Rank before")} {at >= 0 && step(at + 1, "→", "Next rank")}{" "}
          <button type="button" onClick={close}>
            Close
          </button>
        </span>
      </header>
      {compared.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="This rank and the median rank">
          <table>
            <thead>
              <tr>
                <th scope="col">Mean over the time that is shown</th>
                <th scope="col" class="number">
                  {member}
                </th>
                <th scope="col" class="number">
                  Median rank
                </th>
                <th scope="col" class="number">
                  Difference
                </th>
              </tr>
            </thead>
            <tbody>
              {compared.map((one) => (
                <tr key={one.metric}>
                  <th scope="row">
                    {named(one.metric)} <small>{one.metric}</small>
                  </th>
                  <td class="number">{quantity(one.own, one.unit)}</td>
                  <td class="number">{quantity(one.middle, one.unit)}</td>
                  <td class={`number ${isApart(one) ? "apart" : ""}`}>{difference(one)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="hint">Its log and its lines on every chart are shown below.</p>
    </section>
  );
});

function compare(member: string, lines: ReadonlyMap<string, readonly Line[]>, range: Range): Compared[] {
  const found: Compared[] = [];
  for (const [metric, some] of lines) {
    const joined = byReplica(some);
    const means = joined.map((line) => mean(line, range));
    const middle = median(means);
    const at = joined.findIndex((line) => (line.replica || line.node) === member);
    if (middle === null || joined.length < 2 || at < 0) continue;
    found.push({ metric, unit: joined[0]!.unit, own: Number.isNaN(means[at]) ? null : means[at]!, middle });
  }
  return found;
}

/** NaN where nothing was measured in the range. */
const mean = (line: Line, range: Range): number => meanOf(line.value, place(line.time, range.start), place(line.time, range.end));

const isApart = (one: Compared): boolean => one.own !== null && Math.abs(one.own - one.middle) > Math.max(Math.abs(one.middle) * APART, 1e-9);

function difference(one: Compared): string {
  if (one.own === null) return "not measured";
  const apart = one.own - one.middle;
  const sign = apart < 0 ? "−" : "+";
  if (one.unit === "1") return `${sign}${(Math.abs(apart) * 100).toFixed(1)} points`;
  const share = one.middle ? ` (${sign}${Math.abs((apart / one.middle) * 100).toFixed(0)} %)` : "";
  return `${sign}${quantity(Math.abs(apart), one.unit)}${share}`;
}
