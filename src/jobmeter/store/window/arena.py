"""Memory with the arrays of a window, which other processes can map."""

import fcntl
import mmap
import os
import weakref
from enum import IntEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.library import read_interface

_FIXED_BYTES = 192 * 2**20
FOREVER = 2**63 - 1
_ALIGNED = 64
"""Arrays begin at whole lines of the processor's caches."""


class HeaderField(IntEnum):
    """Positions in the header: the library's version, the window's bound in bytes, the process, and a time.

    Until this time (``read_clock``, in milliseconds) other processes may answer from the window.
    """

    ABI, BOUND, PROCESS, UNTIL = range(4)


class Arena:
    """Arrays of zeros, one behind the other, in a mapping that takes memory only for written pages.

    Writer and readers take the same arrays in the same order, so each array has the same place in both. ``descriptor``
    is the file of the mapping, None if the system has no such files: then there are no readers.
    """

    def __init__(self, memory: mmap.mmap, descriptor: int | None) -> None:
        self._memory = memory
        self._end = 0
        self.descriptor = descriptor
        self.header: NDArray[np.int64] = self.take(len(HeaderField), np.int64)

    @classmethod
    def create(cls, bound: int) -> Self:
        """Create the arena of a window with ``bound`` bytes of pages, and of rows."""
        size = 3 * bound + _FIXED_BYTES
        descriptor = _create_file(size)
        arena = cls(mmap.mmap(-1 if descriptor is None else descriptor, size), descriptor)
        if descriptor is not None:
            weakref.finalize(arena, os.close, descriptor)
        arena.header[:] = read_interface(), bound, os.getpid(), FOREVER
        return arena

    @classmethod
    def open(cls, descriptor: int) -> Self:
        """Map the arena of another process, for reading. Raises ValueError if another version wrote it."""
        arena = cls(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), None)
        if int(arena.header[HeaderField.ABI]) != read_interface():
            raise ValueError("the window belongs to a process of another version: start both from one installation")
        return arena

    def take(self, count: int, kind: Any) -> NDArray[Any]:  # noqa: ANN401 - as NumPy's own
        """Return the next array. Raises ValueError if the array does not fit."""
        array = np.frombuffer(self._memory, kind, count, self._end)
        self._end += -(-array.nbytes // _ALIGNED) * _ALIGNED
        return array


def _create_file(size: int) -> int | None:
    """Create a file in memory that keeps its size. None if the system or its limits forbid it."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        descriptor = os.memfd_create("jobmeter-window", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None
    try:
        os.ftruncate(descriptor, size)
        # No process may shrink the file that others have mapped.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
