"""Memory by kind, swap, page faults and out-of-memory kills: /proc/meminfo and /proc/vmstat."""

import os
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.host.base import NodeCollector, NodeReading

_MEMINFO = {
    b"MemTotal": "node.memory.total",
    b"MemAvailable": "node.memory.available",
    b"MemFree": "node.memory.free",
    b"Cached": "node.memory.cached",
    b"Dirty": "node.memory.dirty",
    b"Slab": "node.memory.slab",
    b"SwapTotal": "node.swap.total",
    b"SwapFree": "node.swap.free",
    b"Buffers": "node.memory.buffers",
    b"AnonPages": "node.memory.anonymous",
    b"Mapped": "node.memory.mapped",
    b"Shmem": "node.memory.shared",
    b"PageTables": "node.memory.page.tables",
    b"KernelStack": "node.memory.kernel.stacks",
    b"Writeback": "node.memory.writeback",
    b"Committed_AS": "node.memory.committed",
    b"Unevictable": "node.memory.unevictable",
    b"Hugetlb": "node.memory.huge",
}
_HUGE = {b"HugePages_Free": "node.memory.huge.free"}
"""Counts of huge pages."""
_VMSTAT = {
    b"pgfault": "node.memory.faults",
    b"pgmajfault": "node.memory.major.faults",
    b"oom_kill": "node.memory.oom.kills",
}
_SWAPPED = {b"pswpin": "node.swap.in", b"pswpout": "node.swap.out"}
"""Counters of pages."""
_STALLS = "node.memory.stalls"


class MemoryCollector(NodeCollector):
    """Collector of memory and swap."""

    name = "host.memory"
    metrics = (*_MEMINFO.values(), *_HUGE.values(), *_VMSTAT.values(), *_SWAPPED.values(), _STALLS)

    def _read(self) -> Iterator[NodeReading]:
        sizes, counts = self._read_pairs("meminfo"), self._read_pairs("vmstat")
        huge = sizes.get(b"Hugepagesize", 0) * 1024
        tables = (
            (sizes, _MEMINFO, 1024),
            (sizes, _HUGE if huge else {}, huge),
            (counts, _VMSTAT, 1),
            (counts, _SWAPPED, os.sysconf("SC_PAGE_SIZE")),
        )
        for values, table, scale in tables:
            for key, metric in table.items():
                if key in values:
                    yield metric, (), values[key] * scale
        if stalls := [count for key, count in counts.items() if key.startswith(b"allocstall")]:
            yield _STALLS, (), sum(stalls)  # the kernel counts each zone of memory separately

    def _read_pairs(self, name: str) -> dict[bytes, int]:
        values = files.read_pairs(f"{self._proc}/{name}")
        if values is None:
            raise OSError(f"{self._proc}/{name} cannot be read")
        return values
