"""The bodies of our own API's answers. Times are milliseconds since the epoch; null is what is unknown."""

from typing import Any

import msgspec

from jobmeter.model.event import Event, EventSource, EventType, Level
from jobmeter.model.finding import FindingSummary, Subject
from jobmeter.model.job import (
    Allocation,
    AllocationSource,
    Checkpoint,
    InstanceType,
    Job,
    JobState,
    JobView,
    Node,
    Replica,
)
from jobmeter.query.summary import JobSummary

Points = list[tuple[int, float]] | msgspec.Raw
"""Pairs of a time in milliseconds and a value; or the same as JSON text."""

Column = list[float] | msgspec.Raw
"""Numbers; or the same as JSON text."""

Timelines = list[list[int]] | msgspec.UnsetType
"""With ``format=columns``: times that lines have in common, in milliseconds."""


class JobBody(msgspec.Struct, frozen=True):
    """A job with every field of ``jobmeter.model.job.Job``, those unknown included."""

    id: str
    project: str
    name: str
    type: str
    state: JobState
    user: str
    resource_group: str
    workspace: str
    created: int | None
    start: int | None
    end: int | None
    error: str
    exit_code: int | None
    command: str
    instance_type: InstanceType | None
    limits: dict[str, float]
    labels: dict[str, str]
    checkpoints: list[Checkpoint]
    extra: dict[str, dict[str, Any]]
    updated: int | None
    recorded: bool
    first_sample: int | None
    last_sample: int | None


class ReplicaBody(msgspec.Struct, frozen=True):
    """One attempt of one replica."""

    name: str
    attempt: int
    rank: int | None
    cluster: str
    node: str
    pod_id: str
    state: JobState | None
    start: int | None
    end: int | None
    exit_code: int | None
    reason: str


class AllocationBody(msgspec.Struct, frozen=True):
    """A replica had a device from ``start`` until ``end`` (null: still)."""

    replica: str
    node: str
    device: str
    start: int
    end: int | None
    cluster: str
    rank: int | None
    source: AllocationSource


class DeviceBody(msgspec.Struct, frozen=True):
    """A device that the job had at some time."""

    node: str
    device: str
    replica: str
    rank: int | None


class NodeBody(msgspec.Struct, frozen=True):
    """A node and what its agent said of it."""

    name: str
    project: str
    cluster: str
    resource_group: str
    first_seen: int | None
    last_seen: int | None
    info: dict[str, Any]


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


class NodeList(msgspec.Struct, frozen=True):
    """The nodes, by cluster and name."""

    nodes: list[NodeBody]


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


class LatestBody(msgspec.Struct, frozen=True):
    """The newest value of one line, and when it was."""

    metric: str
    unit: str
    replica: str
    node: str
    device: str
    rank: int | None
    time: int
    value: float


class LatestList(msgspec.Struct, frozen=True):
    """The newest values."""

    values: list[LatestBody]


def job_body(job: Job) -> JobBody:
    """The job with every field."""
    return JobBody(**{name: getattr(job, name) for name in Job.__struct_fields__})


def replica_body(replica: Replica) -> ReplicaBody:
    """The replica with every field."""
    return ReplicaBody(**{name: getattr(replica, name) for name in Replica.__struct_fields__})


def allocation_body(allocation: Allocation) -> AllocationBody:
    """The allocation with every field."""
    return AllocationBody(**{name: getattr(allocation, name) for name in Allocation.__struct_fields__})


def event_body(event: Event) -> EventBody:
    """The event with every field."""
    return EventBody(**{name: getattr(event, name) for name in EventBody.__struct_fields__})


def node_body(node: Node) -> NodeBody:
    """The node with every field."""
    return NodeBody(**{name: getattr(node, name) for name in Node.__struct_fields__})


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
        job=job_body(view.job),
        replicas=[replica_body(replica) for replica in view.replicas],
        allocations=[allocation_body(allocation) for allocation in view.allocations],
        devices=[DeviceBody(node, device, replica, ranks[replica, node, device]) for replica, node, device in ordered],
        nodes=sorted(nodes - {""}),
        summary=summary,
    )
