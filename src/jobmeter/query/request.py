"""The query for measurements and its result, the same for every dialect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, overload

import msgspec

from jobmeter.kernel.window import LineColumns
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.catalog import Aggregate
from jobmeter.model.job import Job, JobView
from jobmeter.model.log import LogPage
from jobmeter.model.log_filter import LogFilter
from jobmeter.model.question import Question
from jobmeter.model.time import TimeRange


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job by its id. ``project`` None: whichever project that the caller may read has it."""

    id: str
    project: str | None = None


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node by its name, or every node of a cluster by an empty one.

    ``project`` None: every project that the caller may read.
    """

    name: str
    cluster: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class GroupRef:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricQuery(Question["MetricResult"]):
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


@dataclass(frozen=True, slots=True, eq=False)
class MetricResult:
    """Lines sorted by (metric, replica in natural order, node, device in natural order). No line is empty.

    ``samples`` is how many stored rows were read for it, or values that an earlier question left; ``tiers`` tells which
    sources they came from (``raw``, ``minute``, ``hour``).
    """

    query: MetricQuery
    lines: Sequence[Line]
    samples: int = 0
    tiers: tuple[str, ...] = ()
    project: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuestion(Question[bytes]):
    """The answer to a question as ``encode``, which always does it in the same way, writes it."""

    query: MetricQuery
    encode: Callable[[MetricResult], bytes]


@dataclass(frozen=True, slots=True)
class HeadQuestion(Question[Job]):
    """One job without its replicas and allocations."""

    ref: JobRef


@dataclass(frozen=True, slots=True)
class JobQuestion(Question[JobView]):
    """One job with its replicas and allocations."""

    ref: JobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuestion(LogFilter, Question[LogPage]):
    """Log lines of one job, or of the system log of one node. ``node`` leaves out a job's lines of other nodes."""

    ref: JobRef | NodeRef
    node: str = ""
