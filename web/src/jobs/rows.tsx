// Virtual list: it renders the rows in the viewport and some on either side.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Job, Query } from "../api/client";
import { zoneName } from "../format";
import type { Column } from "./columns";
import { type Jobs, keyOf } from "./pages";
import { MOST_COMPARED } from "./selection";
import { Row } from "./row";
import { useSparks } from "./sparks";

const ROW = 46;
const BEFORE = 6;

interface Given {
  jobs: Jobs;
  total: number;
  search: Query;
  picked: ReadonlySet<string>;
  columns: readonly Column[];
}

export function Rows({ jobs, total, search, picked, columns }: Given) {
  const body = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState<[number, number]>([0, 40]);
  useEffect(() => {
    const look = () => {
      if (!body.current) return;
      const top = -body.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(top / ROW) - BEFORE);
      const last = Math.ceil((top + innerHeight) / ROW) + BEFORE;
      setSeen((now) => (now[0] === first && now[1] === last ? now : [first, last]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [total]);
  useEffect(() => jobs.want(seen[0], seen[1]), [seen, search]);

  const full = picked.size >= MOST_COMPARED;
  const last = Math.min(seen[1], total);
  const rows: (readonly [number, Job | null])[] = [];
  for (let at = Math.min(seen[0], last); at < last; at += 1) rows.push([at, jobs.at(at)]);
  const curves = columns.some((one) => ["cpu", "gpu", "memory"].includes(one.id));
  const sparksOf = useSparks(rows.flatMap(([, job]) => job ?? []), jobs.use, curves);
  const shown = zoneName();
  return (
    <div class="rows" role="rowgroup" ref={body} style={{ height: `${total * ROW}px` }} onKeyDown={walk}>
      {rows.map(([at, job]) => {
        const key = job ? keyOf(job) : "";
        const chosen = picked.has(key);
        return (
          <Row
            key={at}
            at={at}
            top={at * ROW}
            job={job}
            sparks={job && sparksOf(job)}
            found={jobs.found.get(key)}
            size={jobs.sizes.get(key)}
            tags={jobs.tags.get(key)}
            now={job?.state === "Running" || job?.state === "Queued" ? jobs.now : 0}
            picked={chosen}
            closed={full && !chosen}
            columns={columns}
            zone={shown}
          />
        );
      })}
    </div>
  );
}

/** Move between rows with the arrow keys. */
function walk(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = (event.target as HTMLElement).closest<HTMLElement>("[data-at]");
  if (!step || !row) return;
  const next = row.parentElement?.querySelector<HTMLElement>(`[data-at="${Number(row.dataset["at"]) + step}"] a`);
  if (next) {
    event.preventDefault();
    next.focus();
  }
}
