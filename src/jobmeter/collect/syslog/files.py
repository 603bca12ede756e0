"""A log file, through rotation by renaming, by copying and truncating, and through truncation."""

import os
from pathlib import Path

from jobmeter.collect.syslog.base import Entry, Position, Reading
from jobmeter.collect.syslog.lines import LineCutter, Piece
from jobmeter.collect.syslog.rotation import Spot, identity, is_whole, open_file, rotated, spot_at, spot_of
from jobmeter.model.line_level import level_in
from jobmeter.model.syslog import priority_of, severity_of_level

_CHUNK = 256 * 1024
_CHUNKS = 64
"""Pieces that are read together where they have no end of a line."""
_QUIET = 4
"""Readings without a byte after which a file that was rotated away is taken for finished."""
_ABSENT = 240
"""The same where none took its place."""
_GONE = "[jobmeter: lines may be missing here, the file was rotated away before it was read to its end]"


class FileSource:
    """The lines of one path across rotations.

    A file that was renamed is read to its end before the one that took its place. Of one that was copied and truncated
    the rest is read from the copy. A line without an end is read only when its file will not grow. Lines have no times.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self.key = f"file:{path}"
        self.stream = self.key[:256]
        self._path = path
        self._from_end = from_end
        self._descriptor: int | None = None
        self._spot: Spot | None = None
        self._cutter = LineCutter()
        self._quiet = 0
        self._done: tuple[int, int] | None = None

    @property
    def finished(self) -> bool:
        """Whether the file is gone, was read to its end, and none took its place."""
        return self._done is not None and self._descriptor is None and identity(self._path) is None

    def read(self, position: Position | None, until: Position | None = None) -> Reading | None:
        """See ``Source.read``."""
        if position is None:
            return self._first()
        spot = spot_of(position)
        if until is not None:
            return self._again(spot, spot_of(until))
        if self._spot != spot and not self._resume(spot):
            return self._start_over("" if self._done == spot.file else _GONE)
        return self._truncated() or self._forward()

    def close(self) -> None:
        """See ``Source.close``."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._spot = None, None

    def _first(self) -> Reading | None:
        if not self._open(self._path):
            return None
        descriptor = self._opened()
        offset = os.fstat(descriptor).st_size if self._from_end else 0
        return self._at(descriptor, offset, [])

    def _resume(self, spot: Spot) -> bool:
        """Open the file of a position under its current name."""
        for path in (self._path, *rotated(self._path)):
            if identity(path) == spot.file and self._open(path):
                self._spot = spot
                return True
        return False

    def _truncated(self) -> Reading | None:
        """Where the file was truncated: continue in the copy that was made before, or at its beginning."""
        descriptor, spot = self._opened(), self._place()
        if is_whole(descriptor, spot):
            return None
        for path in reversed(rotated(self._path)):
            copy = open_file(path)
            if copy is None:
                continue
            if identity(path) != spot.file and is_whole(copy, spot):
                self._use(copy)
                return self._at(copy, spot.offset, [])
            os.close(copy)
        return self._start_over("")

    def _forward(self) -> Reading | None:
        descriptor, spot = self._opened(), self._place()
        for _ in range(_CHUNKS):
            data = os.pread(descriptor, _CHUNK, spot.offset + self._cutter.pending)
            if not data:
                return self._ended(descriptor, spot)
            self._quiet = 0
            pieces = self._cutter.feed(data)
            if pieces:
                end = spot.offset + sum(piece.length for piece in pieces)
                return self._at(descriptor, end, _entries(pieces), more=len(data) == _CHUNK)
        return None

    def _ended(self, descriptor: int, spot: Spot) -> Reading | None:
        """The next reading at the end of a file: None, unless another one took its place."""
        current = identity(self._path)
        if current == spot.file:
            return None
        self._quiet += 1
        if self._quiet < (_QUIET if current else _ABSENT):
            return None
        last = self._cutter.finish()
        if last is not None:
            return self._at(descriptor, spot.offset + last.length, _entries([last]))
        if current is None:
            self.close()  # frees the disk space
            self._done = spot.file
            return None
        return self._go_on(descriptor)

    def _go_on(self, descriptor: int) -> Reading | None:
        """Open the file that follows a finished one."""
        finished = os.fstat(descriptor)
        for path in rotated(self._path):
            other = identity(path)
            if (
                other not in {None, (finished.st_dev, finished.st_ino)}
                and path.stat().st_mtime_ns > finished.st_mtime_ns
            ):
                return self._at(self._opened(), 0, []) if self._open(path) else None
        return self._start_over("")

    def _start_over(self, note: str) -> Reading | None:
        """Open the path's current file from its beginning."""
        if not self._open(self._path):
            return None
        return self._at(self._opened(), 0, [Entry(note, severity=4)] if note else [])

    def _again(self, spot: Spot, end: Spot) -> Reading | None:
        """The lines of an earlier reading, between two positions."""
        begin = spot.offset if spot.file == end.file else 0
        if not self._resume(end) or not is_whole(self._opened(), end):
            self._spot = None
            return None
        cutter, pieces, at, descriptor = LineCutter(), [], begin, self._opened()
        while at < end.offset:
            data = os.pread(descriptor, min(_CHUNK, end.offset - at), at)
            pieces += cutter.feed(data)
            at += len(data)
        last = cutter.finish()
        self._cutter = LineCutter()
        self._spot = end
        return Reading(_entries([*pieces, *([last] if last else [])]), end.position())

    def _at(self, descriptor: int, offset: int, entries: list[Entry], *, more: bool = False) -> Reading:
        self._spot = spot_at(descriptor, offset)
        return Reading(entries, self._spot.position(), more or not entries)

    def _open(self, path: Path) -> bool:
        descriptor = open_file(path)
        if descriptor is None:
            return False
        self._use(descriptor)
        return True

    def _use(self, descriptor: int) -> None:
        self.close()
        self._descriptor = descriptor
        self._cutter = LineCutter()
        self._quiet = 0

    def _opened(self) -> int:
        if self._descriptor is None:
            raise FileNotFoundError(f"{self._path} is not open")
        return self._descriptor

    def _place(self) -> Spot:
        if self._spot is None:
            raise FileNotFoundError(f"{self._path} has no place")
        return self._spot


def _entries(pieces: list[Piece]) -> list[Entry]:
    return [Entry(piece.text, severity=_severity(piece.text)) for piece in pieces]


def _severity(text: str) -> int | None:
    """Return the severity that a line states: by syslog's ``<PRI>``, else by its level."""
    stated = priority_of(text)
    if stated is not None:
        return stated[1]
    level = level_in(text)
    return None if level is None else severity_of_level(level)
