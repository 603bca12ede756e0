"""State of a replica at one moment, and its memory: current and peak."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupKey
from jobmeter.collect.cgroup.usage import CgroupUsage
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.process.count import Departed, Ended
from jobmeter.collect.process.memory import MemoryMeasure, ProcessMemory
from jobmeter.collect.process.stat import Key, ProcessStat

_FIRST = -1
"""The order of the batch script, and of the shell of an interactive job, among the steps."""


@dataclass(slots=True)
class _Replica:
    highest: float = 0.0
    keys: frozenset[Key] = frozenset()
    steps: set[int] = field(default_factory=set)
    job_start: str = ""

    def is_other(self, members: Iterable[Member]) -> bool:
        """True if these new processes work for another job."""
        for member in members:
            if member.job_start and self.job_start:
                return member.job_start != self.job_start
            if self.steps and _order(member) <= max(self.steps):
                return True
        return False


class Peaks:
    """Remembers the highest value of each replica. For one thread."""

    def __init__(self) -> None:
        self._replicas: defaultdict[Owner, _Replica] = defaultdict(_Replica)

    def update(self, processes: Iterable[Process]) -> set[Owner]:
        """Update with the current processes. Replicas that now belong to another job are reset and returned."""
        found: defaultdict[Owner, list[Process]] = defaultdict(list)
        for process in processes:
            if process.member.source is MembershipSource.SLURM:
                found[process.member.owner].append(process)
        others: set[Owner] = set()
        for owner, some in found.items():
            keys = frozenset(process.stat.key for process in some)
            members = [process.member for process in some]
            if self._replicas[owner].keys.isdisjoint(keys) and self._replicas[owner].is_other(members):
                self._replicas[owner] = _Replica()
                others.add(owner)
            replica = self._replicas[owner]
            replica.keys = keys
            replica.steps.update(map(_order, members))
            replica.job_start = next((one.job_start for one in members if one.job_start), replica.job_start)
        return others

    def highest(self, owner: Owner, values: Iterable[float]) -> float:
        """The highest of these and of all earlier values."""
        replica = self._replicas[owner]
        replica.highest = max((*values, replica.highest))
        return replica.highest

    def forget(self, owner: Owner) -> None:
        """Drop a finished replica."""
        self._replicas.pop(owner, None)


def _order(member: Member) -> int:
    return int(member.step) if member.step.isdigit() else _FIRST


class HighWater:
    """Lowers the marks of groups to the possible peak of their processes. For one thread."""

    def __init__(self) -> None:
        self._last: dict[Owner, Mapping[Key, float]] = {}

    def marks(
        self,
        owner: Owner,
        usages: Iterable[CgroupUsage],
        living: Mapping[Key, float | None],
        ended: Mapping[Key, float],
        beside: float,
    ) -> list[float]:
        """Return the marks of the groups of a replica since the last call, each as far as it was in use.

        ``living`` and ``ended`` are the peaks of each process, ``ended`` since the last call. ``beside`` is the groups'
        current charge beyond their processes, such as files in memory. If a process's own mark is unknown, or the
        kernel has killed for lack of memory (it frees the cache first), the group's mark is returned unchanged.
        """
        before = self._last.get(owner, {})
        own = {key: most for key, most in living.items() if most is not None}
        self._last[owner] = own
        everyone = {**before, **{key: max(most, before.get(key, 0.0)) for key, most in own.items()}}
        everyone.update({key: max(most, before[key]) for key, most in ended.items() if key in before})
        # For processes that began and ended meanwhile, it is unknown which lived simultaneously.
        brief = max((most for key, most in ended.items() if key not in before), default=0.0)
        bound = sum(everyone.values()) + brief + beside
        if len(own) < len(living) or not bound:
            bound = float("inf")
        found = [(usage.memory_peak, usage.oom_kills) for usage in usages]
        return [mark if kills else min(mark, bound) for mark, kills in found if mark is not None]

    def forget(self, owner: Owner) -> None:
        """Drop a finished replica."""
        self._last.pop(owner, None)


@dataclass(slots=True)
class ReplicaProcesses:
    """Replica at one moment.

    ``living`` are its running processes, ``outside`` those that are in no replica's groups. ``last`` are readings of
    its groups when a process ended.
    """

    living: list[Process] = field(default_factory=list)
    outside: list[Process] = field(default_factory=list)
    ended: list[Ended | Departed] = field(default_factory=list)
    groups: Mapping[GroupKey, CgroupUsage] = field(default_factory=dict)
    last: Iterable[CgroupUsage] = ()


class ReplicaMemory:
    """Measures the memory of replicas by their groups; by processes for memory that groups do not count.

    For one thread.
    """

    def __init__(self, proc_root: str = "/proc") -> None:
        self.measures: dict[Owner, MemoryMeasure] = {}
        """Last measure of each replica's memory."""
        self._processes = ProcessMemory(proc_root)
        self._peaks = Peaks()
        self._high_water = HighWater()

    def begin_scan(self, processes: Iterable[Process]) -> set[Owner]:
        """Update with the current processes; replicas that now belong to another job are reset and returned."""
        return self._peaks.update(processes)

    def read(self, replicas: Mapping[Owner, ReplicaProcesses]) -> None:
        """Read the processes of these replicas, as far as the budget allows."""
        shared: list[ProcessStat] = []
        own: list[ProcessStat] = []
        for owner, replica in replicas.items():
            inside, apart = _divide_processes(replica)
            shared += apart
            marks = (usage.memory_peak or 0.0 for usage in (*replica.groups.values(), *replica.last))
            if max(marks, default=0.0) > self._peaks.highest(owner, ()):
                own += inside
        self._processes.update(shared, own)

    def values(self, owner: Owner, replica: ReplicaProcesses) -> dict[str, float | None]:
        """Return the memory metrics of a replica that was read."""
        inside, apart = _divide_processes(replica)
        # A group without processes still has the file cache that they left.
        charged = sum(_list_charged_memory(replica)) if replica.living else 0.0
        by_process, measure = self._processes.read_proportional(apart)
        if replica.living:
            self.measures[owner] = MemoryMeasure.GROUP if inside or not apart else measure
        # A living replica uses some memory: 0 is a moment between two processes.
        now = charged + by_process or None
        peaks = [final.memory_peak for final in replica.ended]
        # A group's own mark covers the time between two scans.
        marks = self._high_water.marks(
            owner,
            (*replica.groups.values(), *replica.last),
            {stat.key: self._processes.highest(stat) for stat in inside},
            {final.key: final.memory_peak for final in replica.ended},
            max(charged - sum(stat.memory for stat in inside), 0.0),
        )
        highest = self._peaks.highest(owner, [*peaks, *marks, now or 0.0])
        return {"memory.usage": now, "memory.peak": highest or None}

    def forget(self, owner: Owner) -> None:
        """Drop a finished replica."""
        self._peaks.forget(owner)
        self._high_water.forget(owner)
        self.measures.pop(owner, None)


def _list_charged_memory(replica: ReplicaProcesses) -> list[float]:
    return [usage.memory for usage in replica.groups.values() if usage.memory is not None]


def _divide_processes(replica: ReplicaProcesses) -> tuple[list[ProcessStat], list[ProcessStat]]:
    """Split its living processes into those whose memory its groups count, and the others."""
    apart = replica.outside if _list_charged_memory(replica) else replica.living
    keys = {process.stat.key for process in apart}
    inside = [process.stat for process in replica.living if process.stat.key not in keys]
    return inside, [process.stat for process in apart]
