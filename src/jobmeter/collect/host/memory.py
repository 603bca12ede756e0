"""Memory by kind and by NUMA node, swap, page faults and out-of-memory kills: /proc/meminfo, /proc/vmstat, /sys."""

import os
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample

_SIZES = {b"MemTotal": "node.numa.memory.total", b"MemFree": "node.numa.memory.free"}
_PAGES = {
    b"numa_hit": "node.numa.hit",
    b"numa_miss": "node.numa.miss",
    b"numa_foreign": "node.numa.foreign",
    b"other_node": "node.numa.remote",
}
_ERRORS = "node.memory.errors"
_KINDS = {"corrected": "ce_count", "uncorrected": "ue_count"}
"""File of a memory controller, by the kind of errors that it counts."""


class NumaCollector:
    """Collector of the memory of NUMA nodes and the errors of memory controllers."""

    name = "host.numa"
    metrics = (*_SIZES.values(), *_PAGES.values(), _ERRORS)

    def __init__(self, place: NodeIdentity, sys_root: str = "/sys") -> None:
        self._place = place
        self._root = f"{sys_root}/devices/system"

    def collect(self, now_ms: int) -> Samples:
        """Read the nodes and the controllers; a machine without error-correcting memory has no controllers."""
        samples = [
            Sample(self._place.of_node(metric, (("numa", numa),)), now_ms, value)
            for metric, numa, value in self._read_nodes()
        ]
        for controller, kind, count in self._read_errors():
            labels = (("controller", controller), ("kind", kind))
            samples.append(Sample(self._place.of_node(_ERRORS, labels), now_ms, float(count)))
        return samples

    def _read_nodes(self) -> Iterator[tuple[str, str, float]]:
        folder = f"{self._root}/node"
        for name in files.names(folder):
            number = name.removeprefix("node")
            if not number.isdigit():
                continue
            for line in (files.read(f"{folder}/{name}/meminfo") or b"").splitlines():
                words = line.split()  # Node 0 MemTotal: 24684096 kB
                if len(words) >= 4 and (metric := _SIZES.get(words[2].rstrip(b":"))) and words[3].isdigit():
                    yield metric, number, int(words[3]) * 1024.0
            for key, count in (files.read_pairs(f"{folder}/{name}/numastat") or {}).items():
                if key in _PAGES:
                    yield _PAGES[key], number, float(count)

    def _read_errors(self) -> Iterator[tuple[str, str, int]]:
        folder = f"{self._root}/edac/mc"
        for name in files.names(folder):
            for kind, total in _KINDS.items():
                count = files.read_number(f"{folder}/{name}/{total}")
                if count is not None:
                    yield name, kind, count


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


class MemoryCollector:
    """Collector of memory and swap."""

    name = "host.memory"
    metrics = (*_MEMINFO.values(), *_HUGE.values(), *_VMSTAT.values(), *_SWAPPED.values(), _STALLS)

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc") -> None:
        self._place = place
        self._root = proc_root

    def collect(self, now_ms: int) -> Samples:
        """Read /proc/meminfo and /proc/vmstat."""
        sizes, counts = self._read("meminfo"), self._read("vmstat")
        huge = sizes.get(b"Hugepagesize", 0) * 1024
        tables = (
            (sizes, _MEMINFO, 1024),
            (sizes, _HUGE if huge else {}, huge),
            (counts, _VMSTAT, 1),
            (counts, _SWAPPED, os.sysconf("SC_PAGE_SIZE")),
        )
        found = {
            metric: values[key] * scale
            for values, table, scale in tables
            for key, metric in table.items()
            if key in values
        }
        if stalls := [count for key, count in counts.items() if key.startswith(b"allocstall")]:
            found[_STALLS] = sum(stalls)  # the kernel counts each zone of memory separately
        return [Sample(self._place.of_node(metric), now_ms, float(value)) for metric, value in found.items()]

    def _read(self, name: str) -> dict[bytes, int]:
        values = files.read_pairs(f"{self._root}/{name}")
        if values is None:
            raise OSError(f"{self._root}/{name} cannot be read")
        return values
