import { useMemo, useState } from "preact/hooks";
import type { Line } from "../api/client";
import type { Cursor, Range } from "../charts/axis";
import { HEAT, title } from "../charts/groups";
import { HeatMap, rowsOf } from "../charts/heatmap";
import { quantity } from "../format";
import { useDark } from "../parts/hooks";
import { Choice, Section } from "../parts/small";

/** The ranks over time, and by name those that are far from the others. Nothing for a job of one replica. */
export function Ranks(given: {
  lines: ReadonlyMap<string, readonly Line[]>;
  range: Range;
  step: number;
  cursor: Cursor;
  chosen: string | null;
  choose: (member: string | null) => void;
  brush: (range: Range) => void;
  metric: string | null;
  setMetric: (metric: string) => void;
}) {
  const dark = useDark();
  const [difference, setDifference] = useState(false);
  const { lines, range, step } = given;
  const offered = HEAT.filter((name) => new Set(lines.get(name)?.map((line) => line.replica || line.node)).size > 1);
  const metric = given.metric && offered.includes(given.metric) ? given.metric : offered[0];
  const mine = metric ? lines.get(metric) : undefined;
  const rows = useMemo(() => rowsOf(mine ?? [], range, step), [mine, range.start, range.end, step]);
  if (!metric || !mine) return null;
  const unit = mine[0]?.unit ?? "";
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
        label="What the colour says"
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
      <p class="outliers">
        {rows.outliers.length === 0 && rows.lines.length > 2 && <span class="hint">No rank is far from the others.</span>}
        {rows.outliers.map((one) => (
          <button
            type="button"
            key={one.member}
            aria-pressed={given.chosen === one.member}
            onClick={() => given.choose(given.chosen === one.member ? null : one.member)}
          >
            <b>{one.member}</b> {unit === "1" ? `${(Math.abs(one.difference) * 100).toFixed(0)} points` : quantity(Math.abs(one.difference), unit)} {one.difference < 0 ? "below" : "above"} the median
          </button>
        ))}
      </p>
      <HeatMap {...given} rows={rows} unit={unit} difference={difference} dark={dark} />
    </Section>
  );
}
