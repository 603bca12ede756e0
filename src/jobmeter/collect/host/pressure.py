"""Pressure stall information of the node: /proc/pressure. Absent on kernels without it."""

import re

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample

_METRICS = {"cpu": "node.pressure.cpu", "memory": "node.pressure.memory", "io": "node.pressure.io"}
_SOME = re.compile(rb"^some .*total=(\d+)", re.MULTILINE)


def stalled_seconds(path: str) -> float | None:
    """Return the seconds in which some task was stalled, from a pressure file; None if the kernel does not tell."""
    match = _SOME.search(files.read(path) or b"")
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
        read = {metric: stalled_seconds(f"{self._root}/pressure/{name}") for name, metric in _METRICS.items()}
        return [
            Sample(self._place.of_node(metric), now_ms, value) for metric, value in read.items() if value is not None
        ]
