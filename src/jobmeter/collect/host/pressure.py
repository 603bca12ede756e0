"""Pressure stall information of the node: /proc/pressure. Absent on kernels without it."""

import re

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample

_METRICS = {
    ("cpu", "some"): "node.pressure.cpu",
    ("memory", "some"): "node.pressure.memory",
    ("memory", "full"): "node.pressure.memory.full",
    ("io", "some"): "node.pressure.io",
    ("io", "full"): "node.pressure.io.full",
}
"""Metric of each file and line. ``full`` has no meaning for the CPU of a node: some task always runs."""
_TOTALS = {line: re.compile(rb"^%s .*total=(\d+)" % line.encode(), re.MULTILINE) for line in ("some", "full")}


def stalled_seconds(path: str, line: str = "some") -> float | None:
    """Return the seconds in which some task, or all (``full``), stalled, from a pressure file.

    None if the kernel does not tell.
    """
    match = _TOTALS[line].search(files.read(path) or b"")
    return int(match[1]) / 1e6 if match else None


class PressureCollector:
    """Collector of pressure stall information."""

    name = "host.pressure"
    metrics = tuple(_METRICS.values())

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc") -> None:
        self._place = place
        self._root = proc_root

    def collect(self, now_ms: int) -> Samples:
        """Read /proc/pressure."""
        read = {
            metric: stalled_seconds(f"{self._root}/pressure/{name}", line) for (name, line), metric in _METRICS.items()
        }
        return [
            Sample(self._place.of_node(metric), now_ms, value) for metric, value in read.items() if value is not None
        ]
