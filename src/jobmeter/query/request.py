"""The query for measurements, what makes it a valid one, and its result: the same for every dialect."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, overload

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.kernel.window import LineColumns
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.catalog import CATALOG, METRICS, Aggregate, Kind, Metric, find
from jobmeter.model.job import Job, JobView
from jobmeter.model.log import LogPage
from jobmeter.model.log_filter import LogFilter
from jobmeter.model.question import Question
from jobmeter.model.series import MAX_NAME
from jobmeter.model.time import DAY, SECOND, TimeRange, floor_to
from jobmeter.settings import Limits

MAX_METRICS = 100


class JobRef(msgspec.Struct, frozen=True):
    """A job by its id. ``project`` None: whichever project that the caller may read has it."""

    id: str
    project: str | None = None


class NodeRef(msgspec.Struct, frozen=True):
    """A node by its name, or every node of a cluster by an empty one.

    ``project`` None: every project that the caller may read.
    """

    name: str
    cluster: str | None = None
    project: str | None = None


class GroupRef(msgspec.Struct, frozen=True):
    """The nodes of a resource group. ``project`` None: every project that the caller may read."""

    id: str
    project: str | None = None


class By(StrEnum):
    """What one line of the answer stands for."""

    JOB = "job"
    REPLICA = "replica"
    DEVICE = "device"
    """A line for each device of each replica; a metric without devices gives a line for each replica."""
    NODE = "node"


class Statistic(StrEnum):
    """What is reported for the samples in one bucket of one series.

    ``mean`` of a counter is its rate per second, ``increase`` demands a counter; ``min max first last sum count`` of a
    counter speak of the raw readings.
    """

    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    COUNT = "count"
    FIRST = "first"
    LAST = "last"
    INCREASE = "increase"


class MetricQuery(msgspec.Struct, Question["MetricResult"], frozen=True, kw_only=True):
    """Which metrics of which job, node or resource group, over which range, in steps of ``step_ms``, joined how.

    Of a resource group the result has its nodes (see ``jobmeter.query.group``).

    ``aggregate`` None takes the catalogue's way of joining members (``Metric.over``, of a node ``Metric.on_node``).
    ``replicas``, ``devices`` and ``labels`` (name, value) narrow the members down; empty means all. Buckets are
    epoch-aligned, half open, named by their start, and have only samples inside ``[start, end)``.
    """

    subject: JobRef | NodeRef | GroupRef
    metrics: tuple[str, ...]
    range: TimeRange
    step_ms: int
    by: By = By.REPLICA
    statistic: Statistic = Statistic.MEAN
    aggregate: Aggregate | None = None
    replicas: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()


class Line(msgspec.Struct, frozen=True, eq=False):
    """One line of an answer: ``time`` int64[k] bucket starts in ms, ascending; ``value`` float64[k], finite.

    Absent is absent.
    """

    metric: str
    unit: str
    replica: str
    node: str
    device: str
    time: Int64s
    value: Float64s
    rank: int | None = None


class LineName(NamedTuple):
    """What a line is called; see ``Line``."""

    metric: str
    unit: str
    replica: str
    node: str
    device: str
    rank: int | None


class LinesInColumns(Sequence[Line]):
    """Lines whose points lie together: ``time`` and ``value`` as ``Line`` has them, one line after the other.

    ``names`` are those of the lines, ``ends`` where each ends. Empty lines are left out.
    """

    __slots__ = ("ends", "names", "time", "value")

    def __init__(self, names: Sequence[LineName], columns: LineColumns) -> None:
        """``names`` are those of all the lines of the columns."""
        self.time, self.value = columns.time, columns.value
        ends: list[int] = columns.ends.tolist()
        if len(set(ends)) < len(ends) or not all(ends[:1]):
            filled = [at for at, end in enumerate(ends) if end > (ends[at - 1] if at else 0)]
            names, ends = [names[at] for at in filled], [ends[at] for at in filled]
        self.names, self.ends = names, ends

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Line: ...
    @overload
    def __getitem__(self, at: slice) -> list[Line]: ...
    def __getitem__(self, at: int | slice) -> Line | list[Line]:
        """One line, or a list of some."""
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        name, end = self.names[at], self.ends[at]
        first = self.ends[at - 1] if at % len(self) else 0
        metric, unit, replica, node, device, rank = name
        return Line(metric, unit, replica, node, device, self.time[first:end], self.value[first:end], rank)


class MetricResult(msgspec.Struct, frozen=True, eq=False):
    """Lines sorted by (metric, replica in natural order, node, device in natural order). No line is empty.

    ``samples`` is how many stored rows were read for it, or values that an earlier question left; ``tiers`` tells which
    sources they came from (``raw``, ``minute``, ``hour``).
    """

    query: MetricQuery
    lines: Sequence[Line]
    samples: int = 0
    tiers: tuple[str, ...] = ()
    project: str = ""


class EncodedQuestion(msgspec.Struct, Question[bytes], frozen=True, eq=False):
    """The answer to a question as ``encode`` writes it, in one way for all questions of that ``form``."""

    query: MetricQuery
    form: str
    encode: Callable[[MetricResult], bytes]


class HeadQuestion(msgspec.Struct, Question[Job], frozen=True):
    """One job without its replicas and allocations."""

    ref: JobRef


class JobQuestion(msgspec.Struct, Question[JobView], frozen=True):
    """One job with its replicas and allocations."""

    ref: JobRef


class JobViewsQuestion(msgspec.Struct, Question[list[JobView]], frozen=True):
    """Several jobs, (project, id), with their replicas and without allocations; those that the caller may see."""

    jobs: tuple[tuple[str, str], ...]


class LogQuestion(LogFilter, Question[LogPage], frozen=True, kw_only=True):
    """Log lines of one job, or of the system log of one node. ``node`` leaves out a job's lines of other nodes."""

    ref: JobRef | NodeRef
    node: str = ""


class MetricSelection(NamedTuple):
    """The catalogue's rows of the requested metrics, each once, and the names of their ``sources``.

    ``own``: each is computed from its own samples alone.
    """

    metrics: tuple[Metric, ...]
    sources: frozenset[str]
    own: bool


def check(query: MetricQuery, limits: Limits) -> MetricSelection:
    """The metrics of a query, from the catalogue.

    Raises InvalidRequestError naming the field that is wrong, LimitExceededError for too many buckets.
    """
    selection = _SINGLE.get(query.metrics) or _selection(metrics_of(query.metrics))
    check_by(query.subject, query.by)
    if query.step_ms < 1:
        raise InvalidRequestError(f"step {query.step_ms} ms must be at least 1 ms", "step")
    if query.aggregate is Aggregate.RATIO:
        raise InvalidRequestError(
            "aggregate must be mean, sum, min or max: ratio is the catalogue's choice", "aggregate"
        )
    if query.statistic is Statistic.INCREASE:
        _check_counters(selection.metrics)
    buckets = bucket_count(query.range, query.step_ms)
    if buckets > limits.query_buckets:
        raise LimitExceededError(
            f"a line may have {limits.query_buckets} buckets, this range has {buckets}: take a longer step", "step"
        )
    return selection


def _selection(metrics: tuple[Metric, ...]) -> MetricSelection:
    return MetricSelection(metrics, sources(metrics), all(map(is_own, metrics)))


def is_own(metric: Metric) -> bool:
    """True for a metric that is computed from its own samples alone."""
    return not (metric.ratio or metric.rate_of or metric.difference)


def _check_counters(metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        if metric.kind is not Kind.COUNTER:
            raise InvalidRequestError(f"statistic increase needs a counter, {metric.name} is a gauge", "statistic")


def check_by(subject: JobRef | NodeRef | GroupRef, by: By) -> None:
    """Refuse lines that the samples of nodes cannot be determined in (field ``by``)."""
    if not isinstance(subject, JobRef) and by not in {By.NODE, By.DEVICE}:
        raise InvalidRequestError(f"by {by} does not apply to a node: use node or device", "by")


def metrics_of(names: Sequence[str]) -> tuple[Metric, ...]:
    """The catalogue's row of each name, each once. InvalidRequestError (field ``metric``) for an unknown one."""
    unique = tuple(dict.fromkeys(names))
    if not 1 <= len(unique) <= MAX_METRICS:
        raise InvalidRequestError(
            f"a question names 1 to {MAX_METRICS} metrics, this one names {len(unique)}", "metric"
        )
    return tuple(_metric(name) for name in unique)


def bucket_count(span: TimeRange, step_ms: int) -> int:
    """How many buckets meet the range."""
    if span.start_ms == span.end_ms:
        return 0
    return -(-span.end_ms // step_ms) - span.start_ms // step_ms


def sources(metrics: Iterable[Metric]) -> frozenset[str]:
    """The names of everything that those metrics are, or may be derived from."""
    return frozenset().union(*map(sources_of, metrics))


def sources_of(metric: Metric) -> frozenset[str]:
    """The names of everything that one metric is, or may be derived from."""
    return _SOURCES.get(metric.name) or frozenset({metric.name})


def _sources(metric: Metric) -> frozenset[str]:
    direct = (*(metric.ratio or ()), *(metric.difference or ()))
    own = (metric.name, metric.rate_of) if metric.rate_of else (metric.name,)
    return frozenset(own).union(*(_sources(CATALOG[name]) for name in direct))


_SOURCES = {metric.name: _sources(metric) for metric in METRICS}
_SINGLE: dict[tuple[str, ...], MetricSelection] = {(metric.name,): _selection((metric,)) for metric in METRICS}
"""Of one metric of the catalogue, as most queries are."""


def _metric(name: str) -> Metric:
    metric = find(name)
    if metric is None:
        raise InvalidRequestError(f"metric {name[:MAX_NAME]!r} is unknown (`jobmeter catalog` lists all)", "metric")
    return metric


def series_since(span: TimeRange, limits: Limits) -> int:
    """Since when a series must have samples to answer a range, in epoch milliseconds: the same for a day of ranges.

    A sample may be dated after it was written by as much as the pipeline lets through.
    """
    return max(floor_to(span.start_ms - limits.future_seconds * SECOND, DAY), 0)
