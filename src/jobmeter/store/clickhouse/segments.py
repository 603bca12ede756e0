"""The journal's files: written at one end, synced, and deleted as a whole.

``NUMBER-SALT.journal`` is a segment. ``NUMBER-SALT.end`` has its acknowledged end: it is written after each sync and
never synced itself, so that it survives the death of the process at almost no cost. A segment without a salt in its
name was written by an earlier program. ``*.damaged`` is a copy of a segment that lost samples; its name has their
number.
"""

import logging
import os
import re
import secrets
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from jobmeter.files import flush_path
from jobmeter.store.clickhouse import record_before
from jobmeter.store.clickhouse.failures import make_unavailable
from jobmeter.store.clickhouse.record import Piece, RecordPosition, RecordWriter
from jobmeter.store.clickhouse.rows import SampleRuns
from jobmeter.store.clickhouse.segment_content import Loss, SegmentContent, scan

_log = logging.getLogger(__name__)
_LARGE = 2**18
_NAME = re.compile(r"(?P<number>\d{16})(-(?P<salt>[0-9a-f]{16}))?(\.(?P<kind>lost|at-most)-(?P<rows>\d+))?\.\w+")
_JOURNAL, _END, _DAMAGED = ".journal", ".end", ".damaged"
_POSITION = struct.Struct("<QQQ")
_CHECK = struct.Struct("<I")


class Segments:
    """Files of one folder, numbered in the order in which they were started. For one thread at a time.

    Raises UnavailableError if the folder cannot be created, read or written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = self._end_file = -1
        self._salt = 0
        self.writer = RecordWriter()
        self._sealed = 0  # bytes of all segments at the last seal
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            flush_path(folder.parent)
            paths = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
        except OSError as error:
            raise make_unavailable(str(error), f"open {folder}") from error
        self._left = [path for path in paths if path.suffix == _JOURNAL]
        # The end of a segment whose file is missing: it was not deleted in the ordinary way.
        gone = [path for path in paths if path.suffix == _END and not path.with_suffix(_JOURNAL).exists()]
        self._left = sorted(self._left + [path.with_suffix(_JOURNAL) for path in gone])
        self._full = list(self._left)
        self._number = int(paths[-1].name[:16]) if paths else 0

    @property
    def left(self) -> list[Path]:
        """The segments that an earlier process left, oldest first."""
        return self._left

    def read(self, path: Path) -> SegmentContent:
        """Return the content of a left segment. Log an interrupted write, and damage that lost nothing."""
        salt = _salt_of(path)
        try:
            segment = path.read_bytes() if path.exists() else b""
            if salt is None:
                found = record_before.scan(segment)
            else:
                found = scan(segment, salt, _read_acknowledged(path.with_suffix(_END), salt))
        except OSError as error:
            raise make_unavailable(str(error), f"read {path}") from error
        if found.unfinished:
            text = "the last %d bytes of %s are no whole record: a write was cut off before it was acknowledged"
            _log.warning(text, found.unfinished, path)
        if found.damaged and not found.lost.rows:
            _log.warning("%d bytes in %s are damaged; every sample in it was recovered", found.damaged, path)
        return found

    def quarantine(self, path: Path, lost: Loss) -> None:
        """Copy a segment that lost samples, under a name with their number. The copy is never deleted."""
        copy = path.with_suffix(f".{'at-most' if lost.at_most else 'lost'}-{lost.rows}{_DAMAGED}")
        try:
            if path.exists():
                shutil.copyfile(path, copy)
            else:
                copy.touch()
        except OSError as error:
            raise make_unavailable(str(error), f"copy {path}") from error
        _log.error(
            "%s%d samples that were acknowledged are lost: %s is damaged, and is retained as %s",
            "at most " if lost.at_most else "",
            lost.rows,
            path,
            copy.name,
        )

    def append(self, group: Sequence[SampleRuns]) -> None:
        """Write a record; on return it is on disk. After a failure the record is removed as far as possible.

        Raises OSError. A file whose write or sync failed is not written again: the system's later answers about it are
        not reliable.
        """
        if self._file < 0:
            self._begin()
        try:
            record = self.writer.encode(group)
            for part in _join_pieces(record):
                _write(self._file, part)
            os.fdatasync(self._file)
        except BaseException:
            # After any failure: the next record may not name a list that only this one would have defined.
            self._cut()
            raise
        at, rows = self.writer.position
        self.writer.confirm(RecordPosition(at + sum(map(len, record)), rows + sum(map(len, group))))
        self._note_end()

    def seal(self) -> list[Path]:
        """End the current file. Return all ended files that still exist, oldest first."""
        self._end()
        self._sealed = self.writer.total
        return list(self._full)

    def note_flushed(self) -> None:
        """Note that the engine has the rows from before the last ``seal``. May be called from any thread."""
        self.writer.note_flushed(self._sealed)

    def remove(self, paths: Sequence[Path]) -> None:
        """Delete ended files; on return the deletion is durable. Raises OSError."""
        for path in paths:
            # In this order: an end without a segment means that the segment was lost.
            path.with_suffix(_END).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        flush_path(self._folder)
        for path in set(paths).intersection(self._full):
            self._full.remove(path)  # in place: another thread may start a segment meanwhile

    def count_bytes(self) -> int:
        """Return the size of all files. May be called from any thread."""
        size = 0
        for path in list(self._full):
            with suppress(OSError):  # deleted meanwhile
                size += path.stat().st_size
        return size

    def close(self) -> None:
        """Close the current file."""
        self._end()

    def _begin(self) -> None:
        self._number += 1
        self._salt = secrets.randbits(64)
        path = self._folder / f"{self._number:016d}-{self._salt:016x}{_JOURNAL}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(path, flags | os.O_APPEND, 0o600)
        self.writer.begin(self._salt)
        self._full.append(path)
        try:
            self._end_file = os.open(path.with_suffix(_END), flags, 0o600)
            self._note_end()
            flush_path(self._folder)
        except OSError:
            self._cut()
            raise

    def _note_end(self) -> None:
        """Write the acknowledged end of the segment."""
        content = _POSITION.pack(self._salt, *self.writer.position)
        # Without it a reader has only an upper bound of the lost rows.
        with suppress(OSError):
            os.pwrite(self._end_file, content + _CHECK.pack(crc32(content)), 0)

    def _end(self) -> None:
        for name in ("_file", "_end_file"):
            file = getattr(self, name)
            setattr(self, name, -1)  # closed, even if closing it fails
            if file >= 0:
                os.close(file)

    def _cut(self) -> None:
        """Cut the rest of a failed write off the end, and use another file from now on."""
        path, size = self._full[-1], self.writer.position.at
        try:
            if size:
                os.ftruncate(self._file, size)
            else:
                path.with_suffix(_END).unlink(missing_ok=True)
                path.unlink()
                self._full.pop()
        except OSError as error:
            _log.warning("the rest of a failed write in %s could not be removed: %s", path, error.strerror)
        self._end()


def parse_lost_rows(name: str) -> Loss | None:
    """Return the loss in the name of a damaged segment's copy; None for a name without one."""
    found = _NAME.fullmatch(name)
    return Loss(int(found["rows"]), found["kind"] == "at-most") if found and found["rows"] else None


def _salt_of(path: Path) -> int | None:
    found = _NAME.fullmatch(path.name)
    return int(found["salt"], 16) if found and found["salt"] else None


def _read_acknowledged(path: Path, salt: int) -> RecordPosition | None:
    """Return the acknowledged end of a segment, as far as it is known."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) != _POSITION.size + _CHECK.size or _CHECK.unpack_from(content, _POSITION.size)[0] != crc32(
        content[: _POSITION.size]
    ):
        return None
    written_salt, *position = _POSITION.unpack_from(content)
    return RecordPosition(*position) if written_salt == salt else None


def _join_pieces(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the same bytes in fewer pieces: copying small pieces costs less than writing each."""
    small: list[Piece] = []
    for piece in pieces:
        if len(piece) < _LARGE:
            small.append(piece)
        else:
            yield b"".join(small)
            yield piece
            small = []
    yield b"".join(small)


def _write(file: int, part: Piece) -> None:
    left = memoryview(part)
    while left:
        left = left[os.write(file, left) :]
