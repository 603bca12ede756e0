"""Memory of single processes, within a budget of CPU time: their proportional set sizes, and the peak of each.

The resident size of a process includes every page that it shares: in the sum over forked data loaders a page counts
once for each of them. The proportional set size (Pss) divides each page by the number of its users, so that sums are
right (https://docs.kernel.org/filesystems/proc.html, ``smaps_rollup``). The kernel walks the whole page table for it,
for about 10 ms per GiB. The sizes of processes beyond the budget are estimated from earlier readings.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.process.stat import Key, ProcessStat, read_high_water, read_stat

SHARE = 0.0025
"""Share of one core for readings, over time."""
BURST_SECONDS = 0.25
"""CPU time that may be used at once after a pause."""
_AGAIN_SECONDS = 60.0
"""Age in seconds at which an idle process is read again: processes of other jobs may share its pages."""
_KIB = 1024


class MemoryMeasure(StrEnum):
    """Way of measuring the memory of a replica."""

    GROUP = "working set of the control group"
    PROPORTIONAL = "proportional set sizes"
    RESIDENT = "resident sizes, in which a page that processes share counts for each"


class _Reading(NamedTuple):
    """Reading of a process. ``turn`` numbers all readings, ``seconds`` is the time of the clock.

    ``value`` is absent if the process has none, or is not readable; ``resident`` and ``cpu_ticks`` are the size and the
    CPU time of the process at the reading.
    """

    turn: int
    value: float | None
    resident: int
    cpu_ticks: int
    seconds: float


@dataclass(slots=True)
class _Kind:
    """Figure of a process: its reader, and the last readings.

    ``changed`` is the last reading before a process began or ended, which may share pages with the others.
    """

    read: Callable[[ProcessStat], float | None]
    readings: dict[Key, _Reading] = field(default_factory=dict)
    changed: int = 0

    def turn_if_due(self, stat: ProcessStat, now: float) -> int | None:
        """Return the turn of the last reading (0 if unread) if the process must be read; None if nothing changed."""
        last = self.readings.get(stat.key)
        if last is None:
            return 0
        idle = last.resident == stat.memory and last.cpu_ticks == stat.cpu_ticks and last.value is not None
        return None if idle and last.turn > self.changed and now - last.seconds < _AGAIN_SECONDS else last.turn


class ProcessMemory:
    """Last readings of the living processes. For one thread."""

    def __init__(
        self,
        proc_root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """``clock`` returns elapsed seconds, ``cpu`` CPU seconds of this thread."""
        self._proc = proc_root
        self._clock = clock
        self._budget = MeasuringBudget(SHARE, BURST_SECONDS, clock, cpu)
        self._proportional = _Kind(self._read_pss)
        self._highest = _Kind(self._mark)
        self._turn = 0

    def update(self, shared: Iterable[ProcessStat], own: Iterable[ProcessStat]) -> None:
        """Read as many processes as the budget allows, the longest unread first. Drop all other processes.

        For ``shared`` the proportional set size is read, for ``own`` the peak. A process that has not run since its
        reading is read once a minute, and when another one begins or ends.
        """
        now = self._clock()
        due: list[tuple[int, int, _Kind, ProcessStat]] = []
        for kind, stats in ((self._proportional, shared), (self._highest, own)):
            living = {stat.key: stat for stat in stats}
            if kind.readings.keys() != living.keys():
                kind.changed = self._turn
            kind.readings = {key: reading for key, reading in kind.readings.items() if key in living}
            for stat in living.values():
                if (turn := kind.turn_if_due(stat, now)) is not None:
                    due.append((turn, len(due), kind, stat))
        self._budget.begin()
        for *_, kind, stat in sorted(due, key=lambda one: one[:2]):
            if self._budget.left <= 0:
                break
            self._turn += 1
            kind.readings[stat.key] = _Reading(self._turn, kind.read(stat), stat.memory, stat.cpu_ticks, now)
        self._budget.end()

    def read_proportional(self, stats: Iterable[ProcessStat]) -> tuple[float, MemoryMeasure]:
        """Return the total memory of these processes, and how it was measured.

        Unread processes are assumed to share as much as the others.
        """
        read: list[tuple[float, int]] = []
        unread: list[int] = []
        resident = 0
        for stat in stats:
            reading = self._proportional.readings.get(stat.key)
            if reading is None:
                unread.append(stat.memory)
            elif reading.value is None:
                resident += stat.memory
            else:
                read.append((_update_proportional(reading.value, reading.resident, stat.memory), stat.memory))
        found = sum(value for value, _ in read)
        of_read = sum(size for _, size in read)
        part = found / of_read if of_read else 1.0
        measure = MemoryMeasure.RESIDENT if resident or (unread and not read) else MemoryMeasure.PROPORTIONAL
        return found + part * sum(unread) + resident, measure

    def read_peak(self, stat: ProcessStat) -> float | None:
        """Return the peak memory of this process; None if the kernel does not tell."""
        reading = self._highest.readings.get(stat.key)
        if reading is None:
            return float(stat.memory)
        return None if reading.value is None else max(reading.value, float(stat.memory))

    def _read_pss(self, stat: ProcessStat) -> float | None:
        found = files.read_pairs(f"{self._proc}/{stat.key.pid}/smaps_rollup")
        value = found.get(b"Pss") if found else None
        return None if value is None else float(value * _KIB)

    def _mark(self, stat: ProcessStat) -> float | None:
        value = read_high_water(self._proc, stat.key.pid)
        if value is not None:
            return value
        again = read_stat(self._proc, stat.key.pid)
        # A process that is about to end has released its memory.
        return None if again and again.key == stat.key and again.memory and not again.ended else float(stat.memory)


def _update_proportional(value: float, before: int, now: int) -> float:
    """Update an older proportional size. Growth is the process's own memory; both kinds shrink in proportion."""
    if now >= before:
        return value + now - before
    return value * now / before if before else 0.0
