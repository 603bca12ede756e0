"""Process of a job."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from jobmeter.collect.base import Owner
from jobmeter.collect.process.stat import ProcessStat


class MembershipSource(StrEnum):
    """Source of a membership: the program that started the job."""

    TAGS = "tags"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    RULE = "rule"
    TORCHRUN = "torchrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Process of a replica as a member of its job.

    ``rank`` is the replica's; ``process_rank`` and ``local_rank`` are the process's own. ``groups`` are control groups,
    by controller, of the replica only. ``measured``: ``jobmeter run`` measures the replica itself. ``name``, ``user``,
    ``kind`` and ``pod_id`` belong to the job, if known. ``guess`` is the replica in a pod's host name. ``devices`` are
    the names and values of variables that name devices. ``job_groups`` contain every task of the job on this node, by
    controller, if a step has one task on a node. ``device_group`` is the path in version 1's hierarchy of devices. Only
    Slurm's jobs have ``cluster``, ``step``, the number of the job's part, and ``job_start``.
    """

    owner: Owner
    source: MembershipSource
    rank: int | None = None
    process_rank: int | None = None
    local_rank: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    measured: bool = False
    name: str = ""
    user: str = ""
    kind: str = ""
    pod_id: str = ""
    guess: Owner | None = None
    devices: tuple[tuple[str, str], ...] = ()
    job_groups: Mapping[str, str] = field(default_factory=dict)
    device_group: str = ""
    cluster: str = ""
    step: str = ""
    job_start: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """Running or ended process of a job."""

    stat: ProcessStat
    member: Member


class MemberTable(Protocol):
    """Processes of jobs on the node."""

    def find_member(self, pid: int) -> Member | None:
        """Return the membership of a process; None without a job."""
        ...

    def list_members(self) -> Iterable[Member]:
        """Return the memberships of all processes of jobs."""
        ...

    def list_ended(self) -> Iterable[Process]:
        """Return the processes of jobs that ended between the last two scans, and zombies."""
        ...


class Classifier(Protocol):
    """Assigns processes to jobs."""

    def find_member(self, stat: ProcessStat, parent: Member | None) -> Member | None:
        """Return the membership of a process; None without a job. ``parent`` is its parent's membership."""
        ...

    def take_displaced(self) -> set[str]:
        """Return the jobs whose members may have changed since the last call."""
        ...
