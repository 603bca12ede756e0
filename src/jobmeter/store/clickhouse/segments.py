"""The journal's files: written at one end, synced, and taken away as wholes."""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jobmeter.store.clickhouse.failures import unavailable
from jobmeter.store.clickhouse.record import Piece, SeriesListTable, encode, scan
from jobmeter.store.clickhouse.rows import Rows

_log = logging.getLogger(__name__)
_LARGE = 2**18
_NAME = re.compile(r"(\d{16})\.(journal|damaged)")


class Segments:
    """Files of one folder, numbered in the order in which they were begun. One thread at a time.

    Raises UnavailableError where the folder cannot be made, read or written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        self._size = 0
        self._lists = SeriesListTable()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync(folder.parent)
            found_paths = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
        except OSError as error:
            raise unavailable(str(error), f"open {folder}") from error
        self._left = [path for path in found_paths if path.suffix == ".journal"]
        self._full = list(self._left)
        self._number = int(found_paths[-1].stem) if found_paths else 0

    @property
    def left(self) -> list[Path]:
        """The segments that were there already, oldest first."""
        return self._left

    def recovered(self, path: Path) -> list[Rows]:
        """The rows of such a segment, in order. A damaged one is copied first; the copy is never deleted."""
        try:
            content = path.read_bytes()
            found = scan(content)
            if found.damaged:
                path.with_suffix(".damaged").write_bytes(content)
        except OSError as error:
            raise unavailable(str(error), f"read {path}") from error
        if found.damaged:
            _log.error(
                "%d bytes in %s are damaged: samples that were acknowledged may be lost, the file is retained",
                found.damaged,
                path.with_suffix(".damaged"),
            )
        if found.torn:
            _log.warning("%d bytes at the end of %s are no whole record: a write was cut off", found.torn, path)
        return found.groups

    def append(self, group: Sequence[Rows]) -> None:
        """Write a record; on return it is on disk. When it fails nothing of the record is left, as far as possible.

        Raises OSError. A file on which a write or a sync failed is not written again: what the system says of it
        afterwards is not to be relied on.
        """
        if self._file < 0:
            self._begin()
        try:
            record = encode(group, self._lists, self._size)
            for part in _joined(record):
                _write(self._file, part)
            os.fdatasync(self._file)
        except BaseException:
            # After any failure: the next record may not name a list that only this one would have defined.
            self._cut()
            raise
        self._size += sum(map(len, record))

    def seal(self) -> list[Path]:
        """End the file that is being written. Gives all that are ended and still there, oldest first."""
        self._end()
        return list(self._full)

    def remove(self, paths: Sequence[Path]) -> None:
        """Take ended files away; on return they stay away whatever happens. Raises OSError."""
        for path in paths:
            path.unlink(missing_ok=True)
        _sync(self._folder)
        gone = set(paths)
        self._full = [path for path in self._full if path not in gone]

    def close(self) -> None:
        """Let go of the file that is being written."""
        self._end()

    def _begin(self) -> None:
        self._number += 1
        path = self._folder / f"{self._number:016d}.journal"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0
        self._lists = SeriesListTable()
        self._full.append(path)
        try:
            _sync(self._folder)
        except OSError:
            self._cut()
            raise

    def _end(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1  # closed, even where closing it fails
            self._lists = SeriesListTable()
            os.close(file)

    def _cut(self) -> None:
        """Take what a failed write left behind off the end, and write to another file from now on."""
        path = self._full[-1]
        try:
            if self._size:
                os.ftruncate(self._file, self._size)
            else:
                path.unlink()
                self._full.pop()
        except OSError as error:
            _log.warning("what a failed write left in %s could not be taken away: %s", path, error.strerror)
        self._end()


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same bytes in fewer pieces: small ones are copied, which costs less than to write them singly."""
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


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
