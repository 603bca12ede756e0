"""Base of the collectors of the whole node."""

from collections.abc import Iterable, Sequence

from jobmeter.collect.base import Labels, NodeIdentity, Samples
from jobmeter.model.sample import Sample

NodeReading = tuple[str, Labels, float]
"""Value of a metric with its labels."""


class NodeCollector:
    """Collector of the whole node. A subclass reads values below ``proc_root`` and ``sys_root``."""

    name = ""
    metrics: Sequence[str] = ()

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", sys_root: str = "/sys") -> None:
        self._place = place
        self._proc = proc_root
        self._sys = sys_root

    def collect(self, now_ms: int) -> Samples:
        """Read the values of this moment."""
        return [
            Sample(self._place.make_node_series(metric, labels), now_ms, float(value))
            for metric, labels, value in self._read()
        ]

    def _read(self) -> Iterable[NodeReading]:
        raise NotImplementedError
