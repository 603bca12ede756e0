"""Memory and swap, major faults and out-of-memory kills: /proc/meminfo and /proc/vmstat."""

import os

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample

_MEMINFO = {
    b"MemTotal": "node.memory.total",
    b"MemAvailable": "node.memory.available",
    b"MemFree": "node.memory.free",
    b"Cached": "node.memory.cached",
    b"Dirty": "node.memory.dirty",
    b"Slab": "node.memory.slab",
    b"SwapTotal": "node.swap.total",
    b"SwapFree": "node.swap.free",
}
_VMSTAT = {b"pgmajfault": "node.memory.major.faults", b"oom_kill": "node.memory.oom.kills"}
_SWAPPED = {b"pswpin": "node.swap.in", b"pswpout": "node.swap.out"}
"""Counters of pages."""


class MemoryCollector:
    """Collector of memory and swap."""

    name = "host.memory"
    metrics = (*_MEMINFO.values(), *_VMSTAT.values(), *_SWAPPED.values())

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc") -> None:
        self._place = place
        self._root = proc_root

    def collect(self, now_ms: int) -> Samples:
        """Read /proc/meminfo and /proc/vmstat."""
        samples: Samples = []
        for name, tables in (
            ("meminfo", ((_MEMINFO, 1024),)),
            ("vmstat", ((_VMSTAT, 1), (_SWAPPED, os.sysconf("SC_PAGE_SIZE")))),
        ):
            values = files.read_pairs(f"{self._root}/{name}")
            if values is None:
                raise OSError(f"{self._root}/{name} cannot be read")
            samples += [
                Sample(self._place.of_node(metric), now_ms, float(values[key] * scale))
                for table, scale in tables
                for key, metric in table.items()
                if key in values
            ]
        return samples
