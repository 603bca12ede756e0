"""Jobs, their replicas, and who had which device when."""

from enum import StrEnum
from typing import Any

import msgspec


class JobState(StrEnum):
    """Where a job is in its life. A dialect has its own words for these."""

    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def finished(self) -> bool:
        """True for a state that nothing follows."""
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED}


class InstanceType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine that a replica was promised. Memory in bytes.

    ``extra`` keeps what a dialect wants back word for word.
    """

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
    state: JobState | None = None
    start: int | None = None
    end: int | None = None
    exit_code: int | None = None
    reason: str = ""


class AllocationSource(StrEnum):
    """How it is known that a job had a device, most trusted first."""

    PROCESS = "process"
    SCHEDULER = "scheduler"
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


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as its record says. Times in epoch milliseconds, None where unknown.

    ``limits`` maps a ``*.limit`` metric to what one replica was allowed, in the catalogue's unit. ``first_sample`` and
    ``last_sample`` are what the store saw. A job that nobody recorded has ``recorded`` False and a state derived from
    them.
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
    recorded: bool = False
    first_sample: int | None = None
    last_sample: int | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine that an agent runs on, and what it said of itself (cores, memory, devices, kernel)."""

    name: str
    project: str = "default"
    cluster: str = ""
    first_seen: int | None = None
    last_seen: int | None = None
    info: dict[str, Any] = {}


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list. Empty parts match everything; times are epoch milliseconds.

    ``projects`` None means all: the caller has settled what the asker may see. ``name_contains`` looks in name and id,
    without regard to case. ``created_from`` (inclusive) and ``created_to`` (exclusive) bound the creation time.
    ``sort`` is a field of Job. ``offset`` and ``limit`` page.
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
    sort: str = "created"
    descending: bool = True
    offset: int = 0
    limit: int = 100


class JobPage(msgspec.Struct, frozen=True):
    """One page of jobs, and how many match in all."""

    jobs: list[Job]
    total: int


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job with everything that belongs to it."""

    job: Job
    replicas: list[Replica]
    allocations: list[Allocation]
