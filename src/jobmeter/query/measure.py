"""Read the samples of a query and reduce them to lines.

Layouts of series, and results of closed hours, are cached for later queries (``jobmeter.store.cache``).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError
from jobmeter.model.catalog import Metric
from jobmeter.model.job import Job, JobView, Node
from jobmeter.model.series import NO_JOB, compute_job_key
from jobmeter.model.time import HOUR, Clock, TimeRange
from jobmeter.query import selection
from jobmeter.query.buckets import BucketedSeries, read, read_memory
from jobmeter.query.groups import Groups
from jobmeter.query.layout import MOST_POINTS, CachedLayout, Layout, Layouts, lay_out
from jobmeter.query.lines import Ranks, choose_unit, find_aggregate
from jobmeter.query.meter import Meter
from jobmeter.query.permitted import filter_permitted_series
from jobmeter.query.request import (
    By,
    EncodedQuestion,
    Encoder,
    GroupRef,
    JobRef,
    Line,
    LinesInColumns,
    MetricQuery,
    MetricResult,
    MetricSelection,
    NodeRef,
    check,
    compute_series_start,
    count_buckets,
    find_sources,
    is_own,
)
from jobmeter.query.response_cache import ResponseCache, Validator
from jobmeter.query.restarts import join_restarts
from jobmeter.query.result_cache import CachedPart, ResultCache, Tables, cut_ends, find_middle, interleave
from jobmeter.query.sampled import SampledLine, SampledQuestion, Sampling
from jobmeter.query.selected_series import SelectedSeries
from jobmeter.query.source import RAW_IS_QUICK, Source, widen_to_hours
from jobmeter.query.subjects import Subjects, find_projects, is_shown
from jobmeter.query.table import EMPTY, ResultTable, compute_lines
from jobmeter.registry.base import Registry
from jobmeter.settings import Limits
from jobmeter.store.cache import Cache

_SPARSE = 1.5
"""Factor on the allowed number of points when estimating, because a job seldom fills a range."""


class ResolvedQuery(NamedTuple):
    """Series of a query in their lines, with the registry's data about their owner."""

    project: str
    layout: Layout
    limits: dict[str, float]


class Measurements:
    """Computes lines of measured values for any subject. Thread-safe."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        limits: Limits,
        source: Source,
        subjects: Subjects,
        groups: Groups,
        cache: Cache,
        encoders: Mapping[str, Encoder],
    ) -> None:
        self._registry = registry
        self._store = source.store
        self._clock = clock
        self._limits = limits
        self._source = source
        self._subjects = subjects
        self._groups = groups
        self._encoders = encoders
        self._layouts, self._closed_lines, self._answers = Layouts(cache), ResultCache(cache), ResponseCache(cache)

    def measure_lines(self, query: MetricQuery, scope: Scope) -> MetricResult:
        """Answer a query.

        Raises NotFoundError, InvalidRequestError (LimitExceededError if too large), QueryTimeoutError or
        UnavailableError.
        """
        meter = Meter(self._clock, self._limits)
        metrics, names, _ = check(query, self._limits)
        resolved = self._resolve(query, scope, names)
        return self._result(query, metrics, resolved, self._tables(query, metrics, resolved, meter), meter)

    def answer_from_memory(self, query: MetricQuery, scope: Scope) -> MetricResult | None:
        """Answer a query without waiting; None if some data is not in memory, or if the answer takes longer."""
        selection = check(query, self._limits)
        resolved = self._resolve_cached(query, scope, selection.sources)
        return None if resolved is None else self._result_from_memory(query, selection, resolved)

    def make_preparation(self, query: MetricQuery, scope: Scope) -> Callable[[], object] | None:
        """Return a function that caches the layout of a short query about a job.

        None for any other query, for a cached layout, and for a layout that depends on the range.
        """
        names = check(query, self._limits).sources
        is_quick = isinstance(query.subject, JobRef) and query.range.length_ms <= RAW_IS_QUICK
        if not is_quick or self._get_cached_layout(query, scope, names) is not None:
            return None
        return partial(self._resolve, query, scope, names)

    def encode(self, question: EncodedQuestion, scope: Scope) -> bytes:
        """Return the answer in the requested form; from the cache while it is valid.

        A cached answer costs as much of the budget as when it was made. Raises as ``measure_lines``.
        """
        query, meter = question.query, Meter(self._clock, self._limits)
        metrics, names, _ = check(query, self._limits)
        resolved = self._resolve(query, scope, names)
        validator = self._validator(query, resolved)
        answer = self._get_cached_answer(question, validator, meter)
        if answer is None:
            result = self._result(query, metrics, resolved, self._tables(query, metrics, resolved, meter), meter)
            answer = self._encoders[question.form](result)
            if validator is not None:
                self._answers.put(question, validator, answer, result.samples)
        return answer

    def encode_from_memory(self, question: EncodedQuestion, scope: Scope) -> bytes | None:
        """Return the encoded answer without waiting; None if some data is not in memory, or if it takes longer."""
        query = question.query
        selection = check(query, self._limits)
        resolved = self._resolve_cached(query, scope, selection.sources)
        if resolved is None:
            return None
        if query.range.length_ms > RAW_IS_QUICK:
            return self._get_cached_answer(question, self._validator(query, resolved), Meter(self._clock, self._limits))
        result = self._result_from_memory(query, selection, resolved)
        return None if result is None else self._encoders[question.form](result)

    def measure_sampling_times(self, question: SampledQuestion, scope: Scope) -> list[SampledLine]:
        """Answer a question for lines with their sampling times. Raises as ``measure_lines``."""
        query, meter = question.query, Meter(self._clock, self._limits)
        metrics, names, _ = check(query, self._limits)
        if question.view is not None and is_shown(question.view, scope):
            resolved = self.resolve_job(question.view, names, query.range, query.by)
        else:
            resolved = self._resolve(query, scope, names)
        layout = resolved.layout
        columns = read(layout.shape, self._source, query.range, query.step_ms, meter)
        frame = BucketedSeries(layout.shape, columns, resolved.limits, query.step_ms)
        sampling = Sampling(frame, layout)
        found = [
            SampledLine(line, sampling.find_presence(metric.name, at, line.time))
            for metric in sorted(metrics, key=lambda metric: metric.name)
            for at, line in _lines(metric, query, self._table(frame, metric, query, layout), layout)
        ]
        self._check_points(sum(len(one.line.time) for one in found))
        return found

    def resolve_job(
        self,
        view: JobView,
        names: frozenset[str],
        span: TimeRange,
        by: By,
        series_filter: selection.SeriesFilter = selection.EVERYTHING,
    ) -> ResolvedQuery:
        """Resolve some metrics of a job to series in lines."""
        job = view.job
        key = (job.project, job.id, names, by, series_filter, compute_series_start(span, self._limits))
        revision, unassigned = self._revisions(job)
        cached = None if revision is None else self._layouts.get(key, view, revision, unassigned)
        if cached is not None and cached.layout is not None:
            return ResolvedQuery(job.project, cached.layout, job.limits)
        own = selection.find_own_series(self._store, job, names, self._limits, compute_series_start(span, self._limits))
        validator = own if revision is None else revision
        cached = None if revision is not None else self._layouts.get(key, view, own, unassigned)
        layout = None if cached is None else cached.layout
        if layout is None:
            nodes = partial(self._subjects.find_nodes_of_project, job.project)
            found = selection.select_job(self._store, view, own, names, span, self._limits, nodes)
            ranks, others = Ranks.from_view(view), unassigned if found.unassigned else None
            joined = join_restarts(series_filter.filter(found.entries), view, by)
            range_independent = (
                found.range_independent and joined.range_independent and (others is not None or not found.unassigned)
            )
            layout = lay_out(SelectedSeries(joined.entries), by, ranks, range_independent=range_independent)
            if range_independent or revision is not None:
                self._layouts.put(key, view, validator, layout, ranks, others if range_independent else unassigned)
        return ResolvedQuery(job.project, layout, job.limits)

    def _revisions(self, job: Job) -> tuple[Hashable | None, Hashable | None]:
        """Return the revisions of the job's series and of the series without a job."""
        return self._store.get_revision((compute_job_key(job.project, job.id),)), self._store.get_revision((NO_JOB,))

    def resolve_nodes(
        self,
        nodes: Sequence[Node],
        ref: NodeRef | GroupRef,
        scope: Scope,
        names: frozenset[str],
        span: TimeRange,
        by: By,
        series_filter: selection.SeriesFilter = selection.EVERYTHING,
    ) -> ResolvedQuery:
        """Resolve some metrics of nodes to series in lines."""
        # A key that sees only some resources must not see another project's node of equal name.
        own = scope.grant is not None
        projects = frozenset(node.project for node in nodes) if own else find_projects(ref.project, scope)
        found = selection.find_node_series(self._store, nodes, projects, names, span, self._limits)
        entries = selection.select_nodes(filter_permitted_series(self._registry, found, scope, self._clock.now_ms()))
        layout = lay_out(
            SelectedSeries(series_filter.filter(entries)), by, Ranks.from_view(None), range_independent=False
        )
        return ResolvedQuery(ref.project or "", layout, {})

    def _result_from_memory(
        self, query: MetricQuery, selection: MetricSelection, resolved: ResolvedQuery
    ) -> MetricResult | None:
        layout, memory = resolved.layout, self._store.memory
        points = len(layout.heads) * len(query.metrics) * count_buckets(query.range, query.step_ms)
        if memory is None or points > _SPARSE * MOST_POINTS or query.range.length_ms > RAW_IS_QUICK:
            return None
        found = layout.read_means(query, memory) if selection.own else None
        meter = Meter(self._clock, self._limits)
        if found is not None and layout.grid is not None:
            meter.count(found.samples, None)
            self._check_points(len(found.time))
            lines = LinesInColumns(layout.grid.names, found)
            return MetricResult(query, lines, found.samples, tuple(meter.tiers), resolved.project)
        columns = read_memory(layout.shape, memory, query.range, query.step_ms)
        if columns is None:
            return None
        meter.count(int(columns.count.sum()), None)
        frame = BucketedSeries(layout.shape, columns, resolved.limits, query.step_ms)
        tables = {metric.name: self._table(frame, metric, query, layout) for metric in selection.metrics}
        return self._result(query, selection.metrics, resolved, tables, meter)

    def _result(
        self, query: MetricQuery, metrics: Sequence[Metric], resolved: ResolvedQuery, tables: Tables, meter: Meter
    ) -> MetricResult:
        lines = [
            one
            for metric in sorted(metrics, key=lambda metric: metric.name)
            for _, one in _lines(metric, query, tables[metric.name], resolved.layout)
        ]
        self._check_points(sum(len(one.time) for one in lines))
        tiers = tuple(sorted(meter.tiers))
        return MetricResult(query=query, lines=lines, samples=meter.rows, tiers=tiers, project=resolved.project)

    def _check_points(self, points: int) -> None:
        if points > self._limits.query_points:
            raise LimitExceededError(
                f"an answer may have {self._limits.query_points} points, this one has {points}: take a longer step",
                "step",
            )

    def _get_cached_answer(self, question: EncodedQuestion, validator: Validator | None, meter: Meter) -> bytes | None:
        cached = None if validator is None else self._answers.get(question, validator)
        if cached is None:
            return None
        answer, rows = cached
        meter.count(rows, None)
        return answer

    def _validator(self, query: MetricQuery, resolved: ResolvedQuery) -> Validator | None:
        """Build a validator of the answer before computing it; None if it cannot be determined.

        Short ranges are not cached: the window answers them as quickly as a cache.
        """
        if query.range.length_ms <= RAW_IS_QUICK or not isinstance(query.subject, JobRef):
            return None
        keys = resolved.layout.shape.keys if resolved.layout.range_independent else None
        in_memory = self._store.memory
        write_revision = None if keys is None or in_memory is None else in_memory.write_revision(keys)
        if write_revision is None:
            return None
        revision = self._store.get_revision(resolved.layout.shape.jobs)
        return Validator(resolved.layout, resolved.limits, write_revision, self._clock.now_ms() // HOUR, revision)

    def _tables(self, query: MetricQuery, metrics: Sequence[Metric], resolved: ResolvedQuery, meter: Meter) -> Tables:
        """Compute the values of each metric by line; closed hours are cached."""

        def of(span: TimeRange) -> Tables:
            columns = read(resolved.layout.shape, self._source, span, query.step_ms, meter)
            frame = BucketedSeries(resolved.layout.shape, columns, resolved.limits, query.step_ms)
            return {metric.name: self._table(frame, metric, query, resolved.layout) for metric in metrics}

        layout, span = resolved.layout, query.range
        is_cached = layout.range_independent and span.length_ms > RAW_IS_QUICK and all(map(is_own, metrics))
        revision = self._store.get_revision(layout.shape.jobs) if is_cached else None
        rolled = [] if revision is None else self._store.find_rolled_up_ranges(layout.shape.jobs, widen_to_hours(span))
        inside = find_middle(span, query.step_ms, rolled)
        if inside is None:
            return of(span)
        name = query.metrics, query.step_ms, query.statistic, query.aggregate
        part = self._closed_lines.get(
            layout, name, inside, revision, lambda: CachedPart(inside, of(inside), frozenset(meter.tiers))
        )
        if not part.fresh:
            meter.count_cached(part.rows, part.tiers)
        before, after = (of(end) if end.length_ms else None for end in cut_ends(span, inside))
        parts = [tables for tables in (before, part.tables, after) if tables is not None]
        return {metric.name: interleave([tables[metric.name] for tables in parts]) for metric in metrics}

    @staticmethod
    def _table(frame: BucketedSeries, metric: Metric, query: MetricQuery, layout: Layout) -> ResultTable:
        if not layout.shape.measures(find_sources(metric)):
            return EMPTY
        one_line_per_series = metric.name in layout.one_line_per_series
        how = query.aggregate or find_aggregate(metric, query.by)
        return compute_lines(frame, metric, query.statistic, how, layout.line, one_line_per_series=one_line_per_series)

    def _resolve(self, query: MetricQuery, scope: Scope, names: frozenset[str]) -> ResolvedQuery:
        series_filter = selection.SeriesFilter(query.replicas, query.devices, query.labels)
        if not isinstance(query.subject, JobRef):
            if isinstance(query.subject, NodeRef):
                nodes = self._subjects.find_nodes(query.subject, scope)
            else:
                nodes = self._groups.list_nodes(query.subject, query.range, scope)
            return self.resolve_nodes(nodes, query.subject, scope, names, query.range, query.by, series_filter)
        view = self._subjects.find_view(query.subject, scope, alone=_needs_head_alone(query, names))
        return self.resolve_job(view, names, query.range, query.by, series_filter)

    def _resolve_cached(self, query: MetricQuery, scope: Scope, names: frozenset[str]) -> ResolvedQuery | None:
        """Resolve a query without waiting; None if the job, its series or their layout are not in memory."""
        found = self._get_cached_layout(query, scope, names)
        if found is None:
            return None
        job, cached = found
        return None if cached.layout is None else ResolvedQuery(job.project, cached.layout, job.limits)

    def _get_cached_layout(
        self, query: MetricQuery, scope: Scope, names: frozenset[str]
    ) -> tuple[Job, CachedLayout] | None:
        if not isinstance(query.subject, JobRef):
            return None
        view = self._subjects.find_cached_view(query.subject, scope, alone=_needs_head_alone(query, names))
        if view is None:
            return None
        job = view.job
        revision, unassigned = self._revisions(job)
        if revision is None:
            return None
        series_filter = selection.SeriesFilter(query.replicas, query.devices, query.labels)
        key = (job.project, job.id, names, query.by, series_filter, compute_series_start(query.range, self._limits))
        cached = self._layouts.get(key, view, revision, unassigned)
        return None if cached is None else (job, cached)


def _needs_head_alone(query: MetricQuery, names: frozenset[str]) -> bool:
    """Return True if neither ranks nor allocations matter: the job is then read without replicas."""
    return query.by is By.JOB and not selection.select_device_metrics(names)


def _lines(metric: Metric, query: MetricQuery, table: ResultTable, layout: Layout) -> list[tuple[int, Line]]:
    """Return the lines in listing order, each with its position in the layout."""
    if not len(table):
        return []
    finite = np.isfinite(table.value)
    if not finite.all():
        table = table.select(finite)
    bounds = np.searchsorted(table.owner, np.arange(len(layout.heads) + 1)).tolist()
    unit = choose_unit(metric, query.statistic)
    lines: list[tuple[int, Line]] = []
    for at in layout.order:
        rows = slice(bounds[at], bounds[at + 1])
        if rows.start < rows.stop:
            replica, node, device, rank = layout.heads[at]
            line = Line(metric.name, unit, replica, node, device, table.time[rows], table.value[rows], rank)
            lines.append((at, line))
    return lines
