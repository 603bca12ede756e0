"""The bodies of our own API's answers. Times are milliseconds since the epoch; null is what is unknown."""

from typing import TypeVar

import msgspec

from jobmeter.model.answers import DeviceBody, FaultBody, FaultJob, LatestValue, NodeFaults
from jobmeter.model.event import EventSource, EventType, Level
from jobmeter.model.finding import FindingSummary, Subject
from jobmeter.model.job import (
    Allocation,
    Job,
    JobView,
    Node,
    Replica,
)
from jobmeter.query.faults import NodeFault
from jobmeter.query.summary import JobSummary

S = TypeVar("S", bound=msgspec.Struct)

Points = list[tuple[int, float]] | msgspec.Raw
"""Pairs of a time in milliseconds and a value; or the same as JSON text."""

Column = list[float] | msgspec.Raw
"""Numbers; or the same as JSON text."""

Timelines = list[list[int]] | msgspec.UnsetType
"""With ``format=columns``: times that lines have in common, in milliseconds."""


class JobBody(Job, frozen=True, kw_only=True, omit_defaults=False):
    """A job with every field, those unknown included."""


class ReplicaBody(Replica, frozen=True, kw_only=True, omit_defaults=False):
    """One attempt of one replica, with every field."""


class AllocationBody(Allocation, frozen=True, kw_only=True, omit_defaults=False):
    """A replica had a device from ``start`` until ``end`` (null: still); with every field."""


class NodeBody(Node, frozen=True, kw_only=True, omit_defaults=False):
    """A node and what its agent said of it, with every field."""


class EventBody(msgspec.Struct, frozen=True):
    """Something that happened. Names that do not apply are empty.

    ``id`` stays the same for ever. ``type`` follows from source and reason; ``object`` is what it happened to,
    ``subject`` its kind and name where that is neither a job, a replica nor a node. ``actor`` is the id of the key
    whose call made it happen, where one did.
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


class JobList(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page of jobs, and how many there are in all; ``findings`` of those that have any, where they were wanted."""

    jobs: list[JobBody]
    total: int
    findings: list[FindingSummary] | None = None


class JobDetail(msgspec.Struct, frozen=True):
    """One job with everything that belongs to it."""

    job: JobBody
    replicas: list[ReplicaBody]
    allocations: list[AllocationBody]
    devices: list[DeviceBody]
    nodes: list[str]
    summary: JobSummary | None


class NodeList(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes, by cluster and name; ``faults`` of those that have any, where they were wanted."""

    nodes: list[NodeBody]
    faults: list[NodeFaults] | None = None


class Recorded(msgspec.Struct, frozen=True):
    """How many records were stored."""

    records: int


class Deleted(msgspec.Struct, frozen=True):
    """Done."""

    deleted: bool


class NextAttempt(msgspec.Struct, frozen=True):
    """The number that the next attempt of a job has to have."""

    attempt: int


class LineBody(msgspec.Struct, frozen=True):
    """One line: ``points`` are pairs of a step's start in milliseconds and a value; ascending, none where no sample.

    With ``format=columns`` there are values alone: ``timeline`` is the place of their times in ``timelines``.
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
    """Metrics of a node; as those of a job."""

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
    """Which metrics a job has, by name."""

    job: str
    project: str
    metrics: list[str]


class LatestList(msgspec.Struct, frozen=True):
    """The newest values."""

    values: list[LatestValue]


def copied(kind: type[S], source: object, **others: object) -> S:
    """A structure with the fields that ``source`` has under the same names, and others."""
    names = [name for name in kind.__struct_fields__ if name not in others] if others else kind.__struct_fields__
    return kind(**{name: getattr(source, name) for name in names}, **others)


def job_detail(view: JobView, summary: JobSummary | None) -> JobDetail:
    """The whole job; its devices in the order of replica, rank and name."""
    ranks: dict[tuple[str, str, str], int | None] = {}
    for one in view.allocations:
        # Several sources may report the same device, and not each has the rank.
        key = (one.replica, one.node, one.device)
        ranks[key] = one.rank if one.rank is not None else ranks.get(key)
    ordered = sorted(ranks, key=lambda key: (key[0], ranks[key] is None, ranks[key] or 0, key[1], key[2]))
    nodes = {replica.node for replica in view.replicas} | {allocation.node for allocation in view.allocations}
    return JobDetail(
        job=copied(JobBody, view.job),
        replicas=[copied(ReplicaBody, replica) for replica in view.replicas],
        allocations=[copied(AllocationBody, allocation) for allocation in view.allocations],
        devices=[
            DeviceBody(node=node, device=device, replica=replica, rank=ranks[replica, node, device])
            for replica, node, device in ordered
        ],
        nodes=sorted(nodes - {""}),
        summary=summary,
    )


def fault_body(one: NodeFault) -> FaultBody:
    """The body of a fault of a node."""
    return copied(FaultBody, one, jobs=[copied(FaultJob, job) for job in one.jobs])
