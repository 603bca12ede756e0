"""Files that follow the current file of a path. They are opened as soon as they appear, whatever their names become."""

import os
from collections import deque
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from jobmeter.collect.syslog.base import Spot, find_identity, find_rotated, is_whole, read_identity, spot_at
from jobmeter.collect.syslog.opening import LogOpener

MOST_WAITING, MOST_WAITING_IN_ALL = 16, 1_500
"""Most open files that wait, of one path and of all paths. Further files are opened later."""
_REMEMBERED = 256
"""Finished files that are recognized. Many may have one time."""


class Followed(Enum):
    """Outcome of opening a file."""

    OPENED = "opened"
    READ = "read"
    """It is already open, was read, or belongs to the past."""
    FULL = "full"
    """Too many wait: it is to be opened later."""
    REFUSED = "refused"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class _Waiting:
    descriptor: int
    offset: int


class Successors:
    """Unread files that a path has led to. For one thread.

    Rotated files last written before ``since_ns`` are left out; it grows with the files that are read. ``opened``
    counts the opened files, except those that were open for another path.
    """

    def __init__(self, path: Path, opener: LogOpener, since_ns: int = 0) -> None:
        self.since_ns = since_ns
        self.opened = 0
        self._path = path
        self._opener = opener
        self._waiting: list[_Waiting] = []
        self._finished: deque[Spot] = deque(maxlen=_REMEMBERED)

    def __bool__(self) -> bool:
        """Return True while a file waits."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """True while no further file may wait."""
        return len(self._waiting) >= MOST_WAITING or self._opener.waiting >= MOST_WAITING_IN_ALL

    @property
    def is_past(self) -> bool:
        """True if a file waits that the path no longer leads to. Then earlier files are no longer written."""
        live = find_identity(self._path)
        return any(read_identity(one.descriptor) != live for one in self._waiting)

    @property
    def files(self) -> set[tuple[int, int]]:
        """Waiting files."""
        return {read_identity(one.descriptor) for one in self._waiting}

    def gather(self) -> None:
        """Open the path's file, and those into which it was rotated.

        The path comes first: a file that is rotated meanwhile is then found under its other name.
        """
        self.follow(self._path, None)
        for path in find_rotated(self._path):
            self.follow(path, None)

    def follow(
        self, path: Path, current: tuple[int, int] | None, at: Spot | None = None, *, is_new: bool = False
    ) -> Followed:
        """Open a file that the path leads to or led to, unless it was read.

        ``at``: it was read up to there for another path. ``is_new``: it is current, whatever its time.
        """
        if self.is_full:
            return Followed.FULL
        descriptor = self._opener.open(path)
        if descriptor is None:
            return Followed.REFUSED if os.path.lexists(path) else Followed.ABSENT
        file = read_identity(descriptor)
        is_open = file == current or file in self.files
        offset = None if is_open else self._find_offset(descriptor, is_new=is_new or path == self._path)
        if offset is None:
            os.close(descriptor)
            return Followed.READ
        if at is not None and at.file == file and is_whole(descriptor, at):
            offset = at.offset
        self.put_back(descriptor, offset)
        self.opened += at is None
        return Followed.OPENED

    def skip_to_ends(self) -> None:
        """Skip the current content of the waiting files."""
        self._waiting = [_Waiting(one.descriptor, os.fstat(one.descriptor).st_size) for one in self._waiting]

    def put_back(self, descriptor: int, offset: int) -> None:
        """Add an open file to the waiting ones."""
        self._waiting.append(_Waiting(descriptor, offset))
        self._opener.waiting += 1

    def finish(self, descriptor: int, spot: Spot) -> None:
        """Remember where the lines of a file ended, and close it."""
        if (before := self._find_end(spot.file)) is not None:
            self._finished.remove(before)
        self._finished.append(spot)
        self.since_ns = max(self.since_ns, os.fstat(descriptor).st_mtime_ns)
        os.close(descriptor)

    def take(self) -> tuple[int, int] | None:
        """Return the descriptor and the offset of the file whose lines come next; None without one.

        The file last written first comes first, the path's current file last.
        """
        if not self._waiting:
            return None
        live = find_identity(self._path)

        def order(one: _Waiting) -> tuple[bool, int]:
            return read_identity(one.descriptor) == live, os.fstat(one.descriptor).st_mtime_ns

        first = min(self._waiting, key=order)
        self._remove(first)
        return first.descriptor, first.offset

    def release(self, file: tuple[int, int]) -> Spot | None:
        """Release a file. Return its read position; None for an unknown file."""
        for one in self._waiting:
            if read_identity(one.descriptor) == file:
                self._remove(one)
                spot = spot_at(one.descriptor, one.offset)
                os.close(one.descriptor)
                return spot
        return self._find_end(file)

    def close(self) -> None:
        """Close all files."""
        for one in list(self._waiting):
            self._remove(one)
            os.close(one.descriptor)

    def _remove(self, one: _Waiting) -> None:
        self._waiting.remove(one)
        self._opener.waiting -= 1

    def _find_offset(self, descriptor: int, *, is_new: bool) -> int | None:
        """Return the offset to read a file from; None for a finished or an earlier file."""
        status = os.fstat(descriptor)
        if not is_new and status.st_mtime_ns < self.since_ns:
            return None
        spot = self._find_end((status.st_dev, status.st_ino))
        if spot is None or not is_whole(descriptor, spot):  # a new file may have the number of an old one
            return 0
        return spot.offset if status.st_size > spot.offset else None

    def _find_end(self, file: tuple[int, int]) -> Spot | None:
        return next((spot for spot in reversed(self._finished) if spot.file == file), None)
