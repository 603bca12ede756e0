"""Memory by NUMA node, and errors of memory modules: /sys/devices/system/node and /sys/devices/system/edac.

https://docs.kernel.org/admin-guide/numastat.html and https://docs.kernel.org/admin-guide/RAS/main.html
"""

from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.host.base import NodeCollector, NodeReading

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


class NumaCollector(NodeCollector):
    """Collector of the memory of NUMA nodes and the errors of memory controllers."""

    name = "host.numa"
    metrics = (*_SIZES.values(), *_PAGES.values(), _ERRORS)

    def _read(self) -> Iterator[NodeReading]:
        yield from self._read_nodes()
        yield from self._read_errors()

    def _read_nodes(self) -> Iterator[NodeReading]:
        folder = f"{self._sys}/devices/system/node"
        for number in files.list_numbers(folder, "node"):
            name, labels = f"node{number}", (("numa", str(number)),)
            for line in (files.read(f"{folder}/{name}/meminfo") or b"").splitlines():
                words = line.split()  # Node 0 MemTotal: 24684096 kB
                if len(words) >= 4 and (metric := _SIZES.get(words[2].rstrip(b":"))) and words[3].isdigit():
                    yield metric, labels, int(words[3]) * 1024
            for key, count in (files.read_pairs(f"{folder}/{name}/numastat") or {}).items():
                if key in _PAGES:
                    yield _PAGES[key], labels, count

    def _read_errors(self) -> Iterator[NodeReading]:
        """Yield the counts of controllers, which only machines with error-correcting memory have."""
        folder = f"{self._sys}/devices/system/edac/mc"
        for name in files.list_names(folder):
            for kind, total in _KINDS.items():
                count = files.read_number(f"{folder}/{name}/{total}")
                if count is not None:
                    yield _ERRORS, (("controller", name), ("kind", kind)), count
