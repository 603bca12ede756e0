"""The one question about measurements, and the shape of its answer. Nothing behind it knows who asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.catalog import Aggregate
from jobmeter.model.event import Level
from jobmeter.model.job import Job, JobView
from jobmeter.model.log import LogPage
from jobmeter.model.question import Asks
from jobmeter.model.time import TimeRange


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job by its id. ``project`` None: whichever project that the asker may read has it."""

    id: str
    project: str | None = None


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node by its name, or every node of a cluster by an empty one.

    ``project`` None: every project that the asker may read.
    """

    name: str
    cluster: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The nodes of a resource group. ``project`` None: every project that the asker may read."""

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
    """What is told of the samples in one bucket of one series.

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
class MetricQuery(Asks["MetricResult"]):
    """Which metrics of which job, node or resource group, over which range, in steps of ``step_ms``, joined how.

    Of a resource group the nodes are told (``jobmeter.query.group`` says which they are).

    ``aggregate`` None takes the catalogue's way of joining members (``Metric.over``, of a node ``Metric.on_node``).
    ``replicas``, ``devices`` and ``labels`` (name, value) narrow the members down; empty means all. Buckets are
    epoch-aligned, half open, named by their start, and hold only samples inside ``[start, end)``.
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
class EncodedQuestion(Asks[bytes]):
    """The answer to a question as ``encode``, which always does it in the same way, writes it."""

    query: MetricQuery
    encode: Callable[[MetricResult], bytes]


@dataclass(frozen=True, slots=True)
class HeadQuestion(Asks[Job]):
    """One job without its replicas and allocations."""

    ref: JobRef


@dataclass(frozen=True, slots=True)
class JobQuestion(Asks[JobView]):
    """One job with its replicas and allocations."""

    ref: JobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuestion(Asks[LogPage]):
    """Log lines of one job with ``start_ns <= time < end_ns`` (epoch nanoseconds; None: no bound).

    Empty parts match everything. ``min_level`` leaves out lines below it and lines without a level. ``contains`` is
    looked for without regard to case. ``descending`` gives the newest first. ``offset`` skips lines. ``count`` asks for
    the totals too.
    """

    ref: JobRef
    replicas: frozenset[str] = frozenset()
    attempt: int | None = None
    stream: str = ""
    min_level: Level | None = None
    contains: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    descending: bool = False
    offset: int = 0
    limit: int = 100
    count: bool = False
