"""Query for measurements, its validation, and its result: common to all dialects."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, overload

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.kernel.window import LineColumns
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.catalog import CATALOG, METRICS, Aggregate, Kind, Metric, find
from jobmeter.model.job import Job, JobView, Node
from jobmeter.model.log import LogPage
from jobmeter.model.log_filter import LogFilter
from jobmeter.model.question import Question
from jobmeter.model.series import MAX_NAME
from jobmeter.model.time import DAY, SECOND, TimeRange, floor_to
from jobmeter.settings import Limits

MAX_METRICS = 100


class JobRef(msgspec.Struct, frozen=True, tag="job"):
    """Reference to a job by id. ``project`` None: any visible project."""

    id: str
    project: str | None = None


class NodeRef(msgspec.Struct, frozen=True, tag="node"):
    """Reference to a node by name; an empty name stands for every node of a cluster.

    ``project`` None: every visible project.
    """

    name: str
    cluster: str | None = None
    project: str | None = None


class GroupRef(msgspec.Struct, frozen=True, tag="group"):
    """Reference to the nodes of a resource group. ``project`` None: every visible project."""

    id: str
    project: str | None = None


class By(StrEnum):
    """Kind of line in an answer."""

    JOB = "job"
    REPLICA = "replica"
    DEVICE = "device"
    """A line per device of each replica; a metric without devices gives a line per replica."""
    NODE = "node"


class Statistic(StrEnum):
    """Statistic over the samples in one bucket of one series.

    ``mean`` of a counter is its rate per second; ``increase`` needs a counter; ``min max first last sum count`` of a
    counter apply to its raw readings.
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
    """Query for metrics of a job, node or resource group over a range, in steps of ``step_ms``.

    For a resource group the result covers its nodes (see ``jobmeter.query.group``).

    ``aggregate`` None combines members as in the catalogue (``Metric.over``, for a node ``Metric.on_node``).
    ``replicas``, ``devices`` and ``labels`` (name, value) filter the members; empty means all. Buckets are
    epoch-aligned, half open, named by their start, and contain only samples inside ``[start, end)``.
    """

    by_resource = of_job = True

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
    """Line of an answer: ``time`` int64[k] bucket starts in ms, ascending; ``value`` float64[k], finite.

    Buckets without samples are absent.
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
    """Name of a line; see ``Line``."""

    metric: str
    unit: str
    replica: str
    node: str
    device: str
    rank: int | None


class LinesInColumns(Sequence[Line]):
    """Lines whose points share arrays: ``time`` and ``value`` as in ``Line``, one line after the other.

    ``names`` are the lines' names, ``ends`` the end index of each. Empty lines are left out.
    """

    __slots__ = ("ends", "names", "time", "value")

    def __init__(self, names: Sequence[LineName], columns: LineColumns) -> None:
        """``names`` are the names of all lines of the columns, including empty ones."""
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
        """Return a line, or a list of lines for a slice."""
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        name, end = self.names[at], self.ends[at]
        first = self.ends[at - 1] if at % len(self) else 0
        metric, unit, replica, node, device, rank = name
        return Line(metric, unit, replica, node, device, self.time[first:end], self.value[first:end], rank)


class MetricResult(msgspec.Struct, frozen=True, eq=False):
    """Lines sorted by (metric, replica in natural order, node, device in natural order). No line is empty.

    ``samples`` is the number of stored rows read, or of cached values. ``tiers`` lists their sources (``raw``,
    ``minute``, ``hour``).
    """

    query: MetricQuery
    lines: Sequence[Line]
    samples: int = 0
    tiers: tuple[str, ...] = ()
    project: str = ""


Encoder = Callable[[MetricResult], bytes]
"""Function that writes a result in one form."""


class EncodedQuestion(msgspec.Struct, Question[bytes], frozen=True):
    """Question for an answer in the form of that name, one of the executor's encoders."""

    by_resource = of_job = True

    query: MetricQuery
    form: str


class HeadQuestion(msgspec.Struct, Question[Job], frozen=True):
    """Question for a job without its replicas and allocations."""

    by_resource = of_job = True

    ref: JobRef


class JobQuestion(msgspec.Struct, Question[JobView], frozen=True):
    """Question for a job with its replicas and allocations."""

    by_resource = of_job = True

    ref: JobRef


class NodeRecordsQuestion(msgspec.Struct, Question[list[Node]], frozen=True):
    """Question for every record of a node of that name that the caller may see. Raises NotFoundError without any."""

    by_resource = of_job = True

    ref: NodeRef


class MeasuredNamesQuestion(msgspec.Struct, Question[list[str]], frozen=True):
    """Question for the metrics of a job, including derived ones, sorted."""

    by_resource = of_job = True

    ref: JobRef


class JobViewsQuestion(msgspec.Struct, Question[list[JobView]], frozen=True):
    """Question for several jobs, as (project, id), with replicas; invisible jobs are left out.

    Their allocations are those that overlap the span ``allocated``: by default none.
    """

    by_resource = of_job = True

    jobs: tuple[tuple[str, str], ...]
    allocated: TimeRange = TimeRange(0, 0)


class LogQuestion(LogFilter, Question[LogPage], frozen=True, kw_only=True):
    """Question for log lines of one job, or of the system log of one node. ``node`` filters a job's lines by node."""

    by_resource = of_job = True

    ref: JobRef | NodeRef
    node: str = ""


class MetricSelection(NamedTuple):
    """Catalogue entries of the distinct requested metrics, and the names of their ``list_sources``.

    ``own``: each is computed only from its own samples.
    """

    metrics: tuple[Metric, ...]
    sources: frozenset[str]
    own: bool


def check(query: MetricQuery, limits: Limits) -> MetricSelection:
    """Validate a query and return its metrics.

    Raises InvalidRequestError naming the field that is wrong, LimitExceededError for too many buckets.
    """
    selection = _SINGLE.get(query.metrics) or _selection(find_metrics(query.metrics))
    check_by(query.subject, query.by)
    if query.step_ms < 1:
        raise InvalidRequestError(f"step {query.step_ms} ms must be at least 1 ms", "step")
    if query.aggregate is Aggregate.RATIO:
        raise InvalidRequestError(
            "aggregate must be mean, sum, min or max: ratio is reserved for the catalogue", "aggregate"
        )
    if query.statistic is Statistic.INCREASE:
        _check_counters(selection.metrics)
    buckets = count_buckets(query.range, query.step_ms)
    if buckets > limits.query_buckets:
        raise LimitExceededError(
            f"a line may have {limits.query_buckets} buckets, this range has {buckets}: take a longer step", "step"
        )
    return selection


def _selection(metrics: tuple[Metric, ...]) -> MetricSelection:
    return MetricSelection(metrics, list_sources(metrics), all(map(is_own, metrics)))


def is_own(metric: Metric) -> bool:
    """Return True for a metric that is computed only from its own samples."""
    return not (metric.ratio or metric.rate_of or metric.difference)


def _check_counters(metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        if metric.kind is not Kind.COUNTER:
            raise InvalidRequestError(f"statistic increase needs a counter, {metric.name} is a gauge", "statistic")


def check_by(subject: JobRef | NodeRef | GroupRef, by: By) -> None:
    """Refuse kinds of lines that samples of nodes cannot give (field ``by``)."""
    if not isinstance(subject, JobRef) and by not in {By.NODE, By.DEVICE}:
        raise InvalidRequestError(f"by {by} does not apply to a node: use node or device", "by")


def find_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """Look up distinct names in the catalogue. Raises InvalidRequestError (field ``metric``) for an unknown one."""
    unique = tuple(dict.fromkeys(names))
    if not 1 <= len(unique) <= MAX_METRICS:
        raise InvalidRequestError(
            f"a question must name 1 to {MAX_METRICS} metrics, this one names {len(unique)}", "metric"
        )
    return tuple(_metric(name) for name in unique)


def count_buckets(span: TimeRange, step_ms: int) -> int:
    """Return the number of buckets that overlap the range."""
    if span.start_ms == span.end_ms:
        return 0
    return -(-span.end_ms // step_ms) - span.start_ms // step_ms


def list_sources(metrics: Iterable[Metric]) -> frozenset[str]:
    """Return the names of all metrics from which some may be derived, including themselves."""
    return frozenset().union(*map(find_sources, metrics))


def find_sources(metric: Metric) -> frozenset[str]:
    """Return the names of all metrics from which one may be derived, including itself."""
    return _SOURCES.get(metric.name) or frozenset({metric.name})


def _sources(metric: Metric) -> frozenset[str]:
    direct = (*(metric.ratio or ()), *(metric.difference or ()))
    own = (metric.name, metric.rate_of) if metric.rate_of else (metric.name,)
    return frozenset(own).union(*(_sources(CATALOG[name]) for name in direct))


_SOURCES = {metric.name: _sources(metric) for metric in METRICS}
_SINGLE: dict[tuple[str, ...], MetricSelection] = {(metric.name,): _selection((metric,)) for metric in METRICS}
"""Selections of single metrics, which most queries use."""


def _metric(name: str) -> Metric:
    metric = find(name)
    if metric is None:
        raise InvalidRequestError(f"metric {name[:MAX_NAME]!r} is unknown (`jobmeter catalog` lists all)", "metric")
    return metric


def compute_series_start(span: TimeRange, limits: Limits) -> int:
    """Return the earliest last sample, in epoch ms, of series that can answer a range: one for each day.

    A sample's time may be ahead of its arrival by as much as the pipeline permits.
    """
    return max(floor_to(span.start_ms - limits.future_seconds * SECOND, DAY), 0)
