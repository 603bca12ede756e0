"""What the replicas of jobs use: CPU time, memory, storage, network, from control groups where they have their own.

Otherwise, and for what groups do not count, from their processes.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from jobmeter.collect.base import Owner, Place, Samples
from jobmeter.collect.cgroup.count import GroupCounters, GroupKey
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import Usage
from jobmeter.collect.discover.table import Process, ProcessTable
from jobmeter.collect.ends import EndWatch
from jobmeter.collect.process import surroundings
from jobmeter.collect.process.count import Ended, ProcessCounters
from jobmeter.collect.process.keep import Keeper
from jobmeter.model.sample import Sample

_METRICS = (
    "cpu.time",
    "cpu.limit",
    "cpu.throttled.time",
    "memory.usage",
    "memory.peak",
    "memory.limit",
    "memory.oom.kills",
    "network.receive",
    "network.transmit",
    "disk.read",
    "disk.write",
    "pressure.cpu",
    "pressure.memory",
    "pressure.io",
    "process.count",
    "thread.count",
)
_KEEP_MS = 600_000
"""How long the sums of a replica without a process are kept: a job may pause between two steps."""

_Values = dict[str, float | None]


@dataclass(slots=True)
class _Replica:
    """One replica at one moment; ``living`` are its processes that still run, ``last`` what groups had used before."""

    living: list[Process] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    groups: Mapping[GroupKey, Usage] = field(default_factory=dict)
    last: Iterable[Usage] = ()


class JobsCollector:
    """See ``Collector``. Nothing that it counts falls while it runs, whatever processes come and go."""

    name = "jobs"

    def __init__(
        self,
        place: Place,
        table: ProcessTable,
        groups: GroupReader,
        proc_root: str = "/proc",
        ticks_per_second: int = 0,
        state: Path | None = None,
        ends: EndWatch | None = None,
    ) -> None:
        """``state``: folder in which to remember the counters over a restart of the agent.

        ``ends`` reads what a group had used when a process in it ends; without it that is known up to the last look.
        """
        self._place = place
        self._table = table
        self._reader = groups
        self._ends = ends
        self._proc = proc_root
        self._by_process = ProcessCounters(proc_root, ticks_per_second)
        self._by_group = GroupCounters()
        self._kept_of_processes = Keeper(state / "counters-processes.json" if state else None)
        self._kept_of_groups = Keeper(state / "counters-groups.json" if state else None)
        self._by_process.resume(self._kept_of_processes.load())
        self._by_group.resume(self._kept_of_groups.load())
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._peaks: dict[Owner, float] = {}
        self._prefers_first: dict[tuple[Owner, str], bool] = {}
        self._seen_ms: dict[Owner, int] = {}
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._machine = surroundings.machine_limits(proc_root)
        self._own_network = surroundings.network_namespace(proc_root, "self")

    def describe(self) -> tuple[str, ...]:
        """See ``Collector.describe``."""
        return _METRICS

    def ended(self, final: Ended) -> None:
        """Tell the final figures of a process, whether it was seen here or not. Safe from any thread."""
        self._ended.put(final)

    def collect(self, now_ms: int) -> Samples:
        """See ``Collector.collect``: a replica while it has a process, and once more when its last one ended."""
        ended = list(_drain(self._ended))
        gone = {final.key for final in ended}
        processes = [
            process for process in self._table.refresh() if not process.member.measured and process.stat.key not in gone
        ]
        finals = self._finals(processes)
        replicas = self._replicas(processes, ended, finals)
        self._forget_namesakes(replicas)
        self._by_group.update(finals)
        self._by_process.update(processes, ended)
        self._by_group.update({owner: replica.groups for owner, replica in replicas.items()})
        by_process, by_group = self._by_process.totals(), self._by_group.totals()
        self._kept_of_processes.save(by_process)
        self._kept_of_groups.save(by_group)
        samples: Samples = []
        for owner, replica in replicas.items():
            self._seen_ms[owner] = now_ms
            values = self._counters(owner, by_process.get(owner, {}), by_group.get(owner, {}))
            values.update(self._memory(owner, replica))
            values.update(self._surroundings(replica.living))
            values.update(_pressure(replica.groups))
            samples += [
                Sample(self._place.of_replica(metric, owner), now_ms, value)
                for metric, value in values.items()
                if value is not None
            ]
        self._forget(now_ms)
        return samples

    def _finals(self, processes: Iterable[Process]) -> dict[Owner, dict[GroupKey, Usage]]:
        """The last reading of groups in which a process has ended since the last look, and whose end to watch next."""
        if self._ends is None:
            return {}
        self._ends.watch(processes)
        finals: defaultdict[Owner, dict[GroupKey, Usage]] = defaultdict(dict)
        for final in self._ends.drain():
            finals[final.owner][final.groups] = final.usage
        return finals

    def _forget_namesakes(self, replicas: Mapping[Owner, _Replica]) -> None:
        """Take back what is remembered of a replica of the same name, where every process has begun since."""
        saved_ms = self._kept_of_processes.saved_ms
        if saved_ms is None:
            return
        began_ms = {
            owner: min(process.stat.key.start for process in replica.living) * 1000 / self._ticks
            for owner, replica in replicas.items()
            if owner not in self._seen_ms and replica.living
        }
        fresh = {owner for owner, began in began_ms.items() if began > saved_ms}
        self._by_process.forget(fresh)
        self._by_group.forget(fresh)

    def _replicas(
        self, processes: Iterable[Process], ended: Iterable[Ended], finals: Mapping[Owner, Mapping[GroupKey, Usage]]
    ) -> dict[Owner, _Replica]:
        replicas: defaultdict[Owner, _Replica] = defaultdict(_Replica)
        keys: defaultdict[Owner, set[GroupKey]] = defaultdict(set)
        for process in processes:
            owner = process.member.owner
            if not process.stat.ended:
                replicas[owner].living.append(process)
            if process.member.groups:
                keys[owner].add(tuple(sorted(process.member.groups.items())))
        for final in ended:
            replicas[final.owner].ended.append(final)
            if final.groups:
                keys[final.owner].add(tuple(sorted(final.groups.items())))
        for owner, paths in keys.items():
            replicas[owner].groups = {path: self._reader.read(dict(path)) for path in paths}
        for owner, last in finals.items():
            replicas[owner].last = last.values()
        return replicas

    def _counters(self, owner: Owner, process: dict[str, float], group: dict[str, float]) -> _Values:
        # What processes moved holds network filesystems, and writes that the page cache still has; groups do not.
        return {
            "cpu.time": self._pick(owner, "cpu", group.get("cpu"), process.get("cpu")),
            "disk.read": self._pick(owner, "disk", process.get("read"), group.get("read")),
            "disk.write": self._pick(owner, "disk", process.get("write"), group.get("write")),
            "cpu.throttled.time": group.get("throttled"),
            "memory.oom.kills": group.get("oom"),
        }

    def _pick(self, owner: Owner, kind: str, first: float | None, second: float | None) -> float | None:
        """The first where there is one, for the replica's whole life: two ways to count must not be mixed."""
        prefers_first = self._prefers_first.setdefault((owner, kind), first is not None)
        return first if prefers_first else second

    def _memory(self, owner: Owner, replica: _Replica) -> _Values:
        # A group without a process still holds the file cache that its processes left.
        groups = replica.groups.values() if replica.living else ()
        charged = [usage.memory for usage in groups if usage.memory is not None]
        resident = float(sum(process.stat.memory for process in replica.living))
        # A replica that lives uses some memory: 0 is a moment between its processes.
        now = (sum(charged) or None) if charged else (resident or None)
        # A group's own high-water mark sees what lies between two looks; file cache, which it counts too, is charged.
        marks = (usage.memory_peak for usage in (*replica.groups.values(), *replica.last))
        peaks = [*(final.memory_peak for final in replica.ended), *(mark for mark in marks if mark is not None)]
        self._peaks[owner] = highest = max([*peaks, now or 0.0, self._peaks.get(owner, 0.0)])
        return {"memory.usage": now, "memory.peak": highest or None}

    def _surroundings(self, living: list[Process]) -> _Values:
        """What only a process that still runs can tell."""
        if not living:
            return {}
        pid = living[0].stat.key.pid
        cpu, memory = surroundings.allowance(self._proc, pid, self._reader, self._machine)
        namespace = surroundings.network_namespace(self._proc, pid)
        network = None
        if namespace and self._own_network and namespace != self._own_network:
            network = surroundings.network_bytes(self._proc, pid)
        return {
            "process.count": float(len(living)),
            "thread.count": float(sum(process.stat.threads for process in living)),
            "cpu.limit": cpu,
            "memory.limit": memory,
            # In the machine's own namespace nobody knows whose bytes they are.
            "network.receive": network[0] if network else None,
            "network.transmit": network[1] if network else None,
        }

    def _forget(self, now_ms: int) -> None:
        old = {owner for owner, seen in self._seen_ms.items() if not 0 <= now_ms - seen <= _KEEP_MS}
        if not old:
            return
        self._by_process.forget(old)
        self._by_group.forget(old)
        self._prefers_first = {key: value for key, value in self._prefers_first.items() if key[0] not in old}
        for owner in old:
            del self._seen_ms[owner]
            self._peaks.pop(owner, None)


def _pressure(groups: Mapping[GroupKey, Usage]) -> _Values:
    """Stalls of a replica with one group: the stalls of several overlap in time and cannot be added."""
    if len(groups) != 1:
        return {}
    (usage,) = groups.values()
    return {f"pressure.{kind}": seconds for kind, seconds in usage.stalled.items()}


def _drain(queue: SimpleQueue[Ended]) -> Iterable[Ended]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
