"""Slurm job in one form for all versions and both sources. Times are in seconds."""

import re
from dataclasses import dataclass, field

LIVE = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
WAITING = frozenset({"PENDING", "CONFIGURING", "RESV_DEL_HOLD", "POWER_UP_NODE"}).union(
    {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
)
REQUEUED = frozenset({"REQUEUED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})
"""States of an attempt that another one may follow."""
_COMPONENT = re.compile(r"(\d+)\+(\d+)")


@dataclass(frozen=True, slots=True)
class SlurmExit:
    """End of a job or a step: its exit code, and the signal that ended it, 0 without one."""

    code: int = 0
    signal: int = 0

    @property
    def status(self) -> int:
        """Status as a shell shows it: the code, or 128 plus the signal."""
        return 128 + self.signal if self.signal and not self.code else self.code


@dataclass(frozen=True, slots=True)
class SlurmStep:
    """Step of an attempt: ``id`` is ``batch``, ``interactive`` or its number. Nodes are in Slurm's order.

    ``first`` is the rank of its first task. It is above 0 only in a step that spans several components of a
    heterogeneous job, whose ranks continue from one component to the next.
    """

    id: str
    tasks: int
    nodes: tuple[str, ...]
    first: int = 0
    state: str = ""
    exit: SlurmExit = SlurmExit()
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Run of a job, from its submission on. ``start`` is absent before its start."""

    state: str
    submit: int | None = None
    start: int | None = None
    end: int | None = None
    exit: SlurmExit | None = None
    nodes: tuple[str, ...] = ()
    by: str = ""
    steps: tuple[SlurmStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """Job of Slurm. Memory in bytes, the time limit in minutes; None or empty if Slurm gives no value.

    ``label`` is the number that Slurm's commands show: ``8``, ``2_1`` of an array, ``6+1`` of a heterogeneous job.
    ``gpus`` are the indices on each node. ``restarts`` is absent if only the database has the job.
    """

    number: int
    label: str
    name: str
    user: str
    account: str = ""
    partition: str = ""
    qos: str = ""
    reason: str = ""
    tasks: int | None = None
    cpus: int | None = None
    memory: int | None = None
    gpu_count: int | None = None
    gpu_type: str = ""
    requested: str = ""
    time_limit: int | None = None
    restarts: int | None = None
    attempts: tuple[Attempt, ...] = ()
    gpus: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def component(self) -> tuple[int, int] | None:
        """Heterogeneous job of this component, and its place there; None for any other job.

        Component 0 has the job's script; the others only have tasks of steps.
        """
        match = _COMPONENT.fullmatch(self.label)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def now(self) -> Attempt:
        """Latest attempt."""
        return self.attempts[-1]

    @property
    def over(self) -> bool:
        """True if the latest attempt has ended and no other one will follow."""
        return self.now.state not in LIVE and self.now.state not in WAITING
