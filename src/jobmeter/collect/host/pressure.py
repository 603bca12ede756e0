"""Pressure stall information of the node: /proc/pressure."""

import re
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.host.base import NodeCollector, NodeReading

RESOURCES = ("cpu", "memory", "io")
_METRICS = tuple(f"node.pressure.{name}" for name in ("cpu", "memory", "memory.full", "io", "io.full"))
"""Waiting of all tasks for a CPU is left out: on a node some task always runs."""
_TOTAL = re.compile(rb"^(some|full) .*total=(\d+)", re.MULTILINE)


def read_stalled_seconds(path: str, resource: str) -> dict[str, float]:
    """Return the seconds of stalls in a pressure file: of some task (``memory``), and of all (``memory.full``)."""
    found = _TOTAL.findall(files.read(path) or b"")
    return {f"{resource}.full" if line == b"full" else resource: int(total) / 1e6 for line, total in found}


class PressureCollector(NodeCollector):
    """Collector of pressure stall information."""

    name = "host.pressure"
    metrics = _METRICS

    def _read(self) -> Iterator[NodeReading]:
        for resource in RESOURCES:
            for name, value in read_stalled_seconds(f"{self._proc}/pressure/{resource}", resource).items():
                if (metric := f"node.pressure.{name}") in _METRICS:
                    yield metric, (), value
