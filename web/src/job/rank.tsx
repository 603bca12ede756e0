// Panel of one rank: its values, the median rank, and the differences.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type JobDetail, type Line, type MetricLines, address, linesByMetric } from "../api/client";
import type { Range } from "../charts/axis";
import { mergeDevices, meanOf, median, indexAtTime } from "../charts/lines";
import { step as stepOf, stepText } from "../charts/steps";
import { GROUPS, METRICS, titleWithDevice } from "../catalog";
import { formatQuantity } from "../format";
import { useRead } from "../parts/hooks";
import { memo } from "../parts/memo";
import { State } from "../parts/elements";
import { nodeHref } from "../router";
import { formatDifference, isOutlier } from "./differences";

/** Metrics that explain a slow device and have no chart of their own at first. */
const REASONS = /\.(clock\.sm|temperature|throttle\.[\w.]+)$/;
/** Number of parts that a range is rounded to, so that live updates do not repeat the request. */
const PARTS = 20;

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
  /** Names of all metrics of the job. */
  names: readonly string[];
  /** Statement of the finding about this rank. */
  text: string | undefined;
  range: Range;
  choose: (member: string | null) => void;
  order: readonly Line[] | undefined;
  guest: boolean;
}) {
  const { member, detail, lines, names, text, range, choose, guest } = given;
  const panel = useRef<HTMLElement>(null);
  const reasons = useReasons(detail, names.filter((name) => REASONS.test(name) && !lines.has(name)), range);
  const compared = useMemo(() => {
    const found = [...compare(member, lines, range), ...compare(member, reasons, range).filter((one) => !lines.has(one.metric) && isRelevant(one))];
    return found.sort((a, b) => placeOf(a.metric) - placeOf(b.metric));
  }, [member, lines, reasons, range.start, range.end]);
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
  // A keyboard user who opened the panel from the list of ranks gets the focus moved into it, and back on close.
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
        <span class="close">
          {at >= 0 && step(at - 1, "←", "Previous rank")} {at >= 0 && step(at + 1, "→", "Next rank")}{" "}
          <button type="button" onClick={close}>
            Close
          </button>
        </span>
      </header>
      <p class="where">
        {devices.length > 0 && `${devices.map((one) => one.device).join(", ")} `}
        {node && <>on {guest ? node : <a href={nodeHref(node)}>{node}</a>} </>}
        {own?.pod && <span class="hint">pod {own.pod} </span>}
        {own?.reason && <span class="hint">{own.reason}</span>}
      </p>
      {text && <p class="apart">{text}</p>}
      {compared.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="This rank and the median rank">
          <table>
            <thead>
              <tr>
                <th scope="col">Mean in the range</th>
                <th scope="col" class="number">
                  {member}
                </th>
                <th scope="col" class="number">
                  Median
                </th>
                <th scope="col" class="number">
                  Difference
                </th>
              </tr>
            </thead>
            <tbody>
              {compared.map(({ metric, own, middle, unit }) => (
                <tr key={metric} data-metric={metric}>
                  <th scope="row" title={metric}>
                    {titleWithDevice(metric)}
                  </th>
                  <td class="number">{formatQuantity(own, unit)}</td>
                  <td class="number">{formatQuantity(middle, unit)}</td>
                  <td class={`number ${isOutlier(own, middle) ? "apart" : ""}`}>{own === null ? "not measured" : formatDifference(own, middle, unit, true)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="hint">The charts below highlight this rank, and the log shows its lines.</p>
    </section>
  );
});

/** Read the metrics of each rank, as one value over the range. */
function useReasons(detail: JobDetail, metrics: readonly string[], range: Range): ReadonlyMap<string, readonly Line[]> {
  const part = Math.max((range.end - range.start) / PARTS, 1000);
  const unit = 2 ** Math.ceil(Math.log2(part));
  const [start, end] = [Math.floor(range.start / unit) * unit, Math.ceil(range.end / unit) * unit];
  const query = { metric: metrics.slice(0, 90), by: "replica", start, end, step: stepText(stepOf(start, end, PARTS)), format: "columns", project: detail.job.project };
  const response = useRead<MetricLines>(metrics.length ? address("/api/jobmeter/v1/jobs/{job}/metrics", { job: detail.job.id }, query) : null);
  return useMemo(() => linesByMetric(response.data), [response.data]);
}

/** Clocks and temperatures are always shown. Throttling is shown only if this rank differs from the others. */
const isRelevant = ({ metric, own, middle }: Compared): boolean => !metric.includes(".throttle.") || isOutlier(own, middle);

const order = new Map(GROUPS.flatMap(({ id }) => METRICS.filter(({ group }) => group === id)).map((metric, at) => [metric.name, at]));
/** Metrics without a chart are sorted next to their group. */
const placeOf = (metric: string): number => order.get(metric) ?? METRICS.length;

function compare(member: string, lines: ReadonlyMap<string, readonly Line[]>, range: Range): Compared[] {
  const found: Compared[] = [];
  for (const [metric, some] of lines) {
    const joined = mergeDevices(some);
    const means = joined.map((line) => mean(line, range));
    const middle = median(means);
    const at = joined.findIndex((line) => (line.replica || line.node) === member);
    if (middle === null || joined.length < 2 || at < 0) continue;
    found.push({ metric, unit: joined[0]!.unit, own: Number.isNaN(means[at]) ? null : means[at]!, middle });
  }
  return found;
}

/** Return the mean over the range; NaN without values. */
const mean = (line: Line, range: Range): number => meanOf(line.value, indexAtTime(line.time, range.start), indexAtTime(line.time, range.end));
