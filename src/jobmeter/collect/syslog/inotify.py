"""Kernel events of directories: names that appear, change and disappear (inotify(7))."""

import errno
import logging
import os
import select
import struct
from dataclasses import dataclass

CREATE, MOVED_FROM, MOVED_TO, DELETE = 0x100, 0x40, 0x80, 0x200
"""Kinds of events: a name appears, is moved away, is moved here, or disappears."""
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
    """Event of a name in a directory. A move has one ``cookie`` on both sides. ``lost``: the kernel dropped events."""

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
        """Watch a directory from now on, if possible, also one that replaced another."""
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
        """Wait for an event. True if there is one."""
        return bool(self._poll.poll(seconds * 1_000))

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)

    def _forget(self, number: int) -> None:
        if self._directories.pop(number, None) is not None:
            self._library.inotify_rm_watch(self._descriptor, number)

    def _fail(self, reason: int | None, text: str) -> None:
        if reason not in self._failed:
            self._failed.add(reason)
            _log.warning("%s: others are listed every two seconds", text)
