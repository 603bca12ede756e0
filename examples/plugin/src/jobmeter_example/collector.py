"""File handles in use on the node: /proc/sys/fs/file-nr."""

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample


class FileHandleCollector:
    """Collector of the kernel's file handles. A metric without a row in the catalogue begins with external."""

    name = "example.files"
    metrics = ("external.file.handles",)
    every_ms = 60_000

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc") -> None:
        self._place = place
        self._path = f"{proc_root}/sys/fs/file-nr"

    def collect(self, now_ms: int) -> Samples:
        """Read the number of open file handles."""
        opened = files.read_required(self._path).split()[0]
        return [Sample(self._place.make_node_series(self.metrics[0]), now_ms, float(opened))]
