"""CPU time and storage traffic of replicas, summed over their processes."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.paths import CgroupPlace
from jobmeter.collect.discover.member import Process
from jobmeter.collect.process.open_files import OpenFiles
from jobmeter.collect.process.stat import Key, ProcessIo, parse_io
from jobmeter.collect.process.totals import ProcessReading, ProcessTotals


@dataclass(frozen=True, slots=True)
class Ended:
    """Final figures of a process that was waited for.

    ``io`` is absent if it could not be read. ``groups`` are the replica's own control groups. ``waited_seconds`` is the
    children's part of ``cpu_seconds``, absent if unknown. ``place`` counts for a process that no update contained.
    """

    key: Key
    owner: Owner
    cpu_seconds: float
    memory_peak: float
    io: ProcessIo | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    waited_seconds: float | None = None
    place: CgroupPlace = CgroupPlace.INSIDE


@dataclass(frozen=True, slots=True)
class Departed:
    """Final figures of a process that another process may have waited for.

    ``own_seconds`` exclude its children; ``waited_seconds`` cover children that are not counted individually.
    ``parent`` is a number.
    """

    key: Key
    owner: Owner
    parent: int
    own_seconds: float
    waited_seconds: float
    memory_peak: float
    io: ProcessIo | None
    groups: Mapping[str, str]


_NAMES = {CgroupPlace.INSIDE: "cpu", CgroupPlace.OUTSIDE: "outside"}


_IO_NAMES = ("read", "write", "io.read", "io.write")


class Account(NamedTuple):
    """CPU time of a replica by place."""

    owner: Owner
    place: CgroupPlace = CgroupPlace.INSIDE


class ProcessCounters:
    """Counts that never fall while processes come and go.

    CPU time outside the replica's own groups is counted separately; CPU time in another replica's groups is not
    counted. A process that left its groups between two updates counts as inside until the later one, because the time
    is unknown. So does usage before its first update, unless its parent was outside.
    """

    def __init__(self, proc_root: str, ticks_per_second: int = 0) -> None:
        self._moved = OpenFiles(proc_root, "io", parse_io)
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._cpu: ProcessTotals[Key, Account] = ProcessTotals(1)
        self._io: ProcessTotals[Key, Owner] = ProcessTotals(len(_IO_NAMES))
        self._places: dict[Key, CgroupPlace] = {}
        self._accounts: dict[Key, Account] = {}

    def update(
        self,
        processes: Iterable[Process],
        ended: Iterable[Ended],
        departed: Iterable[Departed] = (),
        places: Mapping[Key, CgroupPlace] | None = None,
        joined: Collection[Key] = frozenset(),
    ) -> None:
        """Update with the current processes, and the final figures of reaped or departed ones.

        ``places`` has the processes that are not inside. Earlier usage of new processes in ``joined`` belongs to
        nobody.
        """
        processes, ended, places = list(processes), list(ended), dict(places or {})
        keys = {process.stat.key.pid: process.stat.key for process in processes}
        self._moved.close_others(keys.keys())
        cpu: dict[Key, ProcessReading[Key, Account]] = {}
        io: dict[Key, ProcessReading[Key, Owner]] = {}
        for process in processes:
            stat, owner = process.stat, process.member.owner
            parent = keys.get(stat.parent)
            account = Account(
                owner, self._find_place(stat.key, parent, cpu) if stat.key in places else CgroupPlace.INSIDE
            )
            used, waited = (stat.cpu_ticks / self._ticks,), (stat.waited_ticks / self._ticks,)
            late = stat.key in joined
            cpu[stat.key] = ProcessReading(account, used, parent, waited, late=late)
            moved = self._moved.read(stat.key.pid)
            if moved is not None:
                io[stat.key] = ProcessReading(owner, moved, parent, late=late)
        departed = [one for one in departed if one.key not in cpu]
        numbers = {key.pid: key for key in (*self._accounts, *(one.key for one in departed))} | keys
        self._cpu.update(
            cpu,
            {final.key: self._make_final_reading(final) for final in ended},
            {one.key: self._make_departed_reading(one, numbers) for one in departed},
        )
        self._io.update(
            io,
            {final.key: ProcessReading(final.owner, final.io) for final in ended if final.io is not None},
            # For other processes their last reading is newer, with the usage that their children passed on.
            {
                one.key: ProcessReading(one.owner, one.io, numbers.get(one.parent))
                for one in departed
                if one.io is not None and one.key not in self._accounts
            },
        )
        # Final figures may come some updates after a process has vanished.
        self._places = {
            key: place for key, place in self._places.items() if key not in cpu and key in self._cpu
        } | places
        self._accounts = {key: reading.owner for key, reading in cpu.items()}

    def sum_totals(self) -> dict[Owner, dict[str, float]]:
        """Return by replica: ``cpu`` and ``outside`` in seconds, and the bytes of ``ProcessIo``, if known."""
        sums: dict[Owner, dict[str, float]] = {}
        for account, values in self._cpu.get_totals().items():
            if (name := _NAMES.get(account.place)) is not None:
                sums.setdefault(account.owner, {})[name] = values[0]
        for owner, values in self._io.get_totals().items():
            sums.setdefault(owner, {}).update(zip(_IO_NAMES, values, strict=True))
        return sums

    def resume(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Continue from the totals of an earlier process of the agent. CPU time of both kinds continues as one."""
        self._cpu.resume(
            {
                Account(owner): (counts["cpu"] + counts.get("outside", 0.0),)
                for owner, counts in reached.items()
                if "cpu" in counts
            }
        )
        self._io.resume(
            {
                owner: tuple(counts.get(name, 0.0) for name in _IO_NAMES)
                for owner, counts in reached.items()
                if "read" in counts
            }
        )

    def forget(self, owners: set[Owner]) -> None:
        """Drop the counts of finished replicas."""
        self._cpu.forget([Account(owner, place) for owner in owners for place in CgroupPlace])
        self._io.forget(owners)

    def _find_place(
        self, key: Key, parent: Key | None, found: Mapping[Key, ProcessReading[Key, Account]]
    ) -> CgroupPlace:
        """Return the earlier place of an outside process: at the last update, or where it began."""
        if key in self._cpu:
            return self._places.get(key, CgroupPlace.INSIDE)
        return found[parent].owner.place if parent is not None and parent in found else CgroupPlace.INSIDE

    def _make_final_reading(self, ended: Ended) -> ProcessReading[Key, Account]:
        waited = None if ended.waited_seconds is None else (ended.waited_seconds,)
        place = self._places.get(ended.key, CgroupPlace.INSIDE if ended.key in self._cpu else ended.place)
        return ProcessReading(Account(ended.owner, place), (ended.cpu_seconds,), waited=waited)

    def _make_departed_reading(self, one: Departed, numbers: Mapping[int, Key]) -> ProcessReading[Key, Account]:
        parent, waited = numbers.get(one.parent), one.waited_seconds
        beside = self._accounts.get(one.key) or (self._accounts.get(parent) if parent else None)
        place = self._places.get(one.key, beside.place if beside else CgroupPlace.INSIDE)
        return ProcessReading(Account(one.owner, place), (one.own_seconds + waited,), parent, (waited,))
