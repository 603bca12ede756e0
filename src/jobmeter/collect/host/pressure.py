"""Pressure stall information of the node: /proc/pressure. Absent on kernels without it."""

import re

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample

RESOURCES = ("cpu", "memory", "io")
_METRICS = tuple(f"node.pressure.{name}" for name in ("cpu", "memory", "memory.full", "io", "io.full"))
"""Waiting of all tasks for a CPU is left out: it has no meaning for a node, on which some task always runs."""
_TOTAL = re.compile(rb"^(some|full) .*total=(\d+)", re.MULTILINE)


def read_stalled_seconds(path: str, resource: str) -> dict[str, float]:
    """Return the seconds of stalls in a pressure file: of some task (``memory``), and of all (``memory.full``).

    Empty if the kernel does not report them.
    """
    found = _TOTAL.findall(files.read(path) or b"")
    return {f"{resource}.full" if line == b"full" else resource: int(total) / 1e6 for line, total in found}


class PressureCollector:
    """Collector of pressure stall information."""

    name = "host.pressure"
    metrics = _METRICS

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc") -> None:
        self._place = place
        self._root = proc_root

    def collect(self, now_ms: int) -> Samples:
        """Read /proc/pressure."""
        read = [read_stalled_seconds(f"{self._root}/pressure/{resource}", resource) for resource in RESOURCES]
        return [
            Sample(self._place.make_node_series(metric), now_ms, value)
            for found in read
            for name, value in found.items()
            if (metric := f"node.pressure.{name}") in _METRICS
        ]
