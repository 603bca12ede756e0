"""Execute queries: find the visible subjects, read data as planned, reduce it to lines."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import ForbiddenError
from jobmeter.model.answers import LatestValue
from jobmeter.model.catalog import METRICS, add_derived
from jobmeter.model.event import EventFilter, EventPage, EventType
from jobmeter.model.job import (
    Job,
    JobFilter,
    JobPage,
    JobSize,
    JobState,
    JobView,
    Node,
    Project,
    ProjectsQuestion,
    SizesQuestion,
    StateCountsQuestion,
)
from jobmeter.model.job_answers import JobSummary
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_tree import And
from jobmeter.model.order import make_natural_key
from jobmeter.model.phase import JobPhases
from jobmeter.model.quality import JobQuality
from jobmeter.model.question import Question
from jobmeter.model.series import NO_JOB, NamePart, compute_job_key
from jobmeter.model.steps import SUMMARY_BUCKETS
from jobmeter.model.time import MAX_TIME_MS, SECOND, Clock, TimeRange
from jobmeter.model.trace_filter import SpanFilter, TraceFilter
from jobmeter.query import selection, series, traces
from jobmeter.query.administration import AllDamageQuestion, Answers, record_answers
from jobmeter.query.buckets import BucketedSeries, read
from jobmeter.query.defaults import CORE_METRICS, SUMMARY_METRICS, choose_step, compute_life, find_end
from jobmeter.query.device_hours import DeviceHours, DeviceHoursQuestion, compute_device_hours
from jobmeter.query.facts import JobFacts, JobFactsQuestion, NodeFacts, NodeFactsQuestion, get_job_facts, get_node_facts
from jobmeter.query.findings import FindingListQuestion, list_findings
from jobmeter.query.fleet import FleetQuestion, read_fleet
from jobmeter.query.group import (
    CapacityQuestion,
    GroupNodesQuestion,
    GroupQuestion,
    NodeLoadsQuestion,
    RequestsQuestion,
    ResourceGroupsQuestion,
)
from jobmeter.query.group_list import list_resource_groups
from jobmeter.query.groups import Groups
from jobmeter.query.idle import WORK, IdleQuestion, IdleTime, Measure, measure_devices, measure_idle_times
from jobmeter.query.inventory import UNKNOWN, Inventory
from jobmeter.query.job_ends import get_cached_job_ends, read_job_ends
from jobmeter.query.latest import WINDOW_MS, LatestQuestion, compute_values, drop_superseded, read_newest
from jobmeter.query.logs import LogLinesQuestion, iterate_pages, make_selector
from jobmeter.query.measure import Measurements
from jobmeter.query.meter import Meter
from jobmeter.query.nodes import NodeFaultsQuestion, NodesQuestion, find_faults, find_nodes
from jobmeter.query.permitted import (
    PART_ALONE,
    check_scope,
    count_permitted_states,
    filter_permitted_names,
    filter_permitted_series,
    find_job_projects,
    hide_unpermitted_lines,
    list_permitted_jobs,
    list_permitted_projects,
)
from jobmeter.query.phase_facts import read_facts
from jobmeter.query.phases import WRITES, MeasuredRun, PhasesQuestion, RunQuestion, compute_phases
from jobmeter.query.quality import QualityQuestion, measure_quality
from jobmeter.query.readings import Readings, ReadingsQuestion, read_samples
from jobmeter.query.reported import Reported, ReportedQuestion, read_reported
from jobmeter.query.request import (
    By,
    EncodedQuestion,
    Encoder,
    HeadQuestion,
    JobQuestion,
    JobRef,
    JobViewsQuestion,
    LogQuestion,
    MeasuredNamesQuestion,
    MetricQuery,
    NodeRecordsQuestion,
    check_by,
    find_metrics,
    list_sources,
)
from jobmeter.query.rollups import RollupsQuestion, find_expiry, has_expired, read_rollups
from jobmeter.query.sampled import SampledQuestion
from jobmeter.query.series import BucketsQuestion, LastQuestion, NamesQuestion, SamplesQuestion, SeriesQuestion
from jobmeter.query.source import Source
from jobmeter.query.subjects import Subjects, limit_view
from jobmeter.query.summary import SummaryQuestion, summarize
from jobmeter.registry.base import Registry
from jobmeter.settings import Limits
from jobmeter.store.base import LogSelector, ReadBudget, SeriesSelector, Store
from jobmeter.store.cache import Cache

R = TypeVar("R")
MOST_NAMES = 10_000
"""Most metrics of a job in an answer."""


class Executor:
    """Executes queries within a scope. Thread-safe.

    A job, node or project outside the scope gives NotFoundError, as if it did not exist. An id used by several visible
    projects gives InvalidRequestError (field ``project``) unless the query names one.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        limits: Limits,
        cache: Cache | None = None,
        encoders: Mapping[str, Encoder] = MappingProxyType({}),
    ) -> None:
        """``encoders`` write the answer of an ``EncodedQuestion``, by the name of its form."""
        self._store = store
        self._registry = registry
        self._clock = clock
        self._limits = limits
        self.cache = cache or Cache()
        self._source = Source(store, self.cache)
        self._subjects = Subjects(registry, clock)
        self._groups = Groups(registry, clock, limits, self._source)
        self._measurements = Measurements(
            registry, clock, limits, self._source, self._subjects, self._groups, self.cache, encoders
        )
        self._answers = self._answers_by_type()
        self._from_memory: dict[type[Question[Any]], Callable[[Any, Scope], Any]] = {
            MetricQuery: self._measurements.answer_from_memory,
            EncodedQuestion: self._measurements.encode_from_memory,
            HeadQuestion: lambda question, scope: self._subjects.find_cached_head(question.ref, scope),
            JobQuestion: self._get_cached_job,
            AllDamageQuestion: self._answers[AllDamageQuestion],
            SeriesQuestion: lambda question, scope: series.find_cached(store, question, scope, limits, self.cache),
            SamplesQuestion: self._samples_in_memory,
        }

    def _answers_by_type(self) -> Answers:
        store, registry, clock = self._store, self._registry, self._clock
        return {
            MetricQuery: self._measurements.measure_lines,
            EncodedQuestion: self._measurements.encode,
            SampledQuestion: self._measurements.measure_sampling_times,
            HeadQuestion: lambda question, scope: self._subjects.find_head(question.ref, scope),
            NodeRecordsQuestion: lambda question, scope: self._subjects.find_nodes(question.ref, scope),
            LatestQuestion: self._read_latest,
            MeasuredNamesQuestion: self._list_measured_names,
            SummaryQuestion: self._summary,
            JobQuestion: lambda question, scope: limit_view(self._subjects.find_view(question.ref, scope), scope),
            JobViewsQuestion: self._views,
            JobFilter: self._list,
            StateCountsQuestion: self._state_counts,
            ProjectsQuestion: self._list_projects,
            SizesQuestion: self._sizes,
            EventFilter: self._events,
            LogQuestion: self._lines,
            LogLinesQuestion: self._log_lines,
            TraceFilter: lambda question, scope: traces.list_traces(store, question, scope, self._meter()),
            SpanFilter: lambda question, scope: traces.list_spans(store, question, scope, self._meter()),
            ReportedQuestion: self._read_reported,
            ReadingsQuestion: self._readings,
            FindingListQuestion: lambda question, scope: list_findings(registry, question, scope, clock.now_ms()),
            FleetQuestion: lambda question, scope: read_fleet(registry, self._source, question, scope, self._meter()),
            NodesQuestion: lambda question, scope: find_nodes(registry, question, scope, clock.now_ms()),
            NodeFaultsQuestion: lambda question, scope: find_faults(registry, question, scope, clock.now_ms()),
            JobFactsQuestion: self._job_facts,
            NodeFactsQuestion: self._node_facts,
            ResourceGroupsQuestion: lambda question, scope: list_resource_groups(registry, question, scope),
            QualityQuestion: self._quality,
            IdleQuestion: self._measure_idle,
            DeviceHoursQuestion: self._device_hours,
            PhasesQuestion: self._phases,
            RunQuestion: self._measure_run,
            **dict.fromkeys(
                (GroupQuestion, CapacityQuestion, RequestsQuestion, GroupNodesQuestion, NodeLoadsQuestion),
                self._groups.answer,
            ),
            **dict.fromkeys(
                (SeriesQuestion, NamesQuestion, SamplesQuestion, BucketsQuestion, LastQuestion, RollupsQuestion),
                self._series,
            ),
            **record_answers(store, registry, clock, self._subjects),
        }

    @property
    def question_types(self) -> Collection[type[Question[Any]]]:
        """Types of the questions that it answers."""
        return self._answers.keys()

    def run(self, question: Question[R], scope: Scope) -> R:
        """Answer a question.

        Raises ForbiddenError for a scope that the question is not open to, NotFoundError, InvalidRequestError
        (LimitExceededError if too large), QueryTimeoutError or UnavailableError.
        """
        check_scope(question, scope)
        answer: R = self._answers[type(question)](question, scope)
        return answer

    def answer_from_memory(self, question: Question[R], scope: Scope) -> R | None:
        """Answer a question without waiting; None if a worker has to run it.

        For an event loop's thread: an answer takes a fraction of a millisecond. Raises as ``run``.
        """
        check_scope(question, scope)
        answer = self._from_memory.get(type(question))
        found: R | None = None if answer is None else answer(question, scope)
        return found

    def make_preparation(self, question: Question[Any], scope: Scope) -> Callable[[], object] | None:
        """Return a function that caches the job and the series of a question, so that memory can answer.

        None if the cache would not help. The function may wait, and raises as ``run``.
        """
        if isinstance(question, MetricQuery | EncodedQuestion):
            query = question.query if isinstance(question, EncodedQuestion) else question
            return self._measurements.make_preparation(query, scope)
        if isinstance(question, SamplesQuestion):
            if not (question.ends and question.brief_samples):
                return None
            about = self._registry, question.series, series.find_keys(question.series, self.cache), self._clock.now_ms()
            return partial(read_job_ends, *about) if get_cached_job_ends(*about) is None else None
        is_list = isinstance(question, SeriesQuestion) and question.brief and bool(question.jobs)
        is_cached = (is_list and scope.grant is None) or isinstance(question, HeadQuestion | JobQuestion)
        return partial(self.run, question, scope) if is_cached else None

    def _read_reported(self, question: ReportedQuestion, scope: Scope) -> Reported:
        return read_reported(self._store, self._subjects.find_head(question.ref, scope), question, self._meter())

    def _readings(self, question: ReadingsQuestion, scope: Scope) -> Readings:
        series_filter = selection.SeriesFilter(question.replicas, question.devices)
        view = self._subjects.find_view(question.ref, scope)
        resolved = self._measurements.resolve_job(view, question.names, question.range, By.DEVICE, series_filter)
        return read_samples(self._store, question, resolved.layout.shape, self._meter())

    def _quality(self, question: QualityQuestion, scope: Scope) -> JobQuality:
        return measure_quality(self._source, self._subjects.find_view(question.ref, scope), scope, self._meter())

    def _measure_idle(self, question: IdleQuestion, scope: Scope) -> IdleTime:
        view = self._subjects.find_view(question.ref, scope)
        return next(measure_idle_times([view], self._clock.now_ms(), self._measure_devices(), self._inventory))

    def _device_hours(self, question: DeviceHoursQuestion, scope: Scope) -> DeviceHours:
        now_ms = self._clock.now_ms()
        types = lru_cache(None)(lambda project: Inventory(self._registry.list_nodes(frozenset({project}))))

        def idle_times_of(views: Iterable[JobView]) -> Iterator[IdleTime]:
            return measure_idle_times(views, now_ms, self._measure_devices(), lambda view: types(view.job.project))

        return compute_device_hours(self._registry, question, scope, now_ms, self._meter(), idle_times_of)

    def _measure_devices(self) -> Measure:
        return partial(measure_devices, self._registry, self._source, self._meter())

    def _phases(self, question: PhasesQuestion, scope: Scope) -> JobPhases:
        return self._measure_run(RunQuestion(question.ref, (*WORK, *WRITES)), scope).phases

    def _measure_run(self, question: RunQuestion, scope: Scope) -> MeasuredRun:
        def answer(other: Question[R], /) -> R:
            return self.run(other, scope)

        view, meter = self._subjects.find_view(question.ref, scope), self._meter()
        facts = read_facts(self._source, view, answer, meter, question.metrics)
        types = self._inventory(view)
        found = {types.find_type(one.node, one.device) for one in view.allocations} - {UNKNOWN}
        phases = compute_phases(view, facts, meter.clock.now_ms())
        return MeasuredRun(job=view.job, phases=phases, courses=facts.courses, types=frozenset(found))

    def _inventory(self, view: JobView) -> Inventory:
        names = frozenset(one.node for one in view.allocations if one.node)
        return Inventory(self._subjects.find_nodes_of_project(view.job.project, names) if names else ())

    def _get_cached_job(self, question: JobQuestion, scope: Scope) -> JobView | None:
        view = self._subjects.find_cached_view(question.ref, scope)
        return None if view is None else limit_view(view, scope)

    def _read_latest(self, question: LatestQuestion, scope: Scope) -> list[LatestValue]:
        ref, by = question.ref, question.by
        rows = find_metrics(question.metrics or CORE_METRICS)
        check_by(ref, by)
        meter = self._meter()
        names = list_sources(rows)
        if isinstance(ref, JobRef):
            view = self._subjects.find_view(ref, scope)
            span = self._find_newest_of_job(view.job)
            resolved = self._measurements.resolve_job(view, names, span, by)
            shape = resolved.layout.shape
            columns = drop_superseded(shape, view, by, read_newest(shape, self._source, span, meter))
        else:
            nodes = self._subjects.find_nodes(ref, scope)
            span = self._find_newest_of_nodes(nodes)
            resolved = self._measurements.resolve_nodes(nodes, ref, scope, names, span, by)
            columns = read_newest(resolved.layout.shape, self._source, span, meter)
        layout = resolved.layout
        found = compute_values(BucketedSeries(layout.shape, columns, resolved.limits), rows, question, layout)
        return sorted(
            found,
            key=lambda one: (
                one.metric,
                make_natural_key(one.replica),
                make_natural_key(one.node),
                make_natural_key(one.device),
            ),
        )

    def _list_measured_names(self, question: MeasuredNamesQuestion, scope: Scope) -> list[str]:
        view = self._subjects.find_view(question.ref, scope)
        own = SeriesSelector(jobs=(compute_job_key(view.job.project, view.job.id),), limit=MOST_NAMES)
        names = list_sources(METRICS).union(self._store.list_names(own, NamePart.METRIC))
        resolved = self._measurements.resolve_job(view, names, compute_life(view.job, self._clock.now_ms()), By.JOB)
        return sorted(add_derived(resolved.layout.shape.metrics))

    def _summary(self, question: SummaryQuestion, scope: Scope) -> JobSummary:
        meter = self._meter()
        view = self._subjects.find_view(question.ref, scope)
        now_ms = self._clock.now_ms()
        span = compute_life(view.job, now_ms)
        step_ms = choose_step(span, SUMMARY_BUCKETS)
        rows = find_metrics(SUMMARY_METRICS)
        resolved = self._measurements.resolve_job(view, list_sources(rows), span, By.JOB)
        shape = resolved.layout.shape
        frame = BucketedSeries(shape, read(shape, self._source, span, step_ms, meter), resolved.limits)
        return summarize(view, frame, rows, span, step_ms, now_ms)

    def _log_lines(self, question: LogLinesQuestion, scope: Scope) -> Iterator[list[LogLine]]:
        selector = self._selector(replace(question.question, limit=0), scope)
        meter = Meter(self._clock, replace(self._limits, query_rows=self._limits.export_rows))
        budget = ReadBudget(rows=self._limits.query_rows, seconds=self._limits.query_seconds)
        return iterate_pages(lambda page: self._page(page, budget, meter), selector, question.limit)

    def _lines(self, question: LogQuestion, scope: Scope) -> LogPage:
        selector = self._selector(question, scope)
        meter = self._meter()
        return self._page(selector, meter.make_budget(), meter)

    def _selector(self, question: LogQuestion, scope: Scope) -> LogSelector:
        if isinstance(question.ref, JobRef):
            return make_selector(question, self._subjects.find_head(question.ref, scope))
        nodes = self._subjects.find_nodes(question.ref, scope)
        about = hide_unpermitted_lines(self._registry, nodes, scope, self._clock.now_ms())
        if about is not None:
            question = replace(question, query=about if question.query is None else And((about, question.query)))
        return make_selector(question, nodes)

    def _page(self, selector: LogSelector, budget: ReadBudget, meter: Meter) -> LogPage:
        page = self._store.logs.read(selector, budget)
        meter.count(len(page.lines), None)
        return page

    def _meter(self) -> Meter:
        return Meter(self._clock, self._limits)

    def _series(self, question: Question[Any], scope: Scope) -> Any:  # noqa: ANN401 - each question has its own result
        meter = self._meter()
        match question:
            case SeriesQuestion():
                if scope.grant is not None and (question.jobs is None or NO_JOB in question.jobs):
                    raise ForbiddenError(PART_ALONE)
                found = series.find(self._store, question, scope, meter, self.cache)
                shown = filter_permitted_series(self._registry, found.series, scope, self._clock.now_ms())
                return found if shown is found.series else series.FoundSeries(shown, found.milliseconds)
            case NamesQuestion():
                return series.list_names(self._store, question, scope)
            case SamplesQuestion():
                return self._samples(question, scope, meter)
            case RollupsQuestion():
                return read_rollups(self._source, question, scope, meter, self._registry.get_retention, self.cache)
            case BucketsQuestion():
                return series.read_buckets(self._source, question, scope, meter, self.cache)
            case LastQuestion():
                return series.read_last(self._store, question, scope, meter)
            case _:
                raise TypeError(f"no question about series: {question!r}")

    def _samples(self, question: SamplesQuestion, scope: Scope, meter: Meter) -> series.Samples:
        found = series.read_samples(self._store, question, scope, meter, self.cache)
        if not (question.check or question.ends):
            return found
        keys = series.find_keys(question.series, self.cache)
        if question.check:
            checked_ms = find_expiry(question.series, meter, self._registry.get_retention)
            found = replace(found, expired=has_expired(self._source, keys, question.range, checked_ms, meter))
        if question.ends:
            ends = read_job_ends(self._registry, question.series, keys, self._clock.now_ms())
            found = replace(found, ends=ends)
        return found

    def _samples_in_memory(self, question: SamplesQuestion, scope: Scope) -> series.Samples | None:
        found = series.read_samples_in_memory(self._store, question, scope, self._meter(), self.cache)
        if found is None or not question.ends:
            return found
        keys = series.find_keys(question.series, self.cache)
        ends = get_cached_job_ends(self._registry, question.series, keys, self._clock.now_ms())
        return None if ends is None else replace(found, ends=ends)

    def _list(self, question: JobFilter, scope: Scope) -> JobPage:
        narrowed = _limit_to_scope(question, scope)
        if narrowed is None:
            return JobPage([], 0)
        return list_permitted_jobs(self._registry, narrowed, scope, self._clock.now_ms())

    def _state_counts(self, question: StateCountsQuestion, scope: Scope) -> dict[JobState, int]:
        narrowed = _limit_to_scope(question.jobs, scope)
        return {} if narrowed is None else count_permitted_states(self._registry, narrowed, scope, self._clock.now_ms())

    def _job_facts(self, question: JobFactsQuestion, scope: Scope) -> JobFacts:
        now_ms = self._clock.now_ms()
        visible = _intersect_scope(question.projects, question.ids, scope)
        if visible is None:
            return JobFacts(now_ms=now_ms)
        narrowed = replace(question, ids=visible[1])
        return get_job_facts(self._registry, narrowed, visible[0], scope, now_ms)

    def _node_facts(self, question: NodeFactsQuestion, scope: Scope) -> NodeFacts:
        now_ms = self._clock.now_ms()
        visible = _intersect_scope(question.projects, (), scope)
        if visible is None or scope.job is not None:
            return NodeFacts(now_ms=now_ms)
        return get_node_facts(self._registry, question, visible[0], scope, now_ms)

    def _sizes(self, question: SizesQuestion, scope: Scope) -> list[JobSize]:
        names = filter_permitted_names(self._registry, question.jobs, scope, self._clock.now_ms())
        found = self._registry.read_sizes(names, places=question.places)
        return [found.get(job, JobSize()) for job in question.jobs]

    def _views(self, question: JobViewsQuestion, scope: Scope) -> list[JobView]:
        now_ms = self._clock.now_ms()
        names = filter_permitted_names(self._registry, question.jobs, scope, now_ms)
        return [limit_view(view, scope) for view in self._registry.list_job_views(names, question.allocated, now_ms)]

    def _list_projects(self, question: ProjectsQuestion, scope: Scope) -> list[Project]:
        names = scope.intersect_projects(question.names)
        if scope.job is not None or (names is not None and not names):
            return []
        return list(list_permitted_projects(self._registry, names, scope, self._clock.now_ms()))

    def _events(self, question: EventFilter, scope: Scope) -> EventPage:
        visible = _intersect_scope(question.projects, question.jobs, scope)
        if visible is None:
            return EventPage([], 0)
        projects, jobs = visible
        if scope.grant is not None:
            projects = find_job_projects(self._registry, projects, jobs, scope, self._clock.now_ms())
        # Holders of a link may see the job, but no alerts.
        without = question.without if scope.job is None else question.without | {EventType.ALERT}
        visible_part = msgspec.structs.replace(question, projects=projects, jobs=jobs, without=without)
        return self._registry.list_events(visible_part)

    def _find_newest_of_job(self, job: Job) -> TimeRange:
        """Return a range around a job's newest sample; without samples of its own, around its end or now."""
        ahead = self._clock.now_ms() + self._limits.future_seconds * SECOND
        until = find_end(job)
        until = self._clock.now_ms() if until is None else until
        key = compute_job_key(job.project, job.id)
        own = self._store.read_last_times([key]).get(key)
        last = until if own is None else own[1]
        return TimeRange(max(min(last, ahead) - WINDOW_MS, 0), min(max(last, until) + 1, MAX_TIME_MS))

    def _find_newest_of_nodes(self, nodes: Sequence[Node]) -> TimeRange:
        now_ms = self._clock.now_ms()
        visible = [node.last_seen for node in nodes if node.last_seen is not None]
        last = min(max(visible, default=now_ms), now_ms)
        return TimeRange(max(last - WINDOW_MS, 0), min(now_ms + self._limits.future_seconds * SECOND, MAX_TIME_MS))


def _limit_to_scope(question: JobFilter, scope: Scope) -> JobFilter | None:
    """Narrow a filter to the scope. None if nothing is left."""
    if scope.job is not None:  # a filter could reveal the record of the shared job
        return None
    visible = _intersect_scope(question.projects, question.ids, scope)
    return None if visible is None else msgspec.structs.replace(question, projects=visible[0], ids=visible[1])


def _intersect_scope(
    projects: frozenset[str] | None, jobs: tuple[str, ...], scope: Scope
) -> tuple[frozenset[str] | None, tuple[str, ...]] | None:
    """Intersect projects and jobs (empty: all) with the scope. None if nothing is left."""
    projects = scope.intersect_projects(projects)
    if projects is not None and not projects:
        return None
    if scope.job is None:
        return projects, jobs
    return (projects, (scope.job,)) if not jobs or scope.job in jobs else None
