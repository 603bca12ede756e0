"""CPU time and storage traffic of replicas, summed over their processes."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobmeter.collect.base import Owner
from jobmeter.collect.discover.table import Process
from jobmeter.collect.process.stat import Key, read_io
from jobmeter.collect.process.totals import Reading, Totals


@dataclass(frozen=True, slots=True)
class Ended:
    """The final figures of a process that was waited for.

    ``io`` is None where it could not be read. ``groups`` are the control groups that its replica has for itself.
    ``waited_seconds`` is the part of ``cpu_seconds`` that was its children's, None where it is unknown.
    """

    key: Key
    owner: Owner
    cpu_seconds: float
    memory_peak: float
    io: tuple[float, float] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    waited_seconds: float | None = None


def _final(ended: Ended) -> Reading[Key, Owner]:
    waited = None if ended.waited_seconds is None else (ended.waited_seconds,)
    return Reading(ended.owner, (ended.cpu_seconds,), waited=waited)


class ProcessCounters:
    """Counts that never decrease as processes come and go."""

    def __init__(self, proc_root: str, ticks_per_second: int = 0) -> None:
        self._proc = proc_root
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._cpu: Totals[Key, Owner] = Totals(1)
        self._io: Totals[Key, Owner] = Totals(2)

    def update(self, processes: Iterable[Process], ended: Iterable[Ended]) -> None:
        """Update with the current processes, and the final figures of those that were reaped."""
        processes = list(processes)
        keys = {process.stat.key.pid: process.stat.key for process in processes}
        cpu: dict[Key, Reading[Key, Owner]] = {}
        io: dict[Key, Reading[Key, Owner]] = {}
        for process in processes:
            stat, owner = process.stat, process.member.owner
            parent = keys.get(stat.parent)
            cpu[stat.key] = Reading(owner, (stat.cpu_ticks / self._ticks,), parent, (stat.waited_ticks / self._ticks,))
            moved = read_io(self._proc, stat.key.pid)
            if moved is not None:
                io[stat.key] = Reading(owner, moved, parent)
        ended = list(ended)
        self._cpu.update(cpu, {final.key: _final(final) for final in ended})
        self._io.update(io, {final.key: Reading(final.owner, final.io) for final in ended if final.io is not None})

    def totals(self) -> dict[Owner, dict[str, float]]:
        """By replica: ``cpu`` in seconds, ``read`` and ``write`` in bytes, each only where it could be read."""
        sums = {owner: {"cpu": values[0]} for owner, values in self._cpu.totals().items()}
        for owner, values in self._io.totals().items():
            sums.setdefault(owner, {}).update(read=values[0], write=values[1])
        return sums

    def resume(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Continue from the ``totals`` of an earlier process of the agent."""
        self._cpu.resume({owner: (counts["cpu"],) for owner, counts in reached.items() if "cpu" in counts})
        self._io.resume(
            {owner: (counts["read"], counts["write"]) for owner, counts in reached.items() if "read" in counts}
        )

    def forget(self, owners: set[Owner]) -> None:
        """Drop the counts of replicas that are over."""
        self._cpu.forget(owners)
        self._io.forget(owners)
