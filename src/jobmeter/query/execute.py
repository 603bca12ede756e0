"""Runs questions: looks up what the asker may see, reads what the plan says, reduces it to lines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from jobmeter.access.scope import Scope
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotAtOnceError, NotFoundError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.catalog import Metric
from jobmeter.model.event import EventFilter, EventPage
from jobmeter.model.job import Job, JobFilter, JobPage, JobSize, JobView, Node, Project, ProjectsQuestion, SizesQuestion
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.order import natural
from jobmeter.model.question import Asks
from jobmeter.model.series import job_key
from jobmeter.model.time import HOUR, MAX_TIME_MS, SECOND, Clock, TimeRange
from jobmeter.query import gather, series
from jobmeter.query.answers import Answers, Witness
from jobmeter.query.closed import ClosedBuckets
from jobmeter.query.closed_lines import ClosedLines, Part, Tables, ends, is_own, middle, woven
from jobmeter.query.defaults import CORE_METRICS, default_step, job_end, life
from jobmeter.query.frame import Frame, read
from jobmeter.query.group import CapacityQuestion, GroupNodesQuestion, GroupQuestion, RequestsQuestion
from jobmeter.query.groups import Groups
from jobmeter.query.latest import WINDOW_MS, LatestValue, newest, values
from jobmeter.query.layout import Layout, Layouts, lay_out
from jobmeter.query.lines import Head, Ranks, unit_of
from jobmeter.query.logs import pages, selector_of
from jobmeter.query.plan import bucket_count, check, check_by, hours_around, metrics_of, sources
from jobmeter.query.readings import Readings, ReadingsQuestion, readings
from jobmeter.query.reported import ReportedQuestion, reported
from jobmeter.query.request import (
    By,
    GroupRef,
    JobQuestion,
    JobRef,
    Line,
    LogQuestion,
    MetricQuery,
    MetricResult,
    NodeRef,
)
from jobmeter.query.series import BucketsQuestion, LastQuestion, NamesQuestion, SamplesQuestion, SeriesQuestion
from jobmeter.query.shape import Shape
from jobmeter.query.source import RAW_IS_QUICK, Meter, Source, StoreSource
from jobmeter.query.summary import POINTS, JobSummary, summarize
from jobmeter.query.table import Table, lines_of
from jobmeter.registry.base import Registry
from jobmeter.settings import Limits
from jobmeter.store.base import LogSelector, ReadBudget, Store

R = TypeVar("R")
POINTS_AT_ONCE = 5_000
"""Points whose encoding takes a moment."""
_SPARSE = 1.5
"""How many more points there may be room for: a job seldom fills a range."""


class Executor:
    """Answers questions within a scope. Every method may be called from any thread.

    A job, node or project outside of the scope is NotFoundError, as if it did not exist. An id that several visible
    projects use is InvalidRequestError (field ``project``) until the question names one.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        limits: Limits,
        source: Source | None = None,
        kept: "Kept | None" = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._limits = limits
        self._kept = kept or Kept(Layouts(), ClosedBuckets())
        self._source = source or StoreSource(store, self._kept.closed)
        self._layouts = self._kept.layouts
        self._hurried = False
        self._groups = Groups(store, registry, clock, limits, self._source)
        self._answers: dict[type[Asks[Any]], Callable[[Any, Scope], Any]] = {
            MetricQuery: self._measure,
            JobQuestion: lambda question, scope: self._view(question.ref, scope),
            JobFilter: self._list,
            ProjectsQuestion: self._list_projects,
            SizesQuestion: self._sizes,
            EventFilter: self._events,
            LogQuestion: self._lines,
            ReportedQuestion: self._reported,
            ReadingsQuestion: self._readings,
            **dict.fromkeys(
                (GroupQuestion, CapacityQuestion, RequestsQuestion, GroupNodesQuestion), self._groups.answer
            ),
            **dict.fromkeys(
                (SeriesQuestion, NamesQuestion, SamplesQuestion, BucketsQuestion, LastQuestion), self._series
            ),
        }

    def run(self, question: Asks[R], scope: Scope) -> R:
        """The answer to a question.

        Raises NotFoundError, InvalidRequestError (LimitExceededError for what is too large), QueryTimeoutError or
        UnavailableError.
        """
        try:
            answer: R = self._answers[type(question)](question, scope)
        except LimitExceededError:
            if self._hurried:
                raise NotAtOnceError from None
            raise
        return answer

    def at_once(self, store: Store) -> "Executor":
        """An executor that answers from memory or, within a moment, raises NotAtOnceError.

        ``store`` is what knows the same samples without waiting. What is kept between questions is kept by both. Large
        questions take longer than a moment.
        """
        limits = replace(self._limits, query_points=min(self._limits.query_points, POINTS_AT_ONCE))
        twin = Executor(store, self._registry.in_memory(), self._clock, limits, kept=self._kept)
        twin._hurried = True
        return twin

    def kept_answer(self, query: MetricQuery, witness: Witness) -> bytes | None:
        """An answer that was kept by ``keep_answer`` and still holds. It spends what it cost when it was made.

        Raises LimitExceededError or QueryTimeoutError as ``run`` would.
        """
        known = self._kept.answers.get(query, witness)
        if known is None:
            return None
        Meter(self._clock, self._limits).count(known[1], None)
        return known[0]

    def keep_answer(self, query: MetricQuery, witness: Witness, answer: bytes, rows: int) -> None:
        """Keep an encoded answer, for which so many rows were read; ``witness`` was taken before it was made."""
        self._kept.answers.put(query, witness, answer, rows)

    def _reported(self, question: ReportedQuestion, scope: Scope) -> Any:  # noqa: ANN401 - as the question says
        return reported(self._store, self._limits, self._clock, self.head(question.ref, scope), question)

    def _readings(self, question: ReadingsQuestion, scope: Scope) -> Readings:
        narrowing = gather.Narrowing(question.replicas, question.devices)
        view = self._view(question.ref, scope)
        asked = self._of_job(view, question.names, question.range, By.DEVICE, narrowing)
        return readings(self._store, self._clock, self._limits, question, asked.layout.shape)

    def head(self, ref: JobRef, scope: Scope) -> Job:
        """The job itself, without its replicas and allocations. Raises as the class says."""
        projects = _projects(ref.project, scope)
        found = self._registry.job_head(projects, ref.id, self._clock.now_ms())
        return _only([job for job in found if scope.allows(job.project, job.id)], ref)

    def latest(self, ref: JobRef | NodeRef, metrics: Sequence[str], by: By, scope: Scope) -> list[LatestValue]:
        """The newest value of each line, at most 5 minutes older than the subject's newest sample, sorted as lines are.

        No metrics means the core set.
        """
        rows = metrics_of(metrics or CORE_METRICS)
        check_by(ref, by)
        meter = Meter(self._clock, self._limits)
        names = sources(rows)
        if isinstance(ref, JobRef):
            view = self._view(ref, scope)
            span = self._newest_of_job(view.job)
            asked = self._of_job(view, names, span, by)
        else:
            nodes = self.nodes(ref, scope)
            span = self._newest_of_nodes(nodes)
            asked = self._of_nodes(nodes, ref, scope, names, span, by)
        layout = asked.layout
        frame = Frame(layout.shape, newest(layout.shape, self._source, span, meter), asked.limits)
        found = values(frame, rows, layout.line, layout.heads)
        return sorted(found, key=lambda one: (one.metric, natural(one.replica), natural(one.node), natural(one.device)))

    def summary(self, ref: JobRef, scope: Scope) -> JobSummary:
        """What a job used over its whole life (until now, while it runs)."""
        meter = Meter(self._clock, self._limits)
        view = self._view(ref, scope)
        now_ms = self._clock.now_ms()
        span = life(view.job, now_ms)
        step_ms = default_step(span, POINTS)
        rows = metrics_of(CORE_METRICS)
        asked = self._of_job(view, sources(rows), span, By.JOB)
        shape = asked.layout.shape
        frame = Frame(shape, read(shape, self._source, span, step_ms, meter), asked.limits)
        return summarize(view, frame, rows, span, step_ms, now_ms)

    def log_pages(self, question: LogQuestion, scope: Scope, limit: int | None = None) -> Iterator[list[LogLine]]:
        """Every line that a question selects, at most ``limit``, in lists of bounded size; its own limit says nothing.

        Raises as the class says, before the first list.
        """
        selector = selector_of(replace(question, limit=0), self.head(question.ref, scope))
        meter = Meter(self._clock, replace(self._limits, query_rows=self._limits.export_rows))
        return pages(lambda page: self._page(page, self._budget(), meter), selector, limit)

    def _lines(self, question: LogQuestion, scope: Scope) -> LogPage:
        selector = selector_of(question, self.head(question.ref, scope))
        meter = Meter(self._clock, self._limits)
        return self._page(selector, meter.budget(), meter)

    def _page(self, selector: LogSelector, budget: ReadBudget, meter: Meter) -> LogPage:
        page = self._store.read_logs(selector, budget)
        meter.count(len(page.lines), None)
        return page

    def _budget(self) -> ReadBudget:
        return ReadBudget(rows=self._limits.query_rows, seconds=self._limits.query_seconds)

    def _measure(self, query: MetricQuery, scope: Scope) -> MetricResult:
        meter = Meter(self._clock, self._limits)
        metrics = check(query, self._limits)
        asked = self._ask(query, scope, sources(metrics))
        if self._hurried and self._may_be_long(query, asked.layout):
            raise NotAtOnceError
        tables = self._tables(query, metrics, asked, meter)
        lines = [
            one
            for metric in sorted(metrics, key=lambda metric: metric.name)
            for one in _lines(metric, query, tables[metric.name], asked.layout)
        ]
        points = sum(len(one.time) for one in lines)
        if points > self._limits.query_points:
            raise LimitExceededError(
                f"an answer may have {self._limits.query_points} points, this one has {points}: take a longer step",
                "step",
            )
        tiers = tuple(sorted(meter.tiers))
        return MetricResult(query=query, lines=lines, samples=meter.rows, tiers=tiers, project=asked.project)

    def _may_be_long(self, query: MetricQuery, layout: Layout) -> bool:
        """True when the answer could have more points than may be made at once."""
        lines = len(layout.heads) * len(query.metrics)
        return lines * bucket_count(query.range, query.step_ms) > _SPARSE * self._limits.query_points

    def witness(self, query: MetricQuery, scope: Scope) -> Witness | None:
        """What tells whether an answer to a question still holds; None where that cannot be told.

        Raises as ``run`` for a job that is not there.
        """
        if not isinstance(query.subject, JobRef):
            return None
        asked = self._ask(query, scope, sources(metrics_of(query.metrics)))
        keys = asked.layout.shape.keys if asked.layout.lasting else None
        written = None if keys is None else self._store.written(keys)
        if written is None:
            return None
        return Witness(asked.layout, asked.limits, written, self._clock.now_ms() // HOUR)

    def _tables(self, query: MetricQuery, metrics: Sequence[Metric], asked: "_Asked", meter: Meter) -> Tables:
        """The values of each metric by line; those of hours that are over are kept."""

        def of(span: TimeRange) -> Tables:
            columns = read(asked.layout.shape, self._source, span, query.step_ms, meter)
            frame = Frame(asked.layout.shape, columns, asked.limits, query.step_ms)
            return {metric.name: self._table(frame, metric, query, asked.layout) for metric in metrics}

        layout, span = asked.layout, query.range
        keeps = layout.lasting and span.length_ms > RAW_IS_QUICK and all(map(is_own, metrics))
        revision = self._store.revision(layout.shape.jobs) if keeps else None
        rolled = [] if revision is None else self._store.rolled(layout.shape.jobs, hours_around(span))
        inside = middle(span, query.step_ms, rolled)
        if inside is None:
            return of(span)
        name = query.metrics, query.step_ms, query.statistic, query.aggregate
        part = self._kept.lines.get(
            layout, name, inside, revision, lambda: Part(inside, of(inside), frozenset(meter.tiers))
        )
        if not part.fresh:
            meter.count_kept(part.rows, part.tiers)
        before, after = (of(end) if end.length_ms else None for end in ends(span, inside))
        parts = [tables for tables in (before, part.tables, after) if tables is not None]
        return {metric.name: woven([tables[metric.name] for tables in parts]) for metric in metrics}

    @staticmethod
    def _table(frame: Frame, metric: Metric, query: MetricQuery, layout: Layout) -> Table:
        apart = metric.name in layout.apart
        return lines_of(frame, metric, query.statistic, query.aggregate, layout.line, apart=apart)

    def _series(self, question: Asks[Any], scope: Scope) -> Any:  # noqa: ANN401 - each question has its own result
        meter = Meter(self._clock, self._limits)
        match question:
            case SeriesQuestion():
                return series.find(self._store, question, scope, self._limits, meter)
            case NamesQuestion():
                return series.names(self._store, question, scope)
            case SamplesQuestion():
                return series.samples(self._store, question, scope, meter)
            case BucketsQuestion():
                return series.in_steps(self._source, question, scope, meter)
            case LastQuestion():
                return series.last(self._store, question, scope, meter)
            case _:
                raise TypeError(f"no question about series: {question!r}")

    def _ask(self, query: MetricQuery, scope: Scope, names: frozenset[str]) -> "_Asked":
        narrowing = gather.Narrowing(query.replicas, query.devices, query.labels)
        if not isinstance(query.subject, JobRef):
            if isinstance(query.subject, NodeRef):
                nodes = self.nodes(query.subject, scope)
            else:
                nodes = self._groups.members(query.subject, query.range, scope)
            return self._of_nodes(nodes, query.subject, scope, names, query.range, query.by, narrowing)
        if query.by is By.JOB and not gather.of_devices(names):
            # Neither ranks nor allocations matter: the head of the job is enough, and quicker to get.
            view = JobView(job=self.head(query.subject, scope), replicas=[], allocations=[])
        else:
            view = self._view(query.subject, scope)
        return self._of_job(view, names, query.range, query.by, narrowing)

    def _of_job(
        self,
        view: JobView,
        names: frozenset[str],
        span: TimeRange,
        by: By,
        narrowing: gather.Narrowing = gather.EVERYTHING,
    ) -> "_Asked":
        job = view.job
        own = gather.series_of_job(self._store, job, names, span, self._limits)

        def make() -> Layout:
            entries, lasting = gather.of_job(
                self._store,
                view,
                own,
                names,
                span,
                self._limits,
                lambda: self._registry.nodes(frozenset({job.project})),
            )
            return lay_out(Shape(narrowing.keep(entries)), by, Ranks.of(view), lasting=lasting)

        layout = self._layouts.get((job.project, job.id, names, by, narrowing), view, own, make)
        return _Asked(job.project, layout, job.limits)

    def _of_nodes(
        self,
        nodes: Sequence[Node],
        ref: NodeRef | GroupRef,
        scope: Scope,
        names: frozenset[str],
        span: TimeRange,
        by: By,
        narrowing: gather.Narrowing = gather.EVERYTHING,
    ) -> "_Asked":
        projects = _projects(ref.project, scope)
        entries = gather.of_nodes(self._store, nodes, projects, names, span, self._limits)
        layout = lay_out(Shape(narrowing.keep(entries)), by, Ranks.of(None), lasting=False)
        return _Asked(ref.project or "", layout, {})

    def _view(self, ref: JobRef, scope: Scope) -> JobView:
        found = self._registry.job(_projects(ref.project, scope), ref.id, self._clock.now_ms())
        inside = {view.job.project: view for view in found if scope.allows(view.job.project, view.job.id)}
        return inside[_only([view.job for view in inside.values()], ref).project]

    def _list(self, question: JobFilter, scope: Scope) -> JobPage:
        seen = _narrowed(question.projects, question.ids, scope)
        if seen is None:
            return JobPage([], 0)
        projects, ids = seen
        return self._registry.jobs(msgspec.structs.replace(question, projects=projects, ids=ids), self._clock.now_ms())

    def _sizes(self, question: SizesQuestion, scope: Scope) -> list[JobSize]:
        found = self._registry.sizes([job for job in question.jobs if scope.allows(*job)])
        return [found.get(job, JobSize()) for job in question.jobs]

    def _list_projects(self, question: ProjectsQuestion, scope: Scope) -> list[Project]:
        names = question.names
        if scope.projects is not None:
            names = scope.projects if names is None else names & scope.projects
        if scope.job is not None or (names is not None and not names):
            return []
        return self._registry.projects(names, self._clock.now_ms())

    def _events(self, question: EventFilter, scope: Scope) -> EventPage:
        seen = _narrowed(question.projects, question.jobs, scope)
        if seen is None:
            return EventPage([], 0)
        projects, jobs = seen
        return self._registry.events(msgspec.structs.replace(question, projects=projects, jobs=jobs))

    def nodes(self, ref: NodeRef, scope: Scope) -> list[Node]:
        """Every node of that name that the asker may see. Raises NotFoundError when there is none."""
        if scope.job is not None:
            raise NotFoundError(f"there is no node {ref.name!r}", "node", ref.name)
        nodes = [
            node
            for node in self._registry.nodes(_projects(ref.project, scope))
            if ref.cluster in (None, node.cluster) and (node.name == ref.name or (not ref.name and ref.cluster))
        ]
        if not nodes:
            what = f"node {ref.name!r}" if ref.name else f"cluster {ref.cluster!r}"
            raise NotFoundError(f"there is no {what}", "node", ref.name)
        return nodes

    def _newest_of_job(self, job: Job) -> TimeRange:
        """Around a job's newest sample; where everything of it was measured for nobody, around its end or now."""
        ahead = self._clock.now_ms() + self._limits.future_seconds * SECOND
        until = job_end(job)
        until = self._clock.now_ms() if until is None else until
        key = job_key(job.project, job.id)
        own = self._store.last_times([key]).get(key)
        last = until if own is None else own[1]
        return TimeRange(max(min(last, ahead) - WINDOW_MS, 0), min(max(last, until) + 1, MAX_TIME_MS))

    def _newest_of_nodes(self, nodes: Sequence[Node]) -> TimeRange:
        now_ms = self._clock.now_ms()
        seen = [node.last_seen for node in nodes if node.last_seen is not None]
        last = min(max(seen, default=now_ms), now_ms)
        return TimeRange(max(last - WINDOW_MS, 0), min(now_ms + self._limits.future_seconds * SECOND, MAX_TIME_MS))


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What executors keep between questions (docs/decisions/0008-what-is-kept-between-questions.md)."""

    layouts: Layouts
    closed: ClosedBuckets
    lines: ClosedLines = field(default_factory=ClosedLines)
    answers: Answers = field(default_factory=Answers)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What answers a question: the series in their lines, and what the registry says of their owner."""

    project: str
    layout: Layout
    limits: dict[str, float]


def _projects(named: str | None, scope: Scope) -> frozenset[str] | None:
    """The projects to look in: the named one, as far as the scope holds it, else all of the scope."""
    if named is None:
        return scope.projects
    return frozenset({named}) if scope.projects is None else scope.projects & {named}


def _narrowed(
    projects: frozenset[str] | None, jobs: tuple[str, ...], scope: Scope
) -> tuple[frozenset[str] | None, tuple[str, ...]] | None:
    """What of these projects and jobs (empty: all) the scope holds; None when that is nothing."""
    if scope.projects is not None:
        projects = scope.projects if projects is None else projects & scope.projects
    if projects is not None and not projects:
        return None
    if scope.job is None:
        return projects, jobs
    return (projects, (scope.job,)) if not jobs or scope.job in jobs else None


def _only(jobs: Sequence[Job], ref: JobRef) -> Job:
    if not jobs:
        raise NotFoundError(f"there is no job {ref.id!r}", "job", ref.id)
    if len(jobs) > 1:
        projects = ", ".join(sorted(job.project for job in jobs))
        raise InvalidRequestError(f"several projects have a job {ref.id!r} ({projects}): name one", "project")
    return jobs[0]


def _lines(metric: Metric, query: MetricQuery, table: Table, layout: Layout) -> list[Line]:
    finite = np.isfinite(table.value)
    if not finite.all():
        table = Table(table.owner[finite], table.time[finite], table.value[finite])
    bounds = np.searchsorted(table.owner, np.arange(len(layout.heads) + 1)).tolist()
    unit = unit_of(metric, query.statistic)
    return [
        _line(metric.name, unit, layout.heads[at], table.time[bounds[at] : end], table.value[bounds[at] : end])
        for at in layout.order
        if (end := bounds[at + 1]) > bounds[at]
    ]


def _line(metric: str, unit: str, head: Head, time: Int64s, value: Float64s) -> Line:
    return Line(
        metric=metric,
        unit=unit,
        replica=head.replica,
        node=head.node,
        device=head.device,
        time=time,
        value=value,
        rank=head.rank,
    )
