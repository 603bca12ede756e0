import { useEffect, useMemo, useState } from "preact/hooks";
import { type JobDetail, type LiveJob, type Schemas, address } from "../api/client";
import { Cursor, type Mark, type Range } from "../charts/axis";
import { groups } from "../charts/groups";
import { useRead, useRested, useZone } from "../parts/hooks";
import { Notice, Problem } from "../parts/small";
import { changed, go, href } from "../router";
import { Charts } from "./charts";
import { life, byOf, useLive, useMeasured } from "./data";
import { Events } from "./events";
import { type Finding, Findings, markOf } from "./findings";
import { Header } from "./header";
import { Logs } from "./logs";
import { Members } from "./members";
import { Ranks } from "./ranks";
import { TimeBar } from "./timebar";

const HOUR = 3_600_000;

export function JobPage({ id, query }: { id: string; query: URLSearchParams }) {
  useZone();
  const project = query.get("project");
  const asked = useRead<JobDetail>(address("/api/jobmeter/v1/jobs/{job}", { job: id }, { project, summary: "false" }));
  if (asked.error) return asked.error.status === 404 ? <Missing id={id} /> : <Problem error={asked.error} again={asked.again} />;
  if (!asked.data) return <p class="waiting">…</p>;
  return <Shown detail={asked.data} query={query} again={asked.again} />;
}

function Missing({ id }: { id: string }) {
  return (
    <Notice title={`There is no job ${id} that this key may see.`}>
      <a href={href([], { q: id })}>Search for it among all jobs</a>
    </Notice>
  );
}

function Shown({ detail, query, again }: { detail: JobDetail; query: URLSearchParams; again: () => void }) {
  const [told, setTold] = useState<LiveJob | null>(null);
  const job = told?.job ?? detail.job;
  const ref = { id: detail.job.id, project: detail.job.project };
  const running = job.state === "Running" || job.state === "Queued";
  const cursor = useMemo(() => new Cursor(), []);
  const [finding, setFinding] = useState<Finding | null>(null);
  const [event, setEvent] = useState<Mark | null>(null);
  const chosen = query.get("rank");
  const set = (values: Record<string, string | null>) => go(href(["jobs", ref.id], changed(query, values)), true);

  const whole = life(job);
  const zoomed = zoomOf(query);
  const [window, setWindow] = useState(HOUR);
  const [first] = useState(() => life(detail.job));
  // While following, the range that was asked for stays and the one that is shown moves on.
  const shown: Range = zoomed ?? (running ? { start: Math.max(whole.start, whole.end - window), end: whole.end } : whole);
  const [base, setBase] = useState<Range>(() => (running ? { start: Math.max(first.start, first.end - window), end: first.end } : first));
  const wanted: Range = zoomed ?? base;

  const names = useRead<Schemas["MetricNames"]>(address("/api/jobmeter/v1/jobs/{job}/metrics/names", { job: ref.id }, { project: ref.project }));
  const found = useMemo(() => groups(names.data?.metrics ?? []), [names.data]);
  const by = names.data ? byOf(detail.devices.length) : null;
  const rested = useRested(wanted, 60);
  const measured = useMeasured(ref, found, by, detail.devices.length || detail.replicas.length, rested);
  const metrics = useMemo(() => found.flatMap((group) => group.main), [found]);
  const take = (update: LiveJob) => {
    setTold(update);
    measured.take(update, update.now - window);
  };
  const live = useLive(ref, metrics, by, measured.step, running, take);
  useEffect(() => {
    // A job that has ended is told whole; one that has grown out of its step is asked for anew.
    if (!running && told) {
      setBase(life(told.job));
      again();
    } else if (running && !zoomed && shown.end - shown.start > 1.5 * (base.end - base.start)) {
      setBase(shown);
    }
  }, [running, told]);
  useEffect(() => {
    if (told && !names.data?.metrics.length) names.again();
  }, [told]);
  useEffect(() => {
    document.title = `${job.name || job.id} · ${job.state} · Jobmeter`;
    return () => {
      document.title = "Jobmeter";
    };
  }, [job.name, job.state]);

  const brush = (range: Range) => set({ from: String(Math.round(range.start)), to: String(Math.round(range.end)) });
  const marks = useMemo(() => [finding && markOf(finding), event].filter((one): one is Mark => one !== null), [finding, event]);
  const view = { range: shown, step: measured.step, cursor, marks, chosen, brush };
  const choose = (member: string | null) => set({ rank: member });
  return (
    <article class="job">
      <Header job={job} detail={detail} />
      <Findings job={ref} chosen={finding} choose={setFinding} state={job.state} />
      <TimeBar
        range={shown}
        whole={whole}
        zoomed={zoomed !== null}
        live={live}
        running={running}
        window={window}
        setWindow={(length) => {
          setWindow(length);
          setBase({ start: Math.max(whole.start, whole.end - length), end: whole.end });
          set({ from: null, to: null });
        }}
        brush={brush}
        reset={() => set({ from: null, to: null })}
        job={job}
        metrics={metrics}
        by={by ?? "device"}
        step={measured.step}
        chosen={chosen}
        choose={choose}
      />
      {names.error && <Problem error={names.error} again={names.again} />}
      {measured.error && <Problem error={measured.error} />}
      {names.data && !metrics.length && <Notice title="Nothing was measured yet.">Figures appear here by themselves once an agent sends them.</Notice>}
      <Ranks lines={measured.lines} {...view} choose={choose} metric={query.get("heat")} setMetric={(metric) => set({ heat: metric })} />
      <Charts groups={found} lines={measured.lines} {...view} busy={measured.busy} job={ref} by={by ?? "device"} />
      <Members detail={detail} lines={measured.lines} chosen={chosen} choose={choose} />
      <div class="pair">
      <Events job={ref} range={zoomed} turn={told?.job.updated ?? 0} chosen={event} choose={setEvent} cursor={cursor} />
      <Logs job={ref} range={zoomed} running={running} replica={chosen} cursor={cursor} />
      </div>
    </article>
  );
}

function zoomOf(query: URLSearchParams): Range | null {
  const [start, end] = [Number(query.get("from")), Number(query.get("to"))];
  return query.has("from") && query.has("to") && Number.isFinite(start) && end > start ? { start, end } : null;
}
