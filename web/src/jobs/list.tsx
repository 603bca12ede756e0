// The list of all jobs: search, filters, order, and a virtual list of rows.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Job, type LiveState, address, follow } from "../api/client";
import type { LiveJobs } from "../api/client";
import { useRetry, useWindowWidth, useZone } from "../parts/hooks";
import { Problem } from "../parts/elements";
import { mergeQuery, go, href } from "../router";
import { ChooseColumns } from "./column-menu";
import { Chips } from "./chips";
import { type Column, PHONE, chosenColumns, emptyColumns, shownColumns, tracksOf } from "./columns";
import { Empty } from "./empty";
import { FILTERS, Filters } from "./filters";
import { USUAL_SORT, keyOf, useJobs } from "./pages";
import { Band } from "./band";
import { Picked } from "./selection";
import { Rows } from "./rows";
import { Views } from "./views";

const FIRST: readonly (readonly [string, string, string])[] = [
  ["", "", "c-pick"],
  [USUAL_SORT, "State", "c-state"],
  ["name", "Job", "c-name"],
];

const idOf = (column: Column): string => column.id;

export function JobList({ query }: { query: URLSearchParams }) {
  useZone();
  // Selected jobs and columns do not narrow the list.
  const narrowing = mergeQuery(query, { pick: null, columns: null }).toString();
  const search = useMemo(() => apiQuery(query), [narrowing]);
  const picked = useMemo(() => new Set(query.getAll("pick")), [query.toString()]);
  const jobs = useJobs(search);
  useRetry(jobs.error, jobs.reload);
  const [live, setLive] = useState<LiveState | null>(null);
  const [now, setNow] = useState<LiveJobs | null>(null);
  const width = useWindowWidth();
  const chosen = chosenColumns(query);
  const empty = emptyColumns(jobs.loaded, (job) => jobs.sizes.get(keyOf(job)), jobs.found.size);
  // The list of columns must stay the same object so that rows are not rendered again.
  const shown = shownColumns(chosen, width, empty);
  const last = useRef(shown);
  if (last.current.map(idOf).join() !== shown.map(idOf).join()) last.current = shown;
  const columns = last.current;
  const heads = [...FIRST, ...columns.map((one) => [one.sort, one.text, `c-${one.id}`] as const)];
  const tracks = tracksOf(columns, width);
  const narrowed = FILTERS.some((name) => query.has(name));

  useEffect(() => {
    const take = (update: LiveJobs) => {
      setNow(update);
      jobs.take(update);
    };
    return follow<LiveJobs>(address(`/api/jobmeter/v1/live/jobs`), take, setLive);
  }, []);

  const set = (values: Record<string, string | null>) => go(href([], mergeQuery(query, values)), true);
  const sort = query.get("sort") ?? USUAL_SORT;
  const order = query.get("order") ?? "desc";
  const total = jobs.total ?? 0;
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
          <Live state={live} />
        </p>
        {now ? <Band now={now} query={query} set={set} /> : <div class="band" />}
      </div>
      <Filters query={query} set={set} loaded={jobs.loaded} states={jobs.states}>
        <ChooseColumns chosen={chosen} shown={columns} empty={empty} change={(text) => set({ columns: text })} />
        <Views query={query} />
      </Filters>
      <Chips query={query} set={set} />
      {picked.size > 0 && <Picked keys={[...picked]} clear={() => set({ pick: null })} />}
      {jobs.fresh > 0 && (
        <button type="button" class="fresh" onClick={jobs.reload}>
          Show {jobs.fresh === 1 ? "1 new job" : `${jobs.fresh} new jobs`}
        </button>
      )}
      {jobs.error && <Problem error={jobs.error} reload={jobs.reload} />}
      {jobs.total === 0 ? (
        <Empty narrowed={narrowed} clear={() => go("#/", true)} />
      ) : jobs.error && jobs.total === null ? null : (
        <div class={`jobs ${width < PHONE && columns.length > 1 ? "stacked" : ""}`} role="table" aria-label="Jobs" aria-rowcount={total + 1} aria-busy={jobs.busy} style={{ "--tracks": tracks }}>
          <div class="row head" role="row" aria-rowindex={1}>
            {heads.map(([name, text, kind]) => (
              <div
                role="columnheader"
                key={kind}
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
                  text || <span class="hidden">Compare</span>
                )}
              </div>
            ))}
          </div>
          <Rows jobs={jobs} total={total} search={search} picked={picked} columns={columns} />
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

function apiQuery(query: URLSearchParams): Record<string, string | string[] | null> {
  return {
    name: query.get("q"),
    state: query.getAll("state"),
    type: query.get("type"),
    user: query.get("user"),
    project: query.get("project"),
    resource_group: query.get("group"),
    node: query.get("node"),
    tag: query.getAll("tag"),
    finding: query.getAll("finding"),
    severity: query.getAll("severity"),
    created_from: query.get("since") ? String(Date.now() - (SINCE[query.get("since")!] ?? 0)) : query.get("from"),
    created_to: query.get("to"),
    open: query.get("open"),
    sort: query.get("sort") ?? USUAL_SORT,
    order: query.get("order"),
  };
}

const HOUR = 3_600_000;
const SINCE: Record<string, number> = { "1h": HOUR, "24h": 24 * HOUR, "7d": 168 * HOUR, "30d": 720 * HOUR };

export type { Job };
