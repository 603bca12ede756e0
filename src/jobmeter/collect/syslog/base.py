"""Contract of sources of log lines, and the identity of files that are renamed or truncated."""

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

Position = dict[str, Any]
"""Position between two lines of a source, as JSON of the source."""


@dataclass(frozen=True, slots=True)
class SystemLogEntry:
    """Line. ``time_ns`` is absent if the source has no times; ``pid`` is the process that it is about."""

    text: str
    time_ns: int | None = None
    severity: int | None = None
    facility: str = "user"
    tag: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class LogReading:
    """Consecutive lines, and the position after them. ``more``: further lines already wait."""

    entries: list[SystemLogEntry]
    end: Position
    more: bool = False


class SystemLogSource(Protocol):
    """Source of lines in order. For one thread. A failure raises OSError, and the call is repeated."""

    @property
    def key(self) -> str:
        """Key of its stored position, the same after a restart."""
        ...

    @property
    def stream(self) -> str:
        """Stream of its lines."""
        ...

    def read(self, position: Position | None, until: Position | None = None) -> LogReading | None:
        """Return a limited number of lines after a position (None: the first reading); None without lines.

        ``until`` is the end of an earlier reading: exactly its lines are returned, as far as they still exist.
        Otherwise ``position`` is the end of the previous reading, or the stored position.
        """
        ...

    def close(self) -> None:
        """Release open files and processes."""
        ...


_MARK_BYTES = 256
_ROTATED = re.compile(r"[.-]\d[\d.T-]*(?:\.(?:gz|xz|bz2|zst))?|\.(?:old|bak|gz|xz|bz2|zst)")
_COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


@dataclass(frozen=True, slots=True)
class Spot:
    """Position in a file: its inode, the offset, and digests of the bytes at its beginning and before the offset."""

    device: int
    inode: int
    offset: int = 0
    head: int = 0
    tail: int = 0

    def make_position(self) -> Position:
        """Return the position as JSON."""
        return asdict(self)

    @property
    def file(self) -> tuple[int, int]:
        """Identity of the file."""
        return self.device, self.inode


def spot_of(position: Position) -> Spot:
    """Read a position written by ``Spot.make_position``."""
    return Spot(*(int(position[name]) for name in ("device", "inode", "offset", "head", "tail")))


def spot_at(descriptor: int, offset: int) -> Spot:
    """Return a position in an open file."""
    status = os.fstat(descriptor)
    return Spot(status.st_dev, status.st_ino, offset, *_marks(descriptor, offset))


def is_whole(descriptor: int, spot: Spot) -> bool:
    """Return True if an open file is unchanged up to the position: it was not truncated or rewritten."""
    return os.fstat(descriptor).st_size >= spot.offset and _marks(descriptor, spot.offset) == (spot.head, spot.tail)


def find_identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read_identity(descriptor: int) -> tuple[int, int]:
    """Return the identity of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def list_live_names(name: str) -> Iterator[str]:
    """Yield the names that a rotated file may have had: ``app.log`` for ``app.log.1`` and ``app.log-20261122.gz``."""
    for at, letter in enumerate(name):
        if at and letter in ".-" and _ROTATED.fullmatch(name, at):
            yield name[:at]


def is_readable(name: str) -> bool:
    """Return False for the name of a compressed file."""
    return not name.endswith(_COMPRESSED)


def find_rotated(live: Path) -> list[Path]:
    """Return the readable files into which a live file was rotated, oldest first."""
    found = []
    try:
        with os.scandir(live.parent) as entries:
            for entry in entries:
                if is_readable(entry.name) and live.name in list_live_names(entry.name):
                    with suppress(FileNotFoundError):
                        found.append((entry.stat(follow_symlinks=False).st_mtime_ns, live.parent / entry.name))
    except OSError:
        return []
    return [path for _, path in sorted(found)]


def _marks(descriptor: int, offset: int) -> tuple[int, int]:
    length = min(offset, _MARK_BYTES)
    return zlib.crc32(os.pread(descriptor, length, 0)), zlib.crc32(os.pread(descriptor, length, offset - length))
