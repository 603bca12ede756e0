"""What is known of a process that works for a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from jobmeter.collect.base import Owner
from jobmeter.collect.process.stat import ProcessStat


class Source(StrEnum):
    """Who started the job, so who said that the process belongs to it."""

    TAGS = "tags"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    TORCHRUN = "torchrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of a replica.

    ``rank`` is the replica's, ``process_rank`` and ``local_rank`` those that the process itself was given. ``groups``
    are control groups, by controller, that hold the replica and nobody else. ``measured`` is True when ``jobmeter
    run`` measures the replica itself. ``name``, ``user``, ``kind`` and ``pod_id`` say what is known of the job.
    ``devices`` is what the environment allows: (the name of the variable, its value).
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
    devices: tuple[str, str] | None = None


class Classifier(Protocol):
    """Decides which job a process works for."""

    def member(self, stat: ProcessStat, parent: Member | None) -> Member | None:
        """The process as a member of a job, None when it works for none. ``parent`` is what is known of its parent."""
        ...
