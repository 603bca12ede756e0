import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { type JobDetail, type LiveJob, type Schemas } from "../api/client";
import { Cursor, type Mark, type Range } from "../charts/axis";
import { groupMetrics } from "../charts/groups";
import { scheduleRender } from "../charts/scheduler";
import { type ReadState, useRetry, useLatch, useRead, useDebounced, useZone } from "../parts/hooks";
import { Notice, Problem } from "../parts/elements";
import { mergeQuery, go, goAfterPaint, href, place } from "../router";
import { Alerts, useAlerts } from "./alerts";
import { Charts } from "./charts";
import { rangeOf, byOf, useLive, useMeasured } from "./data";
import { Events } from "./events";
import { useBounds } from "./bounds";
import { type Finding, flagsOf, markOf, namesOf, replicasOf } from "./finding";
import { Findings } from "./findings";
import { Header } from "./header";
import { useIdle } from "./idle";
import { Logs } from "./logs";
import { Members } from "./members";
import { jobUrls } from "./requests";
import { Marked } from "./mark-bar";
import { Notes, useAnnotations } from "./notes";
import { Phases, usePhases } from "./phases";
import { RankPanel } from "./rank";
import { Ranks, useRanks } from "./ranks";
import { JobSkeleton, RanksSkeleton } from "./skeleton";
import { TimeBar } from "./timebar";

const HOUR = 3_600_000;
const NO_NAMES: readonly string[] = [];
const NO_FINDINGS: readonly Finding[] = [];
/** Milliseconds within which responses are rendered together. */
const TOGETHER = 250;
/** Debounce in milliseconds of the range for events and logs, so that charts load first after a zoom. */
const BELOW = 400;

export function JobPage({ id, query, guest = false, writer = false }: { id: string; query: URLSearchParams; guest?: boolean; writer?: boolean }) {
  useZone();
  const project = query.get("project");
  const urls = jobUrls(id, project);
  const response = useRead<JobDetail>(urls.record);
  const names = useRead<Schemas["MetricNames"]>(urls.names);
  if (response.error) return response.error.status === 404 ? <Missing id={id} /> : <Problem error={response.error} reload={response.reload} />;
  if (!response.data) return <JobSkeleton />;
  return <Shown detail={response.data} names={names} query={query} reload={response.reload} guest={guest} writer={writer} />;
}

function Missing({ id }: { id: string }) {
  return (
    <Notice title={`There is no job ${id}, or your key may not see it.`}>
      <p>Check the id: the job may be deleted. If it is in another project, sign in with a key of that project.</p>
      <a href={href([], { q: id })}>Search all jobs for it</a>
    </Notice>
  );
}

interface ShownGiven {
  detail: JobDetail;
  names: ReadState<Schemas["MetricNames"]>;
  query: URLSearchParams;
  reload: () => void;
  guest: boolean;
  writer: boolean;
}

function Shown({ detail, names, query, reload, guest, writer }: ShownGiven) {
  const [latest, setLatest] = useState<LiveJob | null>(null);
  const job = latest?.job ?? detail.job;
  const ref = useMemo(() => ({ id: detail.job.id, project: detail.job.project }), [detail.job.id, detail.job.project]);
  const running = job.state === "Running" || job.state === "Queued";
  const cursor = useMemo(() => new Cursor(), []);
  const [event, setEvent] = useState<Mark | null>(null);
  const [alert, setAlert] = useState<Mark | null>(null);
  const [line, setLine] = useState<Mark | null>(null);
  const [note, setNote] = useState<Mark | null>(null);
  const placeOf = (values: Record<string, string | null>) => href(["jobs", ref.id], mergeQuery(place().query, values));
  const set = useCallback((values: Record<string, string | null>) => go(placeOf(values), true), [ref.id]);
  const look = useCallback((from: string | null, to: string | null) => goAfterPaint(placeOf({ from, to })), [ref.id]);
  const chosen = query.get("rank");
  const choose = useCallback((member: string | null) => set({ rank: member }), [set]);
  const chooseFinding = useCallback((finding: string | null) => set({ finding }), [set]);
  const openLog = useCallback(
    (replica: string) => {
      set({ rank: replica || null });
      document.getElementById("logs")?.scrollIntoView({ block: "start" });
    },
    [set],
  );

  // The range of a running job ends at its newest update: drawing charts without new data would be waste.
  const whole = useMemo(() => rangeOf(job), [job]);
  const [from, to] = [query.get("from"), query.get("to")];
  const zoomed = useMemo(() => zoomOf(from, to), [from, to]);
  const [window, setWindow] = useState(HOUR);
  const [first] = useState(() => rangeOf(detail.job));
  // While following, the loaded range stays fixed and the visible range moves on.
  const shown = useMemo<Range>(() => zoomed ?? (running ? lastPart(whole, window) : whole), [zoomed, running, whole, window]);
  const [base, setBase] = useState<Range>(() => (running ? lastPart(first, window) : first));
  const wanted: Range = zoomed ?? base;

  const found = useMemo(() => groupMetrics(names.data?.metrics ?? []), [names.data]);
  const by = names.data ? byOf(detail.devices.length) : null;
  const debounced = useDebounced(wanted, 60);
  const below = useDebounced(zoomed, BELOW, zoomed ? `${zoomed.start} ${zoomed.end}` : "");
  const [turn, setTurn] = useState(0);
  const measureAgain = () => setTurn((now) => now + 1);
  const measured = useMeasured(ref, found, by, detail.devices.length || detail.replicas.length, debounced, turn);
  useRetry(measured.error, measureAgain);
  const [known, setFindings] = useState<readonly Finding[] | null>(null);
  const findings = known ?? NO_FINDINGS;
  const named = useMemo(() => replicasOf(findings), [findings]);
  const replicas = useMemo(() => new Set([...detail.replicas.map((one) => one.name), ...detail.devices.map((one) => one.replica)]).size, [detail]);
  const flags = useMemo(() => flagsOf(findings, replicas), [findings, replicas]);
  const spoken = useMemo(() => new Set(findings.flatMap((one) => one.evidence.map(({ metric }) => metric))), [findings]);
  const called = query.get("finding");
  const finding = useMemo(() => [...namesOf(findings)].find(([, name]) => name === called)?.[0] ?? null, [findings, called]);
  const ranks = useRanks(measured.lines, shown, measured.step, query.get("heat"), named);
  const metrics = useMemo(() => found.flatMap((group) => group.main), [found]);
  // Render the replica table once for responses that arrive together.
  const together = useDebounced(measured.lines, TOGETHER);
  const settled = !measured.error && (metrics.length ? measured.lines.size > 0 : names.data !== null);
  const waiting = !ranks && replicas > 1 && !settled;
  const idle = useIdle(ref, detail.devices.length > 0 && names.data !== null && !measured.busy, running);
  const phases = usePhases(ref, names.data !== null && (!metrics.length || !measured.busy), running);
  const take = (update: LiveJob) => {
    setLatest(update);
    if (!endsBefore(zoomed, update.start)) measured.take(update, zoomed ? zoomed.start : update.now - window);
  };
  // Events, logs and alerts wait for the first charts.
  const begun = useLatch(measured.lines.size > 0 || names.error !== null || (names.data !== null && (!metrics.length || !measured.busy)));
  const alerts = useAlerts(ref, begun && !guest);
  const annotations = useAnnotations(ref, begun);
  const bounds = useBounds(detail.job, names.data?.metrics ?? NO_NAMES, by, whole, begun);
  // A past range has no new points, so only the job's record is followed.
  const over = endsBefore(zoomed, whole.end) || endsBefore(below, whole.end);
  const live = useLive(ref, over ? metrics.slice(0, 1) : metrics, over ? "job" : by, over ? null : measured.step, running && begun, take);
  useEffect(() => {
    // An ended job is shown whole. A range that has outgrown its step is loaded again.
    if (!running && latest) {
      setBase(rangeOf(latest.job));
      reload();
    } else if (running && !zoomed && shown.end - shown.start > 1.5 * (base.end - base.start)) {
      setBase(shown);
    }
  }, [running, latest]);
  useEffect(() => {
    if (latest && !names.data?.metrics.length) names.reload();
  }, [latest]);
  useEffect(() => {
    document.title = `${job.name || job.id} · ${job.state} · Jobmeter`;
    return () => {
      document.title = "Jobmeter";
    };
  }, [job.name, job.state]);

  const brush = useCallback((range: Range) => scheduleRender(() => look(String(Math.round(range.start)), String(Math.round(range.end)))), [look]);
  const setMetric = useCallback((metric: string) => set({ heat: metric }), [set]);
  const follow = useCallback(
    (length: number) => {
      setWindow(length);
      setBase(lastPart(rangeOf(job), length));
      look(null, null);
    },
    [job, look],
  );
  // New data that arrived while zoomed is loaded with the rest.
  const reset = useCallback(() => scheduleRender(() => (running ? follow(window) : look(null, null))), [running, follow, window, look]);
  const marks = useMemo(() => [finding && markOf(finding), alert, event, line, note].filter((one): one is Mark => one !== null), [finding, alert, event, line, note]);
  const allMarks = useMemo(() => [...marks, ...annotations.marks.filter(({ key }) => key !== note?.key)], [marks, annotations.marks, note]);
  const view = { range: shown, step: measured.step, cursor, marks: allMarks, chosen, flags, brush };
  return (
    <article class="job">
      <Header job={job} detail={detail} idle={idle} guest={guest} />
      <Findings job={ref} chosen={called} choose={chooseFinding} openLog={openLog} state={job.state} report={setFindings} settled={settled} measured={metrics.length > 0} guest={guest} ready={begun} />
      <Alerts found={alerts.error ? null : alerts.data} reload={alerts.reload} job={ref} writer={writer} chosen={alert} choose={setAlert} />
      <Notes
        job={ref}
        found={annotations.data}
        reload={annotations.reload}
        writer={writer}
        guest={guest}
        chosen={note}
        choose={setNote}
        proposed={marks[0]?.start ?? (zoomed ? (zoomed.start + zoomed.end) / 2 : whole.end)}
      />
      <TimeBar
        range={shown}
        whole={whole}
        zoomed={zoomed !== null}
        live={live}
        running={running}
        window={window}
        setWindow={follow}
        brush={brush}
        reset={reset}
        job={job}
        metrics={metrics}
        by={by ?? "device"}
        step={measured.step}
        chosen={chosen}
        choose={choose}
        guest={guest}
      />
      <Phases phases={phases} range={shown} expected={detail.job.start !== null} />
      {names.error && <Problem error={names.error} reload={names.reload} />}
      {measured.error && <Problem error={measured.error} reload={measureAgain} />}
      {names.data && !metrics.length && <Unmeasured running={running} />}
      {marks.length > 0 && (
        <Marked
          marks={marks}
          range={shown}
          whole={whole}
          brush={brush}
          clear={() => {
            chooseFinding(null);
            setAlert(null);
            setEvent(null);
            setLine(null);
            setNote(null);
          }}
        />
      )}
      <div class={chosen && (ranks || waiting) ? "beside" : undefined}>
        {ranks && <Ranks ranks={ranks} known={known !== null} {...view} choose={choose} setMetric={setMetric} />}
        {waiting && <RanksSkeleton ranks={replicas} />}
        {chosen && <RankPanel member={chosen} detail={detail} lines={measured.lines} names={names.data?.metrics ?? NO_NAMES} text={named.get(chosen)} range={shown} choose={choose} order={ranks?.rows.lines} guest={guest} />}
      </div>
      <Charts groups={found} lines={measured.lines} {...view} busy={measured.busy} refused={measured.error !== null} job={ref} by={by ?? "device"} bounds={bounds} spoken={spoken} />
      {/* Render these once the charts are known, so that they do not move. */}
      {(names.data || names.error) && (
        <>
          <Members detail={detail} lines={together} named={named} chosen={chosen} choose={choose} guest={guest} />
          <div class="pair">
            <Events job={ref} range={below} turn={job.updated ?? 0} chosen={event} choose={setEvent} cursor={cursor} ready={begun} />
            <Logs job={ref} range={below} running={running} replica={chosen} cursor={cursor} chosen={line} choose={setLine} ready={begun} />
          </div>
        </>
      )}
    </article>
  );
}

function Unmeasured({ running }: { running: boolean }) {
  if (running) return <Notice title="No measurements yet.">Charts appear as soon as an agent sends samples.</Notice>;
  return (
    <Notice title="No measurements of this job.">
      To measure the next one, start an agent on its nodes or run <code>jobmeter run -- COMMAND</code>. Events and log of this job are below.
    </Notice>
  );
}

function zoomOf(from: string | null, to: string | null): Range | null {
  const [start, end] = [Number(from), Number(to)];
  return from !== null && to !== null && Number.isFinite(start) && end > start ? { start, end } : null;
}

/** Return true if a chosen range ended before the time. */
const endsBefore = (chosen: Range | null, time: number): boolean => chosen !== null && chosen.end < time;

/** Return the last `length` milliseconds of a range. */
const lastPart = (whole: Range, length: number): Range => ({ start: Math.max(whole.start, whole.end - length), end: whole.end });
