"""Jobs, their replicas, and allocations of devices."""

from enum import StrEnum
from typing import Any

import msgspec

from jobmeter.model.question import Question


class JobState(StrEnum):
    """State of a job. Dialects have their own words for these."""

    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    UNKNOWN = "Unknown"
    """It is not known to run, and its end was not observed."""

    @property
    def finished(self) -> bool:
        """True for a job that neither waits nor runs: the kind of its end may be unknown."""
        return self not in {JobState.QUEUED, JobState.RUNNING}

    @property
    def outcome(self) -> bool:
        """True for an observed end, which replaces ``Unknown``."""
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED}


LOST = "lost"
"""Error of a job, and reason of a replica, that failed because its run stopped renewing its lease."""


class InstanceType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machine type of a replica. Memory in bytes. ``extra`` stores fields that a dialect returns verbatim."""

    id: str = ""
    name: str = ""
    cpu: float | None = None
    memory: int | None = None
    gpu_type: str = ""
    gpu_count: int | None = None
    gpu_memory: int | None = None
    extra: dict[str, Any] = {}


class Replica(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attempt of a replica (pod, task, worker) of a job. Times in epoch milliseconds, None if unknown."""

    name: str
    attempt: int = 0
    rank: int | None = None
    cluster: str = ""
    node: str = ""
    pod_id: str = ""
    pod: str = ""
    """Name of its pod in the namespace of the job; empty if it is not a pod or the name is unknown."""
    state: JobState | None = None
    start: int | None = None
    end: int | None = None
    exit_code: int | None = None
    reason: str = ""


class AllocationSource(StrEnum):
    """Source of an allocation, most trusted first."""

    PROCESS = "process"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    PROLOG = "prolog"
    CGROUP = "cgroup"
    ENVIRONMENT = "environment"
    RECORD = "record"
    IMPORT = "import"


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Interval in which a replica of a job had a device of a node, from ``start`` to ``end`` (None: still).

    Epoch ms.
    """

    replica: str
    node: str
    device: str
    start: int
    end: int | None = None
    cluster: str = ""
    rank: int | None = None
    source: AllocationSource = AllocationSource.RECORD


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Checkpoint reported by a job. ``created`` in epoch ms, ``size`` in bytes, None if unknown.

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
    """Job. Times in epoch milliseconds, None if unknown.

    ``limits`` maps a ``*.limit`` metric to the limit of one replica, in the catalogue's unit. ``first_sample`` and
    ``last_sample`` are the times of its first and last stored sample. A job without a record has ``recorded`` False and
    a state derived from them. ``extra`` stores, by dialect, fields that its vendor's API accepts and returns verbatim.
    ``updated`` is the last time at which the record was written.
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
    """Machine that an agent runs on, and its description (cores, memory, devices, kernel).

    ``resource_group`` is the group whose capacity it counts towards, empty if unknown.
    """

    name: str
    project: str = "default"
    cluster: str = ""
    resource_group: str = ""
    first_seen: int | None = None
    last_seen: int | None = None
    info: dict[str, Any] = {}


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """Project that has, or once had, a job or a node.

    ``created`` is the creation time of its first job, ``latest`` its newest job; None without jobs.
    """

    name: str
    created: int | None = None
    latest: Job | None = None


class JobGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Resource group named in a project's job records, with the number of these jobs and their workspaces, sorted.

    ``created`` is the creation time of the first of these jobs, ``updated`` the last change of one of their records.
    """

    name: str
    project: str
    jobs: int
    workspaces: tuple[str, ...]
    created: int
    updated: int


class ProjectsQuestion(msgspec.Struct, Question[list[Project]], frozen=True, kw_only=True):
    """Question for the projects, by name; with ``names``, only those. None: all that the caller may see."""

    by_resource = of_job = True

    names: frozenset[str] | None = None


class JobSize(msgspec.Struct, frozen=True, kw_only=True):
    """Number of replicas of a job, and the most GPUs that one of them had on one node.

    ``devices`` and ``nodes`` count all devices and nodes of the job; 0 unless the question has ``places``.
    """

    replicas: int = 0
    gpus: int = 0
    devices: int = 0
    nodes: int = 0


class SizesQuestion(msgspec.Struct, Question[list[JobSize]], frozen=True, kw_only=True):
    """Question for the sizes of jobs, (project, id). An invisible job has size 0."""

    by_resource = of_job = True

    jobs: tuple[tuple[str, str], ...]
    places: bool = False


class JobPage(msgspec.Struct, frozen=True):
    """Page of jobs, and the number of all matches."""

    jobs: list[Job]
    total: int


class Operator(StrEnum):
    """Comparison of a field with the values of a condition."""

    IN = "in"
    """The field equals one of the values."""
    NOT_IN = "not in"
    """The field differs from all values."""
    CONTAINS = "contains"
    """The field is a text that contains one of the values, ignoring case."""
    BETWEEN = "between"
    """The field lies between the first and the second value (None: no bound), both inclusive."""


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Condition on the jobs to list.

    ``field`` is ``id``, ``name``, ``type``, ``user``, ``project``, ``resource_group``, ``workspace``, ``command`` or
    ``error``; ``node``, of one of its replicas (``in`` and ``not in`` only); ``created``, ``start`` or ``end`` (epoch
    ms), ``duration`` (ms from start to end, or until now); ``labels.NAME``; or ``extra.DIALECT.KEY``, which compares
    with a text, a number or truth value (as JSON writes it) or a list of texts, of which one has to match.
    ``extra.DIALECT.KEY/KEY`` reads a nested object. ``otherwise`` is the field for jobs that lack the first, if both
    are texts or ``extra``: a job without a name is listed under its id.
    """

    field: str
    operator: Operator
    values: tuple[str | int | None, ...]
    otherwise: str = ""


class JobFilter(msgspec.Struct, Question[JobPage], frozen=True, kw_only=True):
    """Filter of jobs. Empty fields match everything; times are epoch milliseconds.

    ``projects`` None means all: access was checked before. ``name_contains`` searches name and id, ignoring case.
    ``created_from`` (inclusive) and ``created_to`` (exclusive) bound the creation time. All ``conditions`` must be met.
    ``sort`` is a field of Job, or ``duration``. ``offset`` and ``limit`` page.
    """

    by_resource = of_job = True

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


class StateCountsQuestion(msgspec.Struct, Question[dict[JobState, int]], frozen=True, kw_only=True):
    """Question for the number of visible jobs that match, by state. States without jobs are left out."""

    by_resource = of_job = True

    jobs: JobFilter


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """Job with all its parts."""

    job: Job
    replicas: list[Replica]
    allocations: list[Allocation]
