"""A process that works for a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from jobmeter.collect.base import Owner
from jobmeter.collect.process.stat import ProcessStat


class Source(StrEnum):
    """The source of a membership: who started the job."""

    TAGS = "tags"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    RULE = "rule"
    TORCHRUN = "torchrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of a replica.

    ``rank`` is the replica's, ``process_rank`` and ``local_rank`` those that the process itself was given. ``groups``
    are control groups, by controller, of the replica alone. ``measured`` is True when ``jobmeter run`` measures the
    replica itself. ``name``, ``user``, ``kind`` and ``pod_id`` are of the job, where known. ``guess`` is the replica in
    a pod's host name, if any. ``devices`` is what the environment allows: (the name of the variable, its value).
    ``job_groups`` hold every task of the job on this node, by controller; they are named where a step has one task on a
    node. ``device_group`` is the path of the process's group in version 1's hierarchy of devices, empty where there is
    none. ``cluster`` is the scheduler's, ``step`` the number of the job's part and ``job_start`` the job's start, where
    the process was told it; all three are of Slurm's jobs alone.
    """

    owner: Owner
    source: Source
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
    devices: tuple[str, str] | None = None
    job_groups: Mapping[str, str] = field(default_factory=dict)
    device_group: str = ""
    cluster: str = ""
    step: str = ""
    job_start: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a job."""

    stat: ProcessStat
    member: Member


class Classifier(Protocol):
    """Decides which job a process works for."""

    def member(self, stat: ProcessStat, parent: Member | None) -> Member | None:
        """The process as a member of a job, None when it works for none. ``parent`` is its parent's membership."""
        ...

    def displaced(self) -> set[str]:
        """The jobs of which, since the last call, a process that is a member may be one no longer."""
        ...
