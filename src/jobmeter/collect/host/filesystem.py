"""Size and files of mounted filesystems, each measured in a thread because it may hang."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.call_thread import CallThread
from jobmeter.collect.host.base import NodeCollector, NodeReading

_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "vfat", "exfat"})
_REMOTE = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "virtiofs"})
_MOST_MOUNTS = 256
_LONGEST_LABEL = 256
_SPACE = ("node.filesystem.size", "node.filesystem.available")
_FILES = ("node.filesystem.files", "node.filesystem.files.free")
_READ_ONLY, _HANGS = "node.filesystem.read.only", "node.filesystem.hangs"


class FilesystemCollector(NodeCollector):
    """Collector of filesystem sizes. ``patience`` is the time limit in seconds for all mounts together."""

    name = "host.filesystem"
    metrics = (*_SPACE, *_FILES, _READ_ONLY, _HANGS)

    def __init__(
        self,
        place: NodeIdentity,
        proc_root: str = "/proc",
        statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
        patience: float = 2.0,
    ) -> None:
        super().__init__(place, proc_root)
        self._paths = (f"{proc_root}/self/mountinfo", f"{proc_root}/1/mountinfo")
        self._statvfs = statvfs
        self._patience = patience
        self._calls: dict[str, CallThread[os.statvfs_result]] = {}

    def _read(self) -> Iterator[NodeReading]:
        """Read the filesystems. A mount that still hangs is not called again."""
        text = files.read_required(*self._paths)
        for path in parse_mount_points(text):
            if path not in self._calls:
                self._calls[path] = CallThread(f"statvfs {path}")
                self._calls[path].begin(partial(self._statvfs, path))
        patience = self._patience / max(len(self._calls), 1)
        for path, call in list(self._calls.items()):
            hangs = not call.wait(patience)
            labels = (("mount", path),)
            yield _HANGS, labels, hangs
            if hangs:
                continue
            del self._calls[path]
            call.close()
            with suppress(OSError):
                for metric, value in _list_sizes(call.get_result()).items():
                    yield metric, labels, value


def _list_sizes(found: os.statvfs_result) -> dict[str, int]:
    """Return the values of a filesystem by metric; empty for one without blocks."""
    if not found.f_blocks:
        return {}
    values = dict(zip(_SPACE, (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize), strict=True))
    if found.f_files:  # btrfs, FAT and most network filesystems do not count them
        values |= zip(_FILES, (found.f_files, found.f_favail), strict=True)
    return {**values, _READ_ONLY: bool(found.f_flag & os.ST_RDONLY)}


def parse_mount_points(mountinfo: bytes) -> list[str]:
    """Return the mount points with data, each filesystem once, at its first mount."""
    return list(map_points_by_device(mountinfo).values())


def map_points_by_device(mountinfo: bytes) -> dict[bytes, str]:
    """Return the mount points by the device number of their filesystem, ``8:1``."""
    points: dict[bytes, str] = {}
    for mount in files.parse_mounts(mountinfo):
        point = mount.point
        if _holds_data(mount.kind, point) and point.isprintable() and len(point) <= _LONGEST_LABEL:
            points.setdefault(mount.device, point)
    return dict(list(points.items())[:_MOST_MOUNTS])


def _holds_data(kind: str, point: str) -> bool:
    if kind == "overlay":
        return point == "/"
    if kind == "tmpfs":
        return point == "/dev/shm"  # noqa: S108
    return kind in _LOCAL or kind in _REMOTE or kind.startswith("fuse.")
