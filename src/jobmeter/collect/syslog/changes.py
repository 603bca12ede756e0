"""Track new log files by the kernel's events: each is opened, whatever its name by then, or counted as lost."""

import errno
import logging
import os
import select
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobmeter.collect.syslog.successors import Followed

if TYPE_CHECKING:
    from jobmeter.collect.syslog.watch import FileWatch

CREATE, MOVED_FROM, MOVED_TO, DELETE = 0x100, 0x40, 0x80, 0x200
"""Kinds of events: a name appears, is moved away, is moved here, disappears."""
MOST_WATCHES = 1_024
_OVERFLOW, _IGNORED, _IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_SELF_GONE = 0x400 | 0x800
_ONLY_DIRECTORIES = 0x01000000
_WATCHED = CREATE | MOVED_FROM | MOVED_TO | DELETE | _SELF_GONE | _ONLY_DIRECTORIES
_HEAD = struct.Struct("iIII")
_BUFFER = 64 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileChange:
    """Event of a name in a directory. ``cookie`` is equal on both sides of a move.

    ``lost``: the kernel dropped events.
    """

    directory: str = ""
    name: str = ""
    kind: int = 0
    cookie: int = 0
    is_directory: bool = False
    lost: bool = False


class Inotify:
    """Watches directories. For one thread. Raises OSError if the kernel refuses."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - loaded where files are watched alone

        library = ctypes.CDLL(None, use_errno=True)

        def checked(result: int) -> int:
            if result < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            return result

        self._checked = checked
        self._library = library
        self._descriptor = checked(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._poll = select.poll()  # select() takes no descriptor above 1,023
        self._poll.register(self._descriptor, select.POLLIN)
        self._directories: dict[int, str] = {}
        self._failed: set[int | None] = set()

    def watch(self, directory: str) -> None:
        """Watch a directory from now on, if possible, including one that replaced another."""
        if len(self._directories) >= MOST_WATCHES and directory not in self._directories.values():
            return self._fail(None, f"more than {MOST_WATCHES} directories have log files")
        try:
            number = self._checked(self._library.inotify_add_watch(self._descriptor, os.fsencode(directory), _WATCHED))
            self._directories[number] = directory
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                self._fail(error.errno, f"{directory} cannot be watched: {error.strerror}")
        return None

    def read(self) -> list[FileChange]:
        """Return the next events; empty without any."""
        try:
            data = os.read(self._descriptor, _BUFFER)
        except BlockingIOError:
            return []
        found, at = [], 0
        while at < len(data):
            number, mask, cookie, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
            if mask & _OVERFLOW:
                found.append(FileChange(lost=True))
            elif mask & _IGNORED:
                self._directories.pop(number, None)
            elif mask & _SELF_GONE:
                self._forget(number)
            elif (directory := self._directories.get(number)) is not None:
                kind = mask & (CREATE | MOVED_FROM | MOVED_TO | DELETE)
                found.append(FileChange(directory, name, kind, cookie, is_directory=bool(mask & _IS_DIRECTORY)))
        return found or self.read()

    def wait(self, seconds: float) -> bool:
        """Wait for an event; True when there is one."""
        return bool(self._poll.poll(seconds * 1_000))

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def _forget(self, number: int) -> None:
        if self._directories.pop(number, None) is not None:
            self._library.inotify_rm_watch(self._descriptor, number)

    def _fail(self, reason: int | None, text: str) -> None:
        if reason not in self._failed:
            self._failed.add(reason)
            _log.warning("%s: others are listed every two seconds", text)


_MOST_NAMES = 10_000
"""Most files that wait to be opened, more are lost; and most remembered names of open files."""
_TRIES = 2
"""Searches for a file that has gone: the event with its new name may be on its way."""


@dataclass(slots=True)
class _File:
    """File: the live path of its lines, and the one for which it is already open, if any."""

    live: Path
    reader: Path | None = None
    tries: int = 0

    @property
    def is_new(self) -> bool:
        """True until it was opened."""
        return self.reader is None


@dataclass(slots=True)
class _Move:
    """File that was moved away, and whose new name is not seen yet."""

    file: _File | None
    tries: int = 0


class Changes:
    """Applies the kernel's events: follows files from name to name, and opens new ones.

    A new file that was never opened is lost. Opened files are compared with new ones by number, not by name: when an
    event is read, its name may already lead to another file.
    """

    def __init__(self, files: "FileWatch") -> None:
        self._files = files
        self._due: dict[Path, _File] = {}
        self._aside: dict[Path, _File] = {}
        self._moves: dict[int, _Move] = {}
        self._born: Counter[Path] = Counter()
        self._quiet = True

    def expects(self, path: Path) -> bool:
        """True for a path at which a new file waits to be opened."""
        return path in self._due

    def apply(self, changes: Iterable[FileChange]) -> None:
        """Apply events, in order."""
        self._quiet = False
        for change in changes:
            if change.lost or change.is_directory:
                self._files.request_scan()
                continue
            path = Path(change.directory, change.name)
            if change.kind == CREATE:
                self._appear(path)
            elif change.kind == MOVED_FROM:
                self._moves[change.cookie] = _Move(self._leave(path))
            elif change.kind == MOVED_TO:
                move = self._moves.pop(change.cookie, None)
                self._arrive(path, move.file if move else None)
            elif change.kind == DELETE:
                self._drop(path)

    def open(self) -> dict[Path, int]:
        """Open the new files, and return how many were lost of each live path."""
        # Files that are open for another path are handed over first: a search for rotated files would open them again.
        for path, file in sorted(self._due.items(), key=lambda item: item[1].reader in {None, item[1].live}):
            followed = self._files.follow(file.live, path, file.reader, is_new=file.is_new)
            if followed is Followed.FULL:
                continue
            if followed is Followed.ABSENT and file.tries < _TRIES:
                file.tries += 1
                continue
            if file.is_new and followed is Followed.REFUSED:
                self._born[file.live] -= 1
            del self._due[path]
            file.reader = file.live
            if self._files.find_live_path(path) != file.live:
                self._aside[path] = file
                if len(self._aside) > _MOST_NAMES:
                    del self._aside[next(iter(self._aside))]
        for cookie, move in list(self._moves.items()):
            move.tries += 1
            if move.tries > _TRIES:  # it was moved to where no event is seen
                del self._moves[cookie]
        return self._list_missing()

    def forget(self, live: Path) -> None:
        """Drop a live path whose files were read and are gone."""
        self._born.pop(live, None)

    def _appear(self, path: Path) -> None:
        """Handle a new file at a path: it is opened if the path is live."""
        self._drop(path)
        if self._files.find_live_path(path) == path:
            self._born[path] += 1
            self._open_later(path, _File(path))

    def _leave(self, path: Path) -> _File | None:
        """Return the file that a name had."""
        file = self._drop(path)
        live = self._files.find_live_path(path)
        return file or (_File(live, live) if live is not None else None)

    def _arrive(self, path: Path, file: _File | None) -> None:
        """Handle a file at a path that had another name, or an unwatched one."""
        if file is None:
            self._appear(path)
            return
        if self._files.find_live_path(path) == path != file.live:
            if file.is_new:  # its lines belong to another path now
                self._born[file.live] -= 1
                self._born[path] += 1
            file.live = path
        self._drop(path)  # a file that was moved over is gone
        self._open_later(path, file)

    def _open_later(self, path: Path, file: _File) -> None:
        file.tries = 0
        if len(self._due) < _MOST_NAMES:
            self._due[path] = file

    def _drop(self, path: Path) -> _File | None:
        """Drop and return the file of a name."""
        aside = self._aside.pop(path, None)
        return self._due.pop(path, aside)

    def _list_missing(self) -> dict[Path, int]:
        waiting = {file.live for file in self._due.values()}
        waiting |= {move.file.live for move in self._moves.values() if move.file is not None}
        found: dict[Path, int] = {}
        for live, born in list(self._born.items()):
            missing = born - self._files.opened(live)
            if missing > 0 and live not in waiting:
                found[live] = missing
                del self._born[live]
                self._files.balance(live)
        if self._quiet and not waiting:
            self._born.clear()
            self._files.balance()
        self._quiet = True
        return found
