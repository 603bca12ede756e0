"""Identifies files while they are renamed, copied and truncated."""

import os
import re
import stat
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from jobmeter.collect.syslog.base import Position

_MARK_BYTES = 256
_ROTATED = re.compile(r"[.-]\d[\d.T-]*(?:\.(?:gz|xz|bz2|zst))?|\.(?:old|bak|gz|xz|bz2|zst)")
_COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


@dataclass(frozen=True, slots=True)
class Spot:
    """A position in a file: its inode, the offset, and digests of the bytes at its beginning and before the offset."""

    device: int
    inode: int
    offset: int = 0
    head: int = 0
    tail: int = 0

    def position(self) -> Position:
        """The place as JSON."""
        return asdict(self)

    @property
    def file(self) -> tuple[int, int]:
        """Which file it is."""
        return self.device, self.inode


def spot_of(position: Position) -> Spot:
    """The place that ``Spot.position`` wrote."""
    return Spot(*(int(position[name]) for name in ("device", "inode", "offset", "head", "tail")))


def spot_at(descriptor: int, offset: int) -> Spot:
    """The place in an open file."""
    status = os.fstat(descriptor)
    return Spot(status.st_dev, status.st_ino, offset, *_marks(descriptor, offset))


def is_whole(descriptor: int, spot: Spot) -> bool:
    """Whether an open file is unchanged up to the position: it was not truncated and rewritten."""
    return os.fstat(descriptor).st_size >= spot.offset and _marks(descriptor, spot.offset) == (spot.head, spot.tail)


def open_file(path: Path) -> int | None:
    """A descriptor for reading; None where the path is not there, or is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor


def identity(path: Path) -> tuple[int, int] | None:
    """Which file a path is; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_rotated(path: Path, live: Path) -> bool:
    """Whether a name is that of a live file with what rotation puts behind it."""
    suffix = str(path)[len(str(live)) :]
    return str(path).startswith(str(live)) and _ROTATED.fullmatch(suffix) is not None


def rotated(live: Path) -> list[Path]:
    """The files beside a live one into which it was rotated and that can be read, the oldest first."""
    found = []
    try:
        for entry in os.scandir(live.parent):
            path = live.parent / entry.name
            if entry.name.startswith(live.name) and is_rotated(path, live) and path.suffix not in _COMPRESSED:
                found.append((entry.stat().st_mtime_ns, path))
    except OSError:
        return []
    return [path for _, path in sorted(found)]


def _marks(descriptor: int, offset: int) -> tuple[int, int]:
    length = min(offset, _MARK_BYTES)
    return zlib.crc32(os.pread(descriptor, length, 0)), zlib.crc32(os.pread(descriptor, length, offset - length))
