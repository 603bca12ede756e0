"""Usage of the replicas of jobs: CPU time, memory, storage and network.

A replica with its own control groups is measured by them. Other replicas, and values that groups do not count, are
measured by processes. Processes that moved to another group are counted individually.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import SimpleQueue

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.cgroup.count import GroupCounters, GroupKey, group_key
from jobmeter.collect.cgroup.job_group import JobGroupCounters, JobGroupReader
from jobmeter.collect.cgroup.paths import CgroupPlace, InsideTime, find_places
from jobmeter.collect.cgroup.quota import QuotasAbove
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage, merge_readings
from jobmeter.collect.discover.member import Process
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.ends import EndWatch
from jobmeter.collect.host.pressure import RESOURCES
from jobmeter.collect.process import surroundings
from jobmeter.collect.process.count import Departed, Ended, ProcessCounters
from jobmeter.collect.process.stat import Key
from jobmeter.collect.process_events.counts import ProcessCounts, make_counts_file
from jobmeter.collect.replica import ReplicaMemory, ReplicaProcesses
from jobmeter.collect.starts import SHORTEST_MS, Starts
from jobmeter.collect.state_file import CounterFile
from jobmeter.model.catalog import CATALOG, Kind
from jobmeter.model.sample import Sample

_FORGET_AFTER_MS = 600_000
"""Time in milliseconds for which the sums of a replica without processes stay, because a job may pause."""

_KINDS = ("memory.anonymous", "memory.file", "memory.shared", "memory.kernel")
_GIVEN = (
    *("cpu.periods", "cpu.throttled.periods", "memory.limit.slowed", "memory.limit.reached"),
    *("disk.read.operations", "disk.write.operations", "io.read", "io.write"),
)
"""Counters that are given as a group or the processes count them."""

_Values = dict[str, float | None]


class JobsCollector:
    """Collector of the usage of jobs. Its counters never fall while processes come and go."""

    name = "jobs"
    metrics = (
        *("cpu.time", "cpu.limit", "cpu.throttled.time", "memory.usage", "memory.peak", "memory.limit"),
        *("memory.oom.kills", "network.receive", "network.transmit", "disk.read", "disk.write"),
        *(f"pressure.{resource}{line}" for resource in RESOURCES for line in ("", ".full")),
        *_GIVEN,
        *_KINDS,
        *("process.count", "thread.count"),
    )

    def __init__(
        self,
        place: NodeIdentity,
        table: ProcessTable,
        groups: GroupReader,
        proc_root: str = "/proc",
        ticks_per_second: int = 0,
        state: Path | None = None,
        ends: EndWatch | None = None,
        starts: Starts | None = None,
    ) -> None:
        """``state`` is a folder that stores the counters over a restart of the agent.

        ``ends`` reads the usage of a group at the end of a process in it; without it the last scan counts. ``starts``
        knows the times at which counters were zero; without it usage before the first scan is left out.
        """
        self._place = place
        self._table = table
        self._reader = groups
        self._ends = ends
        self._starts = starts
        self._proc = proc_root
        self._by_process = ProcessCounters(proc_root, ticks_per_second)
        self._by_group = GroupCounters()
        self._by_job = JobGroupCounters()
        self._inside = InsideTime()
        self._job_groups = ends.job_groups if ends else JobGroupReader(groups)
        self._quotas = QuotasAbove(groups, proc_root)
        self._retained_of_processes = CounterFile(state / "counters-processes.json" if state else None)
        self._retained_of_groups = CounterFile(state / "counters-groups.json" if state else None)
        self._counts = make_counts_file(state)
        self._since_ms = 0
        of_processes, of_groups = self._retained_of_processes.load(), self._retained_of_groups.load()
        self._by_process.resume(of_processes)
        self._by_group.resume(of_groups)
        self._inside.resume({owner: counts["ahead"] for owner, counts in of_processes.items() if "ahead" in counts})
        self._resumed = {*of_processes, *of_groups}
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self.memory = ReplicaMemory(proc_root)
        self._prefers_first: dict[tuple[Owner, str], bool] = {}
        self._last_seen_ms: dict[Owner, int] = {}
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._machine = surroundings.read_machine_limits(proc_root)
        self._own_network = files.read_link_target(f"{proc_root}/self/ns/net")

    def note_end(self, final: Ended) -> None:
        """Note the final figures of a process, scanned or not. Thread-safe."""
        self._ended.put(final)

    def collect(self, now_ms: int) -> Samples:
        """Return the samples of each replica while it has a process, and once more after its last one ended.

        The first reading of a counter is preceded by its zero, if the time is known.
        """
        if self._starts:
            self._starts.begin_scan()
        ended = [self._ended.get_nowait() for _ in range(self._ended.qsize())]
        found = self._table.refresh()
        departed = self._take_departed()
        over: list[Ended | Departed] = [*ended, *departed]
        gone = {final.key for final in over}
        processes = [process for process in found if not process.member.measured and process.stat.key not in gone]
        began = self._find_starts(processes, over)
        self._forget_namesakes(began)
        finals = self._take_finals(processes)
        for other in self.memory.begin_scan(processes):
            finals.pop(other, None)  # their counters and peak belong to the earlier job
        self._read_job_groups(processes)
        away = find_places(processes, self._proc)
        replicas = self._group_by_replica(processes, over, finals, away)
        self._by_process.update(processes, ended, departed, away, self._find_late_joins(processes))
        self._by_group.update({owner: replica.groups for owner, replica in replicas.items()})
        living = {owner: replica.living[0] for owner, replica in replicas.items() if replica.living}
        self._by_group.update(self._quotas.read(living))
        by_process, by_group = self._by_process.sum_totals(), self._by_group.sum_totals()
        self._by_job.add(by_group)
        for owner, counts in by_process.items():
            if (inside := by_group.get(owner, {}).get("cpu")) is not None and "cpu" in counts:
                counts["inside"] = self._inside.count_seconds(owner, counts["cpu"], inside)
                counts["ahead"] = self._inside.save_state(owner, counts["cpu"], inside)
        self._retained_of_processes.save(by_process)
        self._retained_of_groups.save(by_group)
        self._since_ms = self._since_ms or now_ms
        self._counts.save(ProcessCounts(self._table.missed, self._since_ms, *self._table.problems))
        samples: Samples = []
        self.memory.read(replicas)
        for owner, replica in replicas.items():
            self._last_seen_ms[owner] = now_ms
            values = self._make_counters(owner, by_process.get(owner, {}), by_group.get(owner, {}))
            values.update(self.memory.read_values(owner, replica))
            values.update(self._read_surroundings(replica.living))
            values.update(_pressure(replica.groups))
            values.update(_kinds(replica))
            zeros = self._make_zeros(owner, values, began.get(owner), now_ms)
            if zeros and replica.living and now_ms - zeros[0].time_ms < SHORTEST_MS:
                values = {metric: value for metric, value in values.items() if metric not in COUNTERS}
            samples += zeros
            samples += [
                Sample(self._place.make_replica_series(metric, owner), now_ms, value)
                for metric, value in values.items()
                if value is not None
            ]
        self._forget(now_ms)
        return samples

    def _take_finals(self, processes: Iterable[Process]) -> dict[Owner, dict[GroupKey, CgroupUsage]]:
        """Count and return the last readings of groups in which a process has ended since the last scan."""
        if self._ends is None:
            return {}
        self._ends.watch(processes)
        finals: defaultdict[Owner, dict[GroupKey, CgroupUsage]] = defaultdict(dict)
        for final in self._ends.drain():
            self._by_job.update(final.job_groups, final.owner.attempt, final.job_usage)
            self._by_group.update({final.owner: {final.groups: final.usage}})
            before = finals[final.owner].get(final.groups)
            finals[final.owner][final.groups] = merge_readings(before, final.usage) if before else final.usage
        return finals

    def _read_job_groups(self, processes: Iterable[Process]) -> None:
        """Read the usage of the groups of whole jobs, before the groups of their replicas are read."""
        found = {
            (group_key(process.member.job_groups), process.member.owner)
            for process in processes
            if process.member.job_groups
        }
        self._by_job.set_replicas(found)
        for groups, attempt in {(groups, owner.attempt) for groups, owner in found}:
            self._by_job.update(groups, attempt, self._job_groups.read(groups))

    def _take_departed(self) -> list[Departed]:
        """Return the processes that have ended since the last scan, also some that no scan has found."""
        found: list[Departed] = []
        for left in self._table.left:
            stat, member, final = left.process.stat, left.process.member, left.final
            if member.measured:
                continue
            own = final.cpu_seconds if final else (stat.cpu_ticks - stat.waited_ticks) / self._ticks
            peak, io = (final.memory_peak, final.io) if final else (0.0, None)
            found.append(
                Departed(stat.key, member.owner, stat.parent, own, left.waited_seconds, peak, io, member.groups)
            )
        return found

    def _find_starts(self, processes: Iterable[Process], ended: Iterable[Ended | Departed]) -> dict[Owner, int]:
        """Return the start of each new replica's first process, in ticks since the boot."""
        began: dict[Owner, int] = {}
        starts = [(process.member.owner, process.stat.key.start) for process in processes]
        for owner, start in (*starts, *((final.owner, final.key.start) for final in ended)):
            if owner not in self._last_seen_ms:
                began[owner] = min(start, began.get(owner, start))
        return began

    def _find_late_joins(self, processes: Iterable[Process]) -> set[Key]:
        """Return processes that existed at earlier scans and now join an older replica."""
        if self._starts is None:
            return set()
        keys = (process.stat.key for process in processes if process.member.owner in self._last_seen_ms)
        return {key for key in keys if self._starts.was_scanned(key.start)}

    def _forget_namesakes(self, began: Mapping[Owner, int]) -> None:
        """Drop the stored counters of an earlier replica with the name: all processes of the new one started later."""
        saved_ms = self._retained_of_processes.saved_ms
        if saved_ms is None:
            return
        fresh = {owner for owner, start in began.items() if start * 1000 / self._ticks > saved_ms}
        self._by_process.forget(fresh)
        self._by_group.forget(fresh)
        self._inside.forget(fresh)
        self._resumed -= fresh

    def _make_zeros(self, owner: Owner, values: Mapping[str, float | None], start: int | None, now_ms: int) -> Samples:
        """Return zeros of the counters of a new replica at its start."""
        if self._starts is None or start is None or owner in self._resumed:
            return []
        zero_ms = self._starts.find_zero_ms(start, values, now_ms)
        if zero_ms is None:
            return []
        counters = [metric for metric, value in values.items() if metric in COUNTERS and value is not None]
        return [Sample(self._place.make_replica_series(metric, owner), zero_ms, 0.0) for metric in counters]

    def _group_by_replica(
        self,
        processes: Iterable[Process],
        ended: Iterable[Ended | Departed],
        finals: Mapping[Owner, Mapping[GroupKey, CgroupUsage]],
        away: Mapping[Key, CgroupPlace],
    ) -> dict[Owner, ReplicaProcesses]:
        replicas: defaultdict[Owner, ReplicaProcesses] = defaultdict(ReplicaProcesses)
        keys: defaultdict[Owner, set[GroupKey]] = defaultdict(set)
        for process in processes:
            owner = process.member.owner
            if not process.stat.ended:
                replicas[owner].living.append(process)
            if away.get(process.stat.key) is CgroupPlace.OUTSIDE:
                replicas[owner].outside.append(process)
            if process.member.groups:
                keys[owner].add(group_key(process.member.groups))
        for final in ended:
            replicas[final.owner].ended.append(final)
            if final.groups:
                keys[final.owner].add(group_key(final.groups))
        for owner, paths in keys.items():
            replicas[owner].groups = {path: self._reader.read(dict(path)) for path in paths}
        for owner, last in finals.items():
            replicas[owner].last = last.values()
        return replicas

    def _make_counters(self, owner: Owner, process: dict[str, float], group: dict[str, float]) -> _Values:
        # Bytes of processes include network filesystems, and writes still in the page cache. Bytes of groups exclude
        # these, but include what processes moved between their last reading and their end.
        return {
            "cpu.time": self._sum_cpu(owner, process, group),
            **{
                f"disk.{kind}": max((one for one in (picked, group.get(kind)) if one is not None), default=None)
                for kind in ("read", "write")
                for picked in [self._pick(owner, "disk", process.get(kind), group.get(kind))]
            },
            "cpu.throttled.time": group.get("throttled"),
            "memory.oom.kills": group.get("oom"),
            **{metric: process.get(metric, group.get(metric)) for metric in _GIVEN},
        }

    def _sum_cpu(self, owner: Owner, process: dict[str, float], group: dict[str, float]) -> float | None:
        """Return the CPU time by the groups, if there are any, plus the usage of processes outside of them."""
        found = self._pick(owner, "cpu", process.get("inside", group.get("cpu")), process.get("cpu"))
        return None if found is None else found + process.get("outside", 0.0)

    def _pick(self, owner: Owner, kind: str, first: float | None, second: float | None) -> float | None:
        """Return the first value if present.

        The choice lasts for the replica's life: two ways of counting cannot be mixed.
        """
        prefers_first = self._prefers_first.setdefault((owner, kind), first is not None)
        return first if prefers_first else second

    def _read_surroundings(self, living: list[Process]) -> _Values:
        """Return the values that need a running process."""
        if not living:
            return {}
        pid = living[0].stat.key.pid
        pids = (process.stat.key.pid for process in living)
        allowances = (surroundings.read_allowance(self._proc, one, self._reader, self._machine) for one in pids)
        cpu, memory = next((found for found in allowances if found != (None, None)), (None, None))
        namespace = files.read_link_target(f"{self._proc}/{pid}/ns/net")
        network = None
        if namespace and self._own_network and namespace != self._own_network:
            network = surroundings.read_network_bytes(self._proc, pid)
        return {
            "process.count": float(len(living)),
            "thread.count": float(sum(process.stat.threads for process in living)),
            "cpu.limit": cpu,
            "memory.limit": memory,
            # In the machine's own namespace bytes cannot be attributed.
            "network.receive": network[0] if network else None,
            "network.transmit": network[1] if network else None,
        }

    def _forget(self, now_ms: int) -> None:
        old = {owner for owner, last in self._last_seen_ms.items() if not 0 <= now_ms - last <= _FORGET_AFTER_MS}
        if not old:
            return
        self._by_process.forget(old)
        self._by_group.forget(old)
        self._inside.forget(old)
        self._job_groups.forget(self._by_job.forget(old))
        self._quotas.forget(old)
        self._prefers_first = {key: value for key, value in self._prefers_first.items() if key[0] not in old}
        for owner in old:
            del self._last_seen_ms[owner]
            self.memory.forget(owner)


COUNTERS = frozenset(
    metric
    for metric in JobsCollector.metrics
    if CATALOG[metric].kind is Kind.COUNTER and not metric.startswith("network.")
)
"""Counters of a replica's control groups or processes. A network namespace may be older than its replica."""


def _pressure(groups: Mapping[GroupKey, CgroupUsage]) -> _Values:
    """Return the stalls of a replica with one group. Stalls of several groups overlap and cannot be added."""
    if len(groups) != 1:
        return {}
    (usage,) = groups.values()
    return {f"pressure.{kind}": seconds for kind, seconds in usage.stalled.items()}


def _kinds(replica: ReplicaProcesses) -> _Values:
    """Return the memory by kind of a running replica, over its groups."""
    found: _Values = {}
    for usage in replica.groups.values() if replica.living else ():
        for metric, size in usage.kinds.items():
            found[metric] = (found.get(metric) or 0.0) + size
    return found
