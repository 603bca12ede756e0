"""Measures: reads the samples that a question is about and reduces them to lines.

What was found out about a question's series, and what was made of hours that are over, is kept for the next asking
(docs/decisions/0008-what-is-kept-between-questions.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobmeter.access.scope import Scope
from jobmeter.errors import LimitExceededError, NotAtOnceError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.catalog import Metric
from jobmeter.model.job import JobView, Node
from jobmeter.model.time import HOUR, Clock, TimeRange
from jobmeter.query import gather
from jobmeter.query.answers import Answers, Witness
from jobmeter.query.closed import ClosedBuckets
from jobmeter.query.closed_lines import ClosedLines, Part, Tables, ends, is_own, middle, woven
from jobmeter.query.frame import Frame, read
from jobmeter.query.groups import Groups
from jobmeter.query.layout import Layout, Layouts, lay_out
from jobmeter.query.lines import Head, Ranks, joined_by, unit_of
from jobmeter.query.plan import bucket_count, check, hours_around, sources
from jobmeter.query.request import By, GroupRef, JobRef, Line, MetricQuery, MetricResult, NodeRef
from jobmeter.query.shape import Shape
from jobmeter.query.source import RAW_IS_QUICK, Meter, Source
from jobmeter.query.subjects import Subjects, projects_of
from jobmeter.query.table import Table, lines_of
from jobmeter.settings import Limits
from jobmeter.store.base import Store

_SPARSE = 1.5
"""How many more points there may be room for: a job seldom fills a range."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What executors keep between questions (docs/decisions/0008-what-is-kept-between-questions.md)."""

    layouts: Layouts
    closed: ClosedBuckets
    lines: ClosedLines = field(default_factory=ClosedLines)
    answers: Answers = field(default_factory=Answers)


@dataclass(frozen=True, slots=True)
class Asked:
    """What answers a question: the series in their lines, and what the registry says of their owner."""

    project: str
    layout: Layout
    limits: dict[str, float]


class Measurements:
    """Lines of measured values, of whomever a question is about. Every method may be called from any thread.

    In a ``hurry`` whatever would take longer than a moment is NotAtOnceError.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        limits: Limits,
        source: Source,
        subjects: Subjects,
        groups: Groups,
        kept: Kept,
        *,
        hurry: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._source = source
        self._subjects = subjects
        self._groups = groups
        self._kept = kept
        self._hurry = hurry

    def lines(self, query: MetricQuery, scope: Scope) -> MetricResult:
        """The answer to a question.

        Raises NotFoundError, InvalidRequestError (LimitExceededError for what is too large), QueryTimeoutError or
        UnavailableError.
        """
        meter = Meter(self._clock, self._limits)
        metrics = check(query, self._limits)
        return self._result(query, metrics, self._ask(query, scope, sources(metrics)), meter)

    def encoded(self, query: MetricQuery, scope: Scope, encode: Callable[[MetricResult], bytes]) -> bytes:
        """The answer as ``encode`` writes it, always in the same way; that of an earlier question where it still holds.

        Such a one spends what it cost when it was made. Raises as ``lines``.
        """
        meter = Meter(self._clock, self._limits)
        metrics = check(query, self._limits)
        asked = self._ask(query, scope, sources(metrics))
        witness = self._witness(query, asked)
        known = None if witness is None else self._kept.answers.get(query, witness)
        if known is not None:
            answer, rows = known
            meter.count(rows, None)
            return answer
        result = self._result(query, metrics, asked, meter)
        answer = encode(result)
        if witness is not None:
            self._kept.answers.put(query, witness, answer, result.samples)
        return answer

    def of_job(
        self,
        view: JobView,
        names: frozenset[str],
        span: TimeRange,
        by: By,
        narrowing: gather.Narrowing = gather.EVERYTHING,
    ) -> Asked:
        """The series of some metrics of a job, in lines."""
        job = view.job
        own = gather.series_of_job(self._store, job, names, span, self._limits)

        def make(ranks: Ranks) -> Layout:
            entries, lasting = gather.of_job(
                self._store,
                view,
                own,
                names,
                span,
                self._limits,
                lambda: self._subjects.nodes_of(job.project),
            )
            return lay_out(Shape(narrowing.keep(entries)), by, ranks, lasting=lasting)

        layout = self._kept.layouts.get((job.project, job.id, names, by, narrowing), view, own, make)
        return Asked(job.project, layout, job.limits)

    def of_nodes(
        self,
        nodes: Sequence[Node],
        ref: NodeRef | GroupRef,
        scope: Scope,
        names: frozenset[str],
        span: TimeRange,
        by: By,
        narrowing: gather.Narrowing = gather.EVERYTHING,
    ) -> Asked:
        """The series of some metrics of nodes, in lines."""
        projects = projects_of(ref.project, scope)
        entries = gather.of_nodes(self._store, nodes, projects, names, span, self._limits)
        layout = lay_out(Shape(narrowing.keep(entries)), by, Ranks.of(None), lasting=False)
        return Asked(ref.project or "", layout, {})

    def _result(self, query: MetricQuery, metrics: Sequence[Metric], asked: Asked, meter: Meter) -> MetricResult:
        if self._hurry and self._may_be_long(query, asked.layout):
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

    def _witness(self, query: MetricQuery, asked: Asked) -> Witness | None:
        """What tells whether an answer still holds; None where that cannot be told. Taken before the answer is made."""
        keys = asked.layout.shape.keys if asked.layout.lasting else None
        written = None if keys is None or not isinstance(query.subject, JobRef) else self._store.written(keys)
        if written is None:
            return None
        revision = self._store.revision(asked.layout.shape.jobs) if query.range.length_ms > RAW_IS_QUICK else None
        return Witness(asked.layout, asked.limits, written, self._clock.now_ms() // HOUR, revision)

    def _tables(self, query: MetricQuery, metrics: Sequence[Metric], asked: Asked, meter: Meter) -> Tables:
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
        how = query.aggregate or joined_by(metric, query.by)
        return lines_of(frame, metric, query.statistic, how, layout.line, apart=apart)

    def _ask(self, query: MetricQuery, scope: Scope, names: frozenset[str]) -> Asked:
        narrowing = gather.Narrowing(query.replicas, query.devices, query.labels)
        if not isinstance(query.subject, JobRef):
            if isinstance(query.subject, NodeRef):
                nodes = self._subjects.nodes(query.subject, scope)
            else:
                nodes = self._groups.members(query.subject, query.range, scope)
            return self.of_nodes(nodes, query.subject, scope, names, query.range, query.by, narrowing)
        if query.by is By.JOB and not gather.of_devices(names):
            # Neither ranks nor allocations matter: the head of the job is enough, and quicker to get.
            view = JobView(job=self._subjects.head(query.subject, scope), replicas=[], allocations=[])
        else:
            view = self._subjects.view(query.subject, scope)
        return self.of_job(view, names, query.range, query.by, narrowing)


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
