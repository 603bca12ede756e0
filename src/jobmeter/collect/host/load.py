"""Load averages: /proc/loadavg."""

from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.host.base import NodeCollector, NodeReading


class LoadCollector(NodeCollector):
    """Collector of load averages."""

    name = "host.load"
    metrics = ("node.load1", "node.load5", "node.load15")

    def _read(self) -> Iterator[NodeReading]:
        words = files.read_required(f"{self._proc}/loadavg").split()
        for metric, word in zip(self.metrics, words, strict=False):
            yield metric, (), float(word)
