"""Bytes, operations and times of whole disks: /proc/diskstats.

Partitions, and devices built on others (device mapper, RAID, loop), would repeat their bytes. So only disks with a
device in /sys/block are read.
"""

import os
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.base import Labels, NodeIdentity
from jobmeter.collect.host.base import NodeCollector, NodeReading

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


class DiskCollector(NodeCollector):
    """Collector of disk traffic."""

    name = "host.disk"
    metrics = tuple(dict.fromkeys(metric for metric, *_ in _COLUMNS))

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", sys_root: str = "/sys") -> None:
        super().__init__(place, proc_root, sys_root)
        self._whole: dict[str, bool] = {}

    def _read(self) -> Iterator[NodeReading]:
        for line in files.read_required(f"{self._proc}/diskstats").splitlines():
            words = line.split()
            if len(words) < 14 or not self._is_whole(words[2].decode()):
                continue
            disk = (("disk", words[2].decode()),)
            for metric, direction, column, scale in _COLUMNS:
                yield metric, direction + disk, int(words[column]) * scale

    def _is_whole(self, name: str) -> bool:
        if name not in self._whole:
            self._whole[name] = os.path.exists(f"{self._sys}/block/{name.replace('/', '!')}/device")  # noqa: PTH110
        return self._whole[name]
