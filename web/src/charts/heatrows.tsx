// Accessible list over the heat map, for keyboards and screen readers.
import { useEffect, useRef, useState } from "preact/hooks";
import { formatQuantity } from "../format";
import type { Rows } from "./heatmap";
import { valueAt } from "./lines";

const PAGE = 10;

export const memberOf = (rows: Rows, at: number): string | null => {
  const line = rows.lines[at];
  return line ? line.replica || line.node : null;
};

/** Describe a rank: "rank 5, worker-5: mean 40.0 %, computes at 40 %; the median is 95 %". */
function describeRank(rows: Rows, at: number, unit: string): string {
  const line = rows.lines[at]!;
  const member = line.replica || line.node;
  const rank = line.rank !== null && line.rank < 1e9 ? `rank ${line.rank}, ` : "";
  const far = rows.outliers.find((one) => one.member === member);
  const mean = valueAt(rows.means, at);
  return `${rank}${member}: ${mean === null ? "not measured" : `mean ${formatQuantity(mean, unit)}`}${far ? `, ${far.text}` : ""}`;
}

/** List of ranks: arrow keys move, Enter opens a rank. Pointer events go to the canvas below. */
export function HeatRows(given: { rows: Rows; unit: string; height: number; chosen: string | null; choose: (member: string | null) => void; tell: (text: string) => void }) {
  const { rows, unit, height, chosen, choose, tell } = given;
  const [active, setActive] = useState<string | null>(null);
  const [focused, setFocused] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const members = rows.lines.map((line) => line.replica || line.node);
  const at = active === null ? -1 : members.indexOf(active);
  const last = members.length - 1;
  const go = (to: number) => {
    const next = Math.min(Math.max(to, 0), last);
    setActive(members[next] ?? null);
    tell(describeRank(rows, next, unit));
  };
  const entered = () => {
    setFocused(true);
    // Start at the open rank, else at the rank of the worst finding.
    if (at < 0) go(Math.max(0, members.indexOf(chosen ?? rows.outliers[0]?.member ?? "")));
  };
  const keys = (event: KeyboardEvent) => {
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + PAGE, PageUp: at - PAGE, Home: 0, End: last }[event.key];
    if (to !== undefined) go(to);
    else if ((event.key === "Enter" || event.key === " ") && active !== null) choose(active === chosen ? null : active);
    else if (event.key === "Escape" && chosen !== null) choose(null);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    if (!focused || at < 0) return;
    box.current?.children[at]?.scrollIntoView({ block: "nearest" });
  }, [at, focused]);
  return (
    <div
      class="heatrows"
      ref={box}
      role="listbox"
      tabIndex={0}
      aria-label="Ranks: up and down go from one to the next, Enter opens one"
      aria-activedescendant={at < 0 ? undefined : `heat-row-${at}`}
      onFocus={entered}
      onBlur={() => {
        setFocused(false);
        tell("");
      }}
      onKeyDown={keys}
    >
      {members.map((member, row) => (
        <div
          key={member}
          id={`heat-row-${row}`}
          role="option"
          aria-selected={member === chosen}
          aria-label={describeRank(rows, row, unit)}
          class={focused && row === at ? "active" : ""}
          style={{ top: `${row * height}px`, height: `${height}px` }}
        />
      ))}
    </div>
  );
}
