"""Replica at one moment, and its memory: current and peak."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupKey
from jobmeter.collect.cgroup.high_water import HighWater
from jobmeter.collect.cgroup.usage import CgroupUsage
from jobmeter.collect.discover.member import Process
from jobmeter.collect.peaks import Peaks
from jobmeter.collect.process.count import Departed, Ended
from jobmeter.collect.process.memory import MemoryMeasure, ProcessMemory
from jobmeter.collect.process.stat import ProcessStat


@dataclass(slots=True)
class ReplicaProcesses:
    """Replica at one moment.

    ``living`` are its running processes, ``outside`` those that are in no replica's groups. ``last`` are readings of
    its groups at the end of a process.
    """

    living: list[Process] = field(default_factory=list)
    outside: list[Process] = field(default_factory=list)
    ended: list[Ended | Departed] = field(default_factory=list)
    groups: Mapping[GroupKey, CgroupUsage] = field(default_factory=dict)
    last: Iterable[CgroupUsage] = ()


class ReplicaMemory:
    """Measures the memory of replicas by their groups, and by processes for memory that groups do not count.

    For one thread.
    """

    def __init__(self, proc_root: str = "/proc") -> None:
        self.measures: dict[Owner, MemoryMeasure] = {}
        """Last measure of each replica's memory."""
        self._processes = ProcessMemory(proc_root)
        self._peaks = Peaks()
        self._high_water = HighWater()

    def begin_scan(self, processes: Iterable[Process]) -> set[Owner]:
        """Update with the current processes. Reset and return replicas that now belong to another job."""
        return self._peaks.update(processes)

    def read(self, replicas: Mapping[Owner, ReplicaProcesses]) -> None:
        """Read the processes of these replicas, as far as the budget allows."""
        shared: list[ProcessStat] = []
        own: list[ProcessStat] = []
        for owner, replica in replicas.items():
            inside, apart = _divide_processes(replica)
            shared += apart
            marks = (usage.memory_peak or 0.0 for usage in (*replica.groups.values(), *replica.last))
            if max(marks, default=0.0) > self._peaks.update_highest(owner, ()):
                own += inside
        self._processes.update(shared, own)

    def read_values(self, owner: Owner, replica: ReplicaProcesses) -> dict[str, float | None]:
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
        marks = self._high_water.take_marks(
            owner,
            (*replica.groups.values(), *replica.last),
            {stat.key: self._processes.read_peak(stat) for stat in inside},
            {final.key: final.memory_peak for final in replica.ended},
            max(charged - sum(stat.memory for stat in inside), 0.0),
        )
        highest = self._peaks.update_highest(owner, [*peaks, *marks, now or 0.0])
        return {"memory.usage": now, "memory.peak": highest or None}

    def forget(self, owner: Owner) -> None:
        """Drop a finished replica."""
        self._peaks.forget(owner)
        self._high_water.forget(owner)
        self.measures.pop(owner, None)


def _list_charged_memory(replica: ReplicaProcesses) -> list[float]:
    return [usage.memory for usage in replica.groups.values() if usage.memory is not None]


def _divide_processes(replica: ReplicaProcesses) -> tuple[list[ProcessStat], list[ProcessStat]]:
    """Split the living processes into those whose memory the groups count, and the others."""
    apart = replica.outside if _list_charged_memory(replica) else replica.living
    keys = {process.stat.key for process in apart}
    inside = [process.stat for process in replica.living if process.stat.key not in keys]
    return inside, [process.stat for process in apart]
