"""Files of processes that every scan reads. They stay open, and an unchanged text is not parsed again."""

import os
import resource
from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

_MOST_BYTES = 4_096
"""Most bytes of one reading. These files are less than half as long."""
_SHARE = 4
"""Divisor of the permitted descriptors: the share of the files of one name."""


class _OpenFile(NamedTuple, Generic[T]):
    descriptor: int
    text: bytes
    value: T


class OpenFiles(Generic[T]):
    """Files of one name of many processes. A reading is one system call instead of four. For one thread.

    An open file belongs to its process, even after the number of the process is used again. Beyond a quarter of the
    permitted descriptors, each reading opens and closes its file.
    """

    def __init__(self, proc_root: str, name: str, parse: Callable[[int, bytes], T | None]) -> None:
        """``parse`` returns the content of a process's file; None for an invalid text."""
        self._proc = proc_root
        self._name = name
        self._parse = parse
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE
        self._files: dict[int, _OpenFile[T]] = {}

    def __del__(self) -> None:
        """Close all files."""
        self.close_others(())

    def read(self, pid: int) -> T | None:
        """Return the content of the process's file; None if it is missing, not readable or invalid."""
        before = self._files.get(pid)
        if before is not None:
            text = _text(before.descriptor)
            if text == before.text:
                return before.value
            value = self._parse(pid, text) if text else None
            if value is not None:
                self._files[pid] = before._replace(text=text, value=value)
                return value
            self._close(pid)
        return self._open(pid)

    def close_others(self, pids: Collection[int]) -> None:
        """Close the files of all other processes."""
        for pid in self._files.keys() - pids:
            self._close(pid)

    def _open(self, pid: int) -> T | None:
        try:
            descriptor = os.open(f"{self._proc}/{pid}/{self._name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        text = _text(descriptor)
        value = self._parse(pid, text) if text else None
        if value is None or len(self._files) >= self._most:
            os.close(descriptor)
        else:
            self._files[pid] = _OpenFile(descriptor, text, value)
        return value

    def _close(self, pid: int) -> None:
        os.close(self._files.pop(pid).descriptor)


def _text(descriptor: int) -> bytes:
    """Read a file from its start; empty if the process has ended."""
    try:
        return os.pread(descriptor, _MOST_BYTES, 0)
    except OSError:
        return b""
