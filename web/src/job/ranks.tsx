import { useMemo, useState } from "preact/hooks";
import type { Line } from "../api/client";
import type { Cursor, Mark, Range } from "../charts/axis";
import { metricsIn, title } from "../catalog";
import { HeatMap, type Rows, makeRows } from "../charts/heatmap";
import { useDark, useZone } from "../parts/hooks";
import { memo } from "../parts/memo";
import { Choice, Section } from "../parts/elements";

/** Maximum number of flagged ranks named above the map. All of them are marked in it. */
const FEW = 4;

/** Ranks of a job in one metric over the visible range. */
export interface RankView {
  offered: string[];
  metric: string;
  unit: string;
  rows: Rows;
}

/** Return the ranks in the preferred metric, else in the first metric with several ranks; null without one. */
export function useRanks(lines: ReadonlyMap<string, readonly Line[]>, range: Range, step: number, preferred: string | null, named: ReadonlyMap<string, string>): RankView | null {
  const offered = useMemo(() => metricsIn("ranks").filter((name) => new Set(lines.get(name)?.map((line) => line.replica || line.node)).size > 1), [lines]);
  const metric = preferred && offered.includes(preferred) ? preferred : offered[0];
  const mine = metric ? lines.get(metric) : undefined;
  // The map shows the old rows, clipped to the new range, until their series arrive.
  const rows = useMemo(() => makeRows(mine ?? [], range, step, named), [mine, step, named]);
  return useMemo(() => (metric && mine ? { offered, metric, unit: mine[0]?.unit ?? "", rows } : null), [offered, metric, mine, rows]);
}

/** Heat map of the ranks, with the names of the flagged ones. */
export const Ranks = memo(function Ranks(given: {
  ranks: RankView;
  /** True once the findings are loaded. */
  known: boolean;
  range: Range;
  cursor: Cursor;
  marks: readonly Mark[];
  chosen: string | null;
  choose: (member: string | null) => void;
  brush: (range: Range) => void;
  setMetric: (metric: string) => void;
}) {
  const dark = useDark();
  useZone();
  const [difference, setDifference] = useState(false);
  const { offered, metric, unit, rows } = given.ranks;
  const aside = (
    <>
      <select aria-label="Metric of the heat map" value={metric} onChange={(event) => given.setMetric(event.currentTarget.value)}>
        {offered.map((name) => (
          <option key={name} value={name}>
            {title(name)}
          </option>
        ))}
      </select>
      <Choice
        label="Colours show"
        value={difference ? "difference" : "value"}
        options={[
          ["value", "Value"],
          ["difference", "Difference"],
        ]}
        choose={(value) => setDifference(value === "difference")}
      />
    </>
  );
  return (
    <Section id="ranks" title={`${rows.lines.length} ranks over time`} aside={aside}>
      <p class={`outliers ${rows.lines.length > 2 ? "some" : ""}`}>
        {given.known && rows.outliers.length === 0 && rows.lines.length > 2 && <span class="hint">No rank has a finding.</span>}
        {rows.outliers.slice(0, FEW).map((one) => (
          <button
            type="button"
            key={one.member}
            aria-pressed={given.chosen === one.member}
            onClick={() => given.choose(given.chosen === one.member ? null : one.member)}
          >
            <b>{one.member}</b> {one.text}
          </button>
        ))}
        {rows.outliers.length > FEW && <span class="hint">and {rows.outliers.length - FEW} more, orange in the map</span>}
      </p>
      <HeatMap {...given} rows={rows} unit={unit} difference={difference} dark={dark} />
    </Section>
  );
});
