"""Zero points of a replica's counters: its start, if it began while the agent ran.

The increase of a counter excludes usage before its first sample. A replica that the last scan did not find used nothing
before its first process started, so its counters get a zero at that time.
"""

import os
from collections.abc import Callable, Mapping

from jobmeter.collect.clock import read_elapsed_ns

SHORTEST_MS = 250
"""Least time in milliseconds between the zero and a reading, for a meaningful rate. An earlier reading is left out."""
_SCANS = 2
"""Scans until a replica is found: at its first scan a process may still be a copy of its parent."""


class Starts:
    """Finds the zero points of a replica's counters. For one thread.

    Replicas that started before this object, or before the last but one scan, get no zero: they may have used
    something.
    """

    def __init__(
        self,
        epoch_ms: Callable[[int], int],
        elapsed: Callable[[], int] = read_elapsed_ns,
        ticks_per_second: int = 0,
        cores: int = 0,
    ) -> None:
        """``epoch_ms`` converts milliseconds since the boot to epoch milliseconds.

        ``elapsed`` returns nanoseconds since the boot. ``cores`` limits the possible usage since a start.
        """
        self._epoch_ms = epoch_ms
        self._elapsed = elapsed
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._cores = cores or os.cpu_count() or 1
        self._created = elapsed()
        self._scans = [self._created] * _SCANS
        self._now = self._created

    def begin_scan(self) -> None:
        """Note the begin of a scan, before the processes are listed."""
        self._scans = [*self._scans[1:], self._now]
        self._now = self._elapsed()

    def was_scanned(self, start: int) -> bool:
        """Return True for a process, by its start, that existed at a scan before the last one."""
        return self._scans[0] > self._created and self._precedes_last_scan(start)

    def find_zero_ms(self, start: int, values: Mapping[str, float | None], now_ms: int) -> int | None:
        """Return the time at which counters with these ``values`` at ``now_ms`` were zero, in epoch milliseconds.

        ``start`` is that of the replica's first process, in ticks since the boot. None if earlier usage is unknown: the
        replica began before the first scan, or its group has more CPU time than possible since.
        """
        if self._precedes_last_scan(start):
            return None
        most = (self._elapsed() - self._scans[0]) / 1e9 * self._cores + 1 / self._ticks
        if (values.get("cpu.time") or 0.0) > most:
            return None
        # At the end of that tick: the recorded start of a job lies inside it.
        zero_ms = self._epoch_ms((start + 1) * 1000 // self._ticks)
        return zero_ms if zero_ms < now_ms else None

    def _precedes_last_scan(self, start: int) -> bool:
        return start < self._scans[0] * self._ticks // 1_000_000_000
