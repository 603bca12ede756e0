"""Memory by NUMA node, and errors of memory modules: /sys/devices/system/node and /sys/devices/system/edac.

https://docs.kernel.org/admin-guide/numastat.html and https://docs.kernel.org/admin-guide/RAS/main.html
"""

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
            Sample(self._place.make_node_series(metric, (("numa", numa),)), now_ms, value)
            for metric, numa, value in self._read_nodes()
        ]
        for controller, kind, count in self._read_errors():
            labels = (("controller", controller), ("kind", kind))
            samples.append(Sample(self._place.make_node_series(_ERRORS, labels), now_ms, float(count)))
        return samples

    def _read_nodes(self) -> Iterator[tuple[str, str, float]]:
        folder = f"{self._root}/node"
        for name in files.list_names(folder):
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
        for name in files.list_names(folder):
            for kind, total in _KINDS.items():
                count = files.read_number(f"{folder}/{name}/{total}")
                if count is not None:
                    yield name, kind, count
