"""Load averages: /proc/loadavg."""

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample


class LoadCollector:
    """Collector of load averages."""

    name = "host.load"
    metrics = ("node.load1", "node.load5", "node.load15")

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc") -> None:
        self._place = place
        self._path = f"{proc_root}/loadavg"

    def collect(self, now_ms: int) -> Samples:
        """Read /proc/loadavg."""
        text = files.read_required(self._path)
        return [
            Sample(self._place.make_node_series(metric), now_ms, float(word))
            for metric, word in zip(self.metrics, text.split(), strict=False)
        ]
