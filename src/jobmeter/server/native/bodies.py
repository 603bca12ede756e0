"""Bodies of our own API's answers. Times are milliseconds since the epoch; null means unknown."""

from typing import TypeVar

import msgspec

from jobmeter.model.answers import DeviceBody, FaultBody, FaultJob, LatestValue, NodeFaults
from jobmeter.model.event import EventSource, EventType, Level
from jobmeter.model.finding import Subject
from jobmeter.model.job import JobView, Node
from jobmeter.model.job_answers import AllocationBody, JobBody, JobDetail, JobSummary, ReplicaBody
from jobmeter.query.faults import NodeFault

S = TypeVar("S", bound=msgspec.Struct)

Points = list[tuple[int, float]] | msgspec.Raw
"""Pairs of a time in milliseconds and a value; or the JSON text of them."""

Column = list[float] | msgspec.Raw
"""Numbers; or the JSON text of them."""

Timelines = list[list[int]] | msgspec.UnsetType
"""With ``format=columns``: the time lists that lines share, in milliseconds."""


class NodeBody(Node, frozen=True, kw_only=True, omit_defaults=False):
    """A node and the report of its agent, with every field."""


class EventBody(msgspec.Struct, frozen=True):
    """Something that happened. Names that do not apply are empty.

    ``id`` never changes. ``type`` follows from source and reason. ``object`` is the affected object. ``subject`` gives
    its kind and name if it is neither a job, a replica nor a node. ``actor`` is the id of the key whose call caused the
    event, if any.
    """

    id: str
    type: EventType
    object: Subject
    time: int
    project: str
    job: str
    replica: str
    attempt: int
    cluster: str
    node: str
    source: EventSource
    level: Level
    reason: str
    message: str
    subject: str
    actor: str


class NodeList(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes, ordered by cluster and name; ``faults`` of the faulty ones on request."""

    nodes: list[NodeBody]
    faults: list[NodeFaults] | None = None


class Recorded(msgspec.Struct, frozen=True):
    """Number of stored records."""

    records: int


class Deleted(msgspec.Struct, frozen=True):
    """Confirms a deletion."""

    deleted: bool


class NextAttempt(msgspec.Struct, frozen=True):
    """Number that the next attempt of a job must have."""

    attempt: int


class LineBody(msgspec.Struct, frozen=True):
    """A line.

    ``points`` are pairs of a step's start in milliseconds and a value, ascending; steps without samples are absent.

    With ``format=columns`` there are only values: ``timeline`` is the index of their times in ``timelines``.
    """

    metric: str
    unit: str
    replica: str
    node: str
    device: str
    rank: int | None
    points: Points | msgspec.UnsetType = msgspec.UNSET
    timeline: int | msgspec.UnsetType = msgspec.UNSET
    values: Column | msgspec.UnsetType = msgspec.UNSET


class MetricsBody(msgspec.Struct, frozen=True):
    """Metrics of a job. ``samples`` were read, from ``tiers`` (raw, minute, hour)."""

    job: str
    project: str
    start: int
    end: int
    step: int
    by: str
    statistic: str
    lines: list[LineBody]
    samples: int
    tiers: list[str]
    timelines: Timelines = msgspec.UNSET


class NodeMetricsBody(msgspec.Struct, frozen=True):
    """Metrics of a node, in the format of a job's metrics."""

    node: str
    start: int
    end: int
    step: int
    by: str
    statistic: str
    lines: list[LineBody]
    samples: int
    tiers: list[str]
    timelines: Timelines = msgspec.UNSET


class MetricNames(msgspec.Struct, frozen=True):
    """Names of the metrics that a job has."""

    job: str
    project: str
    metrics: list[str]


class LatestList(msgspec.Struct, frozen=True):
    """The newest values."""

    values: list[LatestValue]


def copy_fields(kind: type[S], source: object, **others: object) -> S:
    """Copy the fields that ``source`` shares with a structure, and set others."""
    names = [name for name in kind.__struct_fields__ if name not in others] if others else kind.__struct_fields__
    return kind(**{name: getattr(source, name) for name in names}, **others)


def make_job_detail(view: JobView, summary: JobSummary | None) -> JobDetail:
    """Build the whole job; its devices are ordered by replica, rank and name."""
    ranks: dict[tuple[str, str, str], int | None] = {}
    for one in view.allocations:
        # Several sources may report one device, and not all know the rank.
        key = (one.replica, one.node, one.device)
        ranks[key] = one.rank if one.rank is not None else ranks.get(key)
    ordered = sorted(ranks, key=lambda key: (key[0], ranks[key] is None, ranks[key] or 0, key[1], key[2]))
    nodes = {replica.node for replica in view.replicas} | {allocation.node for allocation in view.allocations}
    return JobDetail(
        job=copy_fields(JobBody, view.job),
        replicas=[copy_fields(ReplicaBody, replica) for replica in view.replicas],
        allocations=[copy_fields(AllocationBody, allocation) for allocation in view.allocations],
        devices=[
            DeviceBody(node=node, device=device, replica=replica, rank=ranks[replica, node, device])
            for replica, node, device in ordered
        ],
        nodes=sorted(nodes - {""}),
        summary=summary,
    )


def make_fault_body(one: NodeFault) -> FaultBody:
    """The body of a fault of a node."""
    return copy_fields(FaultBody, one, jobs=[copy_fields(FaultJob, job) for job in one.jobs])
