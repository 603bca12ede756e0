import type { Point } from "../api/client";
import { formatQuantity } from "../format";

const WIDTH = 120;
const HEIGHT = 24;

/** Sparkline from 0 to `top`, the limit if known. Missing points are gaps. */
export function Sparkline(given: {
  points: readonly Point[];
  start: number;
  end: number;
  step: number;
  top: number;
  unit: string;
  kind: "cpu" | "gpu";
}) {
  const { points, start, end, step, unit, kind } = given;
  const last = points[points.length - 1];
  if (!last) return <span class="none">–</span>;
  const top = Math.max(given.top, ...points.map((point) => point[1])) || 1;
  const x = (time: number) => ((time - start) / Math.max(end - start, 1)) * WIDTH;
  const y = (value: number) => HEIGHT - 1 - (value / top) * (HEIGHT - 2);
  const of = given.top && unit !== "1" ? `of ${Number(given.top.toFixed(1)).toLocaleString("en")}` : "";
  const mean = points.reduce((sum, point) => sum + point[1], 0) / points.length;
  return (
    <span class={`spark spark-${kind}`}>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        {splitRuns(points, step).map((run) => {
          const first = run[0]!;
          const final = run[run.length - 1]!;
          const line = run.map(([time, value]) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
          const width = Math.max(x(final[0] + step) - x(first[0]), 1);
          return (
            <g key={first[0]}>
              <path class="area" d={`M${x(first[0]).toFixed(1)} ${HEIGHT}L${line}h${step ? 0 : width}L${x(final[0]).toFixed(1)} ${HEIGHT}z`} />
              <path class="line" d={`M${line}${run.length === 1 ? `h${width.toFixed(1)}` : ""}`} />
            </g>
          );
        })}
      </svg>
      <span class="value" title={`mean ${formatQuantity(mean, unit)}, newest ${formatQuantity(last[1], unit)}${of && `, ${of}`}`}>
        {formatQuantity(mean, unit)}
        {of && <small>{of}</small>}
      </span>
    </span>
  );
}

/** Split points into runs without gaps. */
function splitRuns(points: readonly Point[], step: number): Point[][] {
  const found: Point[][] = [];
  let before = Number.NEGATIVE_INFINITY;
  for (const point of points) {
    if (!found.length || (step && point[0] - before > 2.5 * step)) found.push([]);
    found[found.length - 1]!.push(point);
    before = point[0];
  }
  return found;
}
