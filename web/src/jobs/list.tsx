// Every job: search as you type, filters and order in the address, rows that are drawn only while they are seen.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Job, type LiveState, address, follow } from "../api/client";
import type { LiveJobs } from "../api/client";
import { useZone } from "../parts/hooks";
import { Problem } from "../parts/small";
import { changed, go, href } from "../router";
import { Empty } from "./empty";
import { FILTERS, Filters } from "./filters";
import { useJobs } from "./pages";
import { Row } from "./row";

const ROW = 46;
const BEFORE = 6;
const COLUMNS: readonly (readonly [string, string, string])[] = [
  ["state", "State", "c-state"],
  ["name", "Job", "c-name"],
  ["type", "Type", "c-type"],
  ["project", "Project", "c-project"],
  ["user", "User", "c-user"],
  ["resource_group", "Group", "c-group"],
  ["start", "Started", "c-start"],
  ["duration", "Duration", "c-duration"],
  ["", "CPU", "c-cpu"],
  ["", "GPU", "c-gpu"],
];

export function JobList({ query }: { query: URLSearchParams }) {
  useZone();
  const asked = useMemo(() => question(query), [query.toString()]);
  const jobs = useJobs(asked);
  const [live, setLive] = useState<LiveState | null>(null);
  const [running, setRunning] = useState<number | null>(null);
  const body = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState<[number, number]>([0, 40]);
  const narrowed = FILTERS.some((name) => query.has(name));

  useEffect(() => {
    const take = (update: LiveJobs) => {
      setRunning(update.running);
      jobs.take(update);
    };
    return follow<LiveJobs>(address(`/api/jobmeter/v1/live/jobs`), take, setLive);
  }, []);

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
  }, [jobs.total]);

  useEffect(() => jobs.want(seen[0], seen[1]), [seen, asked]);

  const set = (values: Record<string, string | null>) => go(href([], changed(query, values)), true);
  const sort = query.get("sort") ?? "created";
  const order = query.get("order") ?? "desc";
  const total = jobs.total ?? 0;
  const last = Math.min(seen[1], total);
  const rows: number[] = [];
  for (let at = Math.min(seen[0], last); at < last; at += 1) rows.push(at);
  return (
    <>
      <div class="heading">
        <h1>Jobs</h1>
        <p class="figures" aria-live="polite">
          {jobs.total !== null && (
            <>
              <b>{total.toLocaleString("en")}</b> {narrowed ? "match" : total === 1 ? "job" : "jobs"}
            </>
          )}
          {running !== null && !narrowed && (
            <>
              , <b>{running.toLocaleString("en")}</b> running
            </>
          )}
          <Live state={live} />
        </p>
      </div>
      <Filters query={query} set={set} loaded={jobs.loaded} />
      {jobs.fresh > 0 && (
        <button type="button" class="fresh" onClick={jobs.again}>
          {jobs.fresh === 1 ? "1 new job" : `${jobs.fresh} new jobs`}: show
        </button>
      )}
      {jobs.error && <Problem error={jobs.error} again={jobs.again} />}
      {jobs.total === 0 ? (
        <Empty narrowed={narrowed} clear={() => go("#/", true)} />
      ) : (
        <div class="jobs" role="table" aria-label="Jobs" aria-rowcount={total + 1} aria-busy={jobs.busy}>
          <div class="row head" role="row" aria-rowindex={1}>
            {COLUMNS.map(([name, text, kind]) => (
              <div
                role="columnheader"
                key={text}
                class={kind}
                aria-sort={name && name === sort ? (order === "asc" ? "ascending" : "descending") : undefined}
              >
                {name ? (
                  <button
                    type="button"
                    onClick={() => set({ sort: name, order: name === sort && order === "desc" ? "asc" : "desc" })}
                  >
                    {text}
                    <span aria-hidden="true">{name === sort ? (order === "asc" ? " ↑" : " ↓") : ""}</span>
                  </button>
                ) : (
                  text
                )}
              </div>
            ))}
          </div>
          <div class="rows" role="rowgroup" ref={body} style={{ height: `${total * ROW}px` }} onKeyDown={walk}>
            {rows.map((at) => (
              <Row key={at} at={at} top={at * ROW} job={jobs.at(at)} use={jobs.use} />
            ))}
          </div>
        </div>
      )}
    </>
  );
}

function Live({ state }: { state: LiveState | null }) {
  if (state === null) return null;
  const text = state === "live" ? "live" : "connection lost, trying again";
  return <span class={`live live-${state}`}>{text}</span>;
}

function question(query: URLSearchParams): Record<string, string | string[] | null> {
  return {
    name: query.get("q"),
    state: query.getAll("state"),
    type: query.get("type"),
    user: query.get("user"),
    project: query.get("project"),
    resource_group: query.get("group"),
    node: query.get("node"),
    created_from: query.get("since") ? String(Date.now() - (SINCE[query.get("since")!] ?? 0)) : query.get("from"),
    created_to: query.get("to"),
    sort: query.get("sort"),
    order: query.get("order"),
  };
}

const HOUR = 3_600_000;
const SINCE: Record<string, number> = { "1h": HOUR, "24h": 24 * HOUR, "7d": 168 * HOUR, "30d": 720 * HOUR };

/** Up and down go from row to row. */
function walk(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  const row = (event.target as HTMLElement).closest<HTMLElement>("[data-at]");
  if (!step || !row) return;
  const next = row.parentElement?.querySelector<HTMLElement>(`[data-at="${Number(row.dataset["at"]) + step}"] a`);
  if (next) {
    event.preventDefault();
    next.focus();
  }
}

export type { Job };
