"""Jobs, their replicas, and who had which device when."""

from enum import StrEnum
from typing import Any

import msgspec

from jobmeter.model.question import Question


class JobState(StrEnum):
    """Where a job is in its life. A dialect has its own words for these."""

    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    UNKNOWN = "Unknown"
    """It is not known to run, and its end was not observed."""

    @property
    def finished(self) -> bool:
        """True for a job that neither waits nor runs: how it ended may be unknown."""
        return self not in {JobState.QUEUED, JobState.RUNNING}

    @property
    def outcome(self) -> bool:
        """True for an observed end, which replaces ``Unknown``."""
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED}


LOST = "lost"
"""The error of a job, and the reason of a replica, that failed because its run stopped renewing its lease."""


class InstanceType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine type of a replica. Memory in bytes. ``extra`` stores fields that a dialect returns verbatim."""

    id: str = ""
    name: str = ""
    cpu: float | None = None
    memory: int | None = None
    gpu_type: str = ""
    gpu_count: int | None = None
    gpu_memory: int | None = None
    extra: dict[str, Any] = {}


class Replica(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of one replica (pod, task, worker) of a job. Times in epoch milliseconds, None where unknown."""

    name: str
    attempt: int = 0
    rank: int | None = None
    cluster: str = ""
    node: str = ""
    pod_id: str = ""
    pod: str = ""
    """The name of its pod in the namespace of the job; empty where it is none, or its name is unknown."""
    state: JobState | None = None
    start: int | None = None
    end: int | None = None
    exit_code: int | None = None
    reason: str = ""


class AllocationSource(StrEnum):
    """The source of an allocation, most trusted first."""

    PROCESS = "process"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    PROLOG = "prolog"
    CGROUP = "cgroup"
    ENVIRONMENT = "environment"
    RECORD = "record"
    IMPORT = "import"


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interval: a replica of a job had a device of a node from ``start`` until ``end`` (None: still). Epoch ms."""

    replica: str
    node: str
    device: str
    start: int
    end: int | None = None
    cluster: str = ""
    rank: int | None = None
    source: AllocationSource = AllocationSource.RECORD


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checkpoint that a job reported. ``created`` in epoch ms, ``size`` in bytes, None where unknown.

    ``files`` are addresses (of an object store, say) where its parts can be fetched; ``extra`` stores fields that a
    dialect returns verbatim.
    """

    id: str
    created: int | None = None
    type: str = ""
    base_model: str = ""
    size: int | None = None
    files: list[str] = []
    extra: dict[str, Any] = {}


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job. Times in epoch milliseconds, None where unknown.

    ``limits`` maps a ``*.limit`` metric to what one replica was allowed, in the catalogue's unit. ``first_sample`` and
    ``last_sample`` are the times of its first and last stored sample. A job without a record has ``recorded`` False and
    a state derived from them. ``extra`` stores, by dialect, fields that its vendor's API takes and returns verbatim.
    ``updated`` is when the record was last written.
    """

    id: str
    project: str = "default"
    name: str = ""
    type: str = ""
    state: JobState = JobState.RUNNING
    user: str = ""
    resource_group: str = ""
    workspace: str = ""
    created: int | None = None
    start: int | None = None
    end: int | None = None
    error: str = ""
    exit_code: int | None = None
    command: str = ""
    instance_type: InstanceType | None = None
    limits: dict[str, float] = {}
    labels: dict[str, str] = {}
    checkpoints: list[Checkpoint] = []
    extra: dict[str, dict[str, Any]] = {}
    updated: int | None = None
    recorded: bool = False
    first_sample: int | None = None
    last_sample: int | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine that an agent runs on, and its description (cores, memory, devices, kernel).

    ``resource_group`` is the group whose capacity it counts towards, empty where unknown.
    """

    name: str
    project: str = "default"
    cluster: str = ""
    resource_group: str = ""
    first_seen: int | None = None
    last_seen: int | None = None
    info: dict[str, Any] = {}


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project that has, or once had, a job or a node.

    ``created`` is when its first job was created, ``latest`` the job that was created last; None where it has none.
    """

    name: str
    created: int | None = None
    latest: Job | None = None


class JobGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A resource group that records of a project's jobs name, how many they are, and their workspaces, sorted.

    ``created`` is when the first of these jobs was created, ``updated`` when one of their records was last written.
    """

    name: str
    project: str
    jobs: int
    workspaces: tuple[str, ...]
    created: int
    updated: int


class ProjectsQuestion(msgspec.Struct, Question[list[Project]], frozen=True, kw_only=True):
    """Which projects there are, by name; with ``names``, those of them. None: all that the caller may see."""

    names: frozenset[str] | None = None


class JobSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas a job has, and the most GPUs that one of them had on one node."""

    replicas: int = 0
    gpus: int = 0


class SizesQuestion(msgspec.Struct, Question[list[JobSize]], frozen=True, kw_only=True):
    """How large each of these jobs, (project, id), is. One that the caller may not see has nothing."""

    jobs: tuple[tuple[str, str], ...]


class JobPage(msgspec.Struct, frozen=True):
    """One page of jobs, and how many match in all."""

    jobs: list[Job]
    total: int


class Operator(StrEnum):
    """How a condition compares a field with its values."""

    IN = "in"
    """It is one of them."""
    NOT_IN = "not in"
    """It is none of them."""
    CONTAINS = "contains"
    """It is a text that holds one of them, without regard to case."""
    BETWEEN = "between"
    """It has a value from the first (None: no bound) to the second (None: no bound), both inclusive."""


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition on the jobs to list.

    ``field`` is ``id``, ``name``, ``type``, ``user``, ``project``, ``resource_group``, ``workspace``, ``command`` or
    ``error``; ``node``, that of one of its replicas (``in`` and ``not in`` alone); ``created``, ``start`` or ``end``
    (epoch ms), ``duration`` (ms from start to end, or until now); ``labels.NAME``; or ``extra.DIALECT.KEY``, which
    compares with a text, a number or truth value (as JSON writes it) or a list of texts, of which one has to match;
    ``extra.DIALECT.KEY/KEY`` is that of an object inside. ``otherwise`` is the field of those jobs that lack the first,
    where both are texts or ``extra``: a job without a name is listed under its id.
    """

    field: str
    operator: Operator
    values: tuple[str | int | None, ...]
    otherwise: str = ""


class JobFilter(msgspec.Struct, Question[JobPage], frozen=True, kw_only=True):
    """Which jobs to list. Empty parts match everything; times are epoch milliseconds.

    ``projects`` None means all: access was checked before. ``name_contains`` looks in name and id,
    without regard to case. ``created_from`` (inclusive) and ``created_to`` (exclusive) bound the creation time.
    ``conditions`` must all be met besides. ``sort`` is a field of Job, or ``duration``. ``offset`` and ``limit`` page.
    """

    projects: frozenset[str] | None = None
    ids: tuple[str, ...] = ()
    name_contains: str = ""
    states: frozenset[JobState] = frozenset()
    types: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    resource_groups: frozenset[str] = frozenset()
    workspaces: frozenset[str] = frozenset()
    created_from: int | None = None
    created_to: int | None = None
    conditions: tuple[Condition, ...] = ()
    sort: str = "created"
    descending: bool = True
    offset: int = 0
    limit: int = 100


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job with everything that belongs to it."""

    job: Job
    replicas: list[Replica]
    allocations: list[Allocation]
