// Chart of one metric. The scheduler draws it, and only near the viewport.
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Line } from "../api/client";
import { useVisibility, useWidth } from "../parts/hooks";
import { memo } from "../parts/memo";
import type { Cursor, Mark, Range } from "./axis";
import { Plot } from "./plot";
import { formatQuantity } from "../format";
import { type Readout, valueWidth } from "./readout";
import { toCounts, isRare } from "./lines";
import { type Flag, FEW, seriesOf } from "./series";
import { drawSoon, scheduleDraw, cancelDraw } from "./scheduler";

export interface ChartGiven {
  metric: string;
  title: string;
  lines: readonly Line[];
  range: Range;
  step: number;
  cursor: Cursor;
  marks: readonly Mark[];
  chosen: string | null;
  /** Replicas of findings. Their series have the warning colour and a name. */
  flags?: readonly Flag[];
  /** Limits of the values. */
  bounds?: readonly number[];
  dark: boolean;
  utc: boolean;
  brush: (range: Range) => void;
  /** Times are milliseconds since the start of a job, not epoch times. */
  relative?: boolean;
}

const NONE: readonly never[] = [];

export const Chart = memo(function Chart(given: ChartGiven) {
  const { element, width } = useWidth<HTMLDivElement>();
  const plot = useRef<Plot | null>(null);
  const { near, inSight } = useVisibility(element, () => plot.current && drawSoon(plot.current));
  // Outside the viewport a chart keeps what it drew last.
  const seen = useRef(given);
  if (near) seen.current = given;
  const { lines: own, chosen, range, step, marks, flags = NONE, bounds = NONE } = seen.current;
  const { dark, utc, title, relative = false } = given;
  const counts = isRare(own);
  const lines = useMemo(() => (counts ? toCounts(own, step) : own), [own, counts, step]);
  const readout = useRef<Readout & { values: HTMLElement[] }>({ values: [], when: null });
  const series = useMemo(() => seriesOf(lines, chosen, dark, flags), [lines, chosen, dark, flags]);
  const latest = useRef(given);
  latest.current = given;
  const brush = (span: Range) => latest.current.brush(span);
  const drawing = { title, lines, series, range, step, cursor: given.cursor, marks, chosen, flags, bounds, counts, dark, utc, relative, brush };

  useLayoutEffect(() => {
    if (!element.current || !width || !(near || plot.current)) return;
    const mine = (plot.current ??= new Plot(element.current, readout.current));
    scheduleDraw(mine, () => mine.show(drawing, width), inSight.current ?? false);
  }, [width, near, series, range.start, range.end, step, marks, bounds, dark, utc, title]);
  useLayoutEffect(
    () => () => {
      if (!plot.current) return;
      cancelDraw(plot.current);
      plot.current.destroy();
    },
    [],
  );

  const room = { width: `${valueWidth(lines[0]?.unit ?? "")}ch` };
  return (
    <figure class="chart" data-metric={given.metric}>
      <figcaption>
        <span class="title">{title}</span>
        <span class="when" ref={(node) => void (readout.current.when = node)} />
      </figcaption>
      <div ref={element} class="plot" role="img" aria-label={title} />
      <ul class="legend">
        {series.map((one, at) => (
          <li key={one.label} class={one.flag && "flagged"}>
            <i style={{ background: one.stroke }} />
            <span class="name" title={one.flag ? `${one.full}: ${one.flag}` : one.full}>
              {one.label}
            </span>
            <b
              style={room}
              ref={(node) => {
                if (node) readout.current.values[at] = node;
                else readout.current.values.length = Math.min(readout.current.values.length, at);
              }}
            />
          </li>
        ))}
        {bounds.map((bound) => (
          <li key={bound} class="bound">
            <i /> limit <span>{formatQuantity(bound, lines[0]?.unit ?? "")}</span>
          </li>
        ))}
        {counts && <li class="hint">total</li>}
        {lines.length > FEW && <li class="hint">grey: all {lines.length}</li>}
      </ul>
    </figure>
  );
});
