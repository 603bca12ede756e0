"""Zero points of a replica's counters: its start, where it began while the agent ran.

The increase of a counter excludes usage before its first sample. A replica that was absent in the last scan used
nothing before its first process started, so its counters get a zero at that time.
"""

import os
from collections.abc import Callable, Mapping

from jobmeter.collect.clock import elapsed_ns

COUNTERS = frozenset(
    {
        "cpu.time",
        "cpu.throttled.time",
        "memory.oom.kills",
        "disk.read",
        "disk.write",
        "pressure.cpu",
        "pressure.memory",
        "pressure.io",
    }
)
"""What is counted by a replica's own control group or its processes.

Network traffic is not among them: a network namespace is often older than the replica that uses it, as a pod's is.
"""
SHORTEST_MS = 250
"""A reading sooner after the zero waits for the next scan: its rate over so short a time means nothing."""
_SCANS = 2
"""A replica is found one scan after its first process where that was still a copy of its parent in the scan before."""


class Starts:
    """Finds when the counters of a replica were zero. For one thread.

    Replicas that started before this object was created, or before the scan before the last, may have used something
    already and get no zero.
    """

    def __init__(
        self,
        epoch_ms: Callable[[int], int],
        elapsed: Callable[[], int] = elapsed_ns,
        ticks_per_second: int = 0,
        cores: int = 0,
    ) -> None:
        """``epoch_ms`` gives the epoch milliseconds of so many milliseconds after the start of the machine.

        ``elapsed`` gives nanoseconds since then. ``cores`` bounds what may have been used since a start.
        """
        self._epoch_ms = epoch_ms
        self._elapsed = elapsed
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._cores = cores or os.cpu_count() or 1
        self._created = elapsed()
        self._scans = [self._created] * _SCANS
        self._now = self._created

    def begin_scan(self) -> None:
        """Call this before the processes are listed, once a scan."""
        self._scans = [*self._scans[1:], self._now]
        self._now = self._elapsed()

    def scanned_before(self, start: int) -> bool:
        """True for a process, by its start, that was there at a scan before the last one."""
        return self._scans[0] > self._created and self._began_earlier(start)

    def zero_ms(self, start: int, values: Mapping[str, float | None], now_ms: int) -> int | None:
        """When counters that read ``values`` at ``now_ms`` were zero, in epoch milliseconds.

        ``start`` is that of the replica's first process, in ticks since the start of the machine. None where earlier
        usage is unknown: it began before the first scan, or its group has more CPU time than there was since.
        """
        if self._began_earlier(start):
            return None
        most = (self._elapsed() - self._scans[0]) / 1e9 * self._cores + 1 / self._ticks
        if (values.get("cpu.time") or 0.0) > most:
            return None
        # At the end of that tick: a job is recorded with the time at which it was started, which lies inside of it.
        zero_ms = self._epoch_ms((start + 1) * 1000 // self._ticks)
        return zero_ms if zero_ms < now_ms else None

    def _began_earlier(self, start: int) -> bool:
        return start < self._scans[0] * self._ticks // 1_000_000_000
