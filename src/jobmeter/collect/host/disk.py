"""Bytes, operations and times of whole disks: /proc/diskstats.

Partitions, and devices built on others (device mapper, RAID, loop), would count their bytes twice: only disks with a
device behind them in /sys/block are read.
"""

import os

from jobmeter.collect import files
from jobmeter.collect.base import Labels, NodeIdentity, Samples
from jobmeter.model.sample import Sample

_SECTOR = 512
_READ, _WRITE = (("direction", "read"),), (("direction", "write"),)
_COLUMNS: tuple[tuple[str, Labels, int, float], ...] = (
    ("node.disk.read", (), 5, float(_SECTOR)),
    ("node.disk.write", (), 9, float(_SECTOR)),
    ("node.disk.time", (), 12, 1e-3),
    ("node.disk.operations", _READ, 3, 1.0),
    ("node.disk.operations", _WRITE, 7, 1.0),
    ("node.disk.operation.time", _READ, 6, 1e-3),
    ("node.disk.operation.time", _WRITE, 10, 1e-3),
    ("node.disk.queue", (), 11, 1.0),
)


class DiskCollector:
    """Collector of disk traffic."""

    name = "host.disk"
    metrics = tuple(dict.fromkeys(metric for metric, *_ in _COLUMNS))

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", sys_root: str = "/sys") -> None:
        self._place = place
        self._path = f"{proc_root}/diskstats"
        self._sys = sys_root
        self._whole: dict[str, bool] = {}

    def collect(self, now_ms: int) -> Samples:
        """Read /proc/diskstats."""
        text = files.read_required(self._path)
        samples: Samples = []
        for line in text.splitlines():
            words = line.split()
            if len(words) < 14 or not self._is_whole(words[2].decode()):
                continue
            disk = (("disk", words[2].decode()),)
            samples += [
                Sample(self._place.make_node_series(metric, direction + disk), now_ms, int(words[column]) * scale)
                for metric, direction, column, scale in _COLUMNS
            ]
        return samples

    def _is_whole(self, name: str) -> bool:
        if name not in self._whole:
            self._whole[name] = os.path.exists(f"{self._sys}/block/{name.replace('/', '!')}/device")  # noqa: PTH110
        return self._whole[name]
