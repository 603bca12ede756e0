"""Lines of a log file across rotations and truncation."""

import os
from pathlib import Path

from jobmeter.collect.syslog.base import (
    LogReading,
    Position,
    Spot,
    SystemLogEntry,
    find_identity,
    find_rotated,
    is_whole,
    read_identity,
    spot_at,
    spot_of,
)
from jobmeter.collect.syslog.lines import LineCutter, LinePiece
from jobmeter.collect.syslog.opening import LogOpener
from jobmeter.collect.syslog.successors import Followed, Successors
from jobmeter.model.line_level import find_level
from jobmeter.model.log import MAX_SYSTEM_NAME
from jobmeter.model.syslog import convert_level, parse_priority

_CHUNK = 256 * 1024
_CHUNKS = 64
"""Most pieces of one reading if none contains the end of a line."""
_QUIET = 4
"""Readings without data after which a rotated file counts as finished."""
_ABSENT = 240
"""Readings without data after which it counts as finished although no file replaced it."""
_GONE = "[jobmeter: lines may be missing here, the file was rotated away before it was read to its end]"


class FileSource:
    """Lines of one path across rotations. Lines have no times.

    A renamed file is read to its end before its replacement. The rest of a copied and truncated file is read from the
    copy. A line without an end is read once its file no longer grows.
    """

    def __init__(self, path: Path, opener: LogOpener, *, from_end: bool = False, since_ns: int = 0) -> None:
        """Read a path from a stored position on, or from its beginning; ``from_end``: from its current end.

        Files rotated before ``since_ns`` are left out.
        """
        self.path = path
        self.key = f"file:{path}"
        self.stream = stream_of(path)
        self._opener = opener
        self._descriptor: int | None = None
        self._spot: Spot | None = None
        self._cutter = LineCutter()
        self._quiet = 0
        self._done: tuple[int, int] | None = None
        self.later = Successors(path, opener, since_ns)
        """Files that follow the current one."""
        if from_end:
            self.later.follow(path, None)
            self.later.skip_to_ends()

    @property
    def files(self) -> set[tuple[int, int]]:
        """Open files."""
        return self.later.files | ({read_identity(self._descriptor)} if self._descriptor is not None else set())

    @property
    def finished(self) -> bool:
        """True if the file is gone, was read to its end, and has no replacement."""
        absent = self._descriptor is None and not self.later and find_identity(self.path) is None
        return absent and self._done is not None

    def read(self, position: Position | None, until: Position | None = None) -> LogReading | None:
        """Return the next lines."""
        if position is None:
            return self._begin_first_file()
        spot = spot_of(position)
        if until is not None:
            return self._read_again(spot, spot_of(until))
        if self._spot != spot and not self._resume(spot):
            return self._start_over("" if self._done == spot.file else _GONE)
        return self._continue_truncated() or self._forward()

    def follow(self, path: Path, at: Spot | None = None, *, is_new: bool = False) -> Followed:
        """Open a file that the path leads to or led to, unless it was read."""
        current = None if self._descriptor is None else read_identity(self._descriptor)
        return self.later.follow(path, current, at, is_new=is_new)

    def release(self, file: tuple[int, int]) -> Spot | None:
        """Release a file that now belongs to another path. Return its read position; None for an unknown file."""
        if self._spot is None or self._descriptor is None or read_identity(self._descriptor) != file:
            return self.later.release(file)
        spot = self._spot
        self._done = file
        self._use(None)
        return spot

    def close(self) -> None:
        """Close all files."""
        self._use(None)
        self.later.close()

    def _begin_first_file(self) -> LogReading | None:
        self.later.follow(self.path, None)
        found = self.later.take()
        if found is None:
            return None
        self._use(found[0])
        return self._make_reading(*found, [])

    def _resume(self, spot: Spot) -> bool:
        """Open the file of a position under its current name."""
        for path in (self.path, *find_rotated(self.path)):
            descriptor = self._opener.open(path) if find_identity(path) == spot.file else None
            if descriptor is not None:
                self._use(descriptor)
                self._spot = spot
                return True
        return False

    def _continue_truncated(self) -> LogReading | None:
        """Continue a truncated file in its copy, or at its beginning; None if it was not truncated."""
        descriptor, spot = self._require_place()
        if is_whole(descriptor, spot):
            return None
        for path in reversed(find_rotated(self.path)):
            copy = self._opener.open(path)
            if copy is None:
                continue
            if read_identity(copy) != spot.file and is_whole(copy, spot):
                self._use(copy)
                return self._make_reading(copy, spot.offset, [])
            os.close(copy)
        self._use(None)
        return self._start_over("")

    def _forward(self) -> LogReading | None:
        descriptor, spot = self._require_place()
        for _ in range(_CHUNKS):
            data = os.pread(descriptor, _CHUNK, spot.offset + self._cutter.pending)
            if not data:
                return self._continue_replaced(descriptor, spot)
            self._quiet = 0
            pieces = self._cutter.feed(data)
            if pieces:
                end = spot.offset + sum(piece.length for piece in pieces)
                return self._make_reading(
                    descriptor, end, _entries(pieces), more=len(data) == _CHUNK or bool(self.later)
                )
        return None

    def _continue_replaced(self, descriptor: int, spot: Spot) -> LogReading | None:
        """Return the next reading at the end of a file; None if the file was not replaced."""
        current = find_identity(self.path)
        if current == spot.file:
            return self._read_late_file(descriptor, spot) if self.later else None
        self._quiet += 1
        if self._quiet < (_QUIET if current or self.later else _ABSENT) and not self.later.is_past:
            return None
        last = self._cutter.finish()
        if last is not None:
            return self._make_reading(descriptor, spot.offset + last.length, _entries([last]))
        self._descriptor = None
        self.later.finish(descriptor, spot)  # frees the disk space of a file without a name
        following = self._start_over("")
        if following is None:
            self._use(None)
            self._done = spot.file
        return following

    def _read_late_file(self, descriptor: int, spot: Spot) -> LogReading | None:
        """Read files that were found after their successor was begun; the successor follows."""
        self._descriptor = None
        self.later.put_back(descriptor, spot.offset)
        return self._start_over("")

    def _start_over(self, note: str) -> LogReading | None:
        """Open the file whose lines come next. ``note`` becomes a line before them."""
        self.later.gather()
        found = self.later.take()
        if found is None:
            return None
        self._use(found[0])
        return self._make_reading(*found, [SystemLogEntry(note, severity=4)] if note else [])

    def _read_again(self, spot: Spot, end: Spot) -> LogReading | None:
        """Return the lines of an earlier reading, between two positions."""
        begin = spot.offset if spot.file == end.file else 0
        if not self._resume(end) or not is_whole(self._require_place()[0], end):
            self._spot = None
            return None
        cutter, pieces, at, (descriptor, _) = LineCutter(), [], begin, self._require_place()
        while at < end.offset:
            data = os.pread(descriptor, min(_CHUNK, end.offset - at), at)
            pieces += cutter.feed(data)
            at += len(data)
        last = cutter.finish()
        self._cutter = LineCutter()
        self._spot = end
        return LogReading(_entries([*pieces, *([last] if last else [])]), end.make_position())

    def _make_reading(
        self, descriptor: int, offset: int, entries: list[SystemLogEntry], *, more: bool = False
    ) -> LogReading:
        self._spot = spot_at(descriptor, offset)
        return LogReading(entries, self._spot.make_position(), more or not entries)

    def _use(self, descriptor: int | None) -> None:
        """Switch to another file, or to none."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._spot = descriptor, None
        self._cutter = LineCutter()
        self._quiet = 0
        if descriptor is not None:
            self.later.release(read_identity(descriptor))
            self.later.since_ns = self.later.since_ns or os.fstat(descriptor).st_mtime_ns

    def _require_place(self) -> tuple[int, Spot]:
        if self._descriptor is None or self._spot is None:
            raise FileNotFoundError(f"{self.path} is not open")
        return self._descriptor, self._spot


def stream_of(path: Path) -> str:
    """Return the stream of the lines of a path; a character that cannot be printed is replaced."""
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in str(path))
    return f"file:{name}"[:MAX_SYSTEM_NAME]


def _entries(pieces: list[LinePiece]) -> list[SystemLogEntry]:
    return [SystemLogEntry(piece.text, severity=_severity(piece.text)) for piece in pieces]


def _severity(text: str) -> int | None:
    """Return the severity of a line: by syslog's ``<PRI>``, else by its level."""
    stated = parse_priority(text)
    if stated is not None:
        return stated[1]
    level = find_level(text)
    return None if level is None else convert_level(level)
