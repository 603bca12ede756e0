"""Table of a number for each series, read for thousands of series at once (``number_table.c``)."""

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind
from jobmeter.kernel.library import point_to

Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]
Allocate = Callable[[int, Any], NDArray[Any]]
"""Function that returns an array of zeros of a length and a type."""

_RESERVED_BYTES = 2**20
"""Bytes from which an array has a mapping of its own."""

_FIRST = 1_024
_SPARSE = 2
"""Least number of slots for each series."""
_FEW = 4_000
"""Most series that one short call finds."""
_FIND = bind("jobmeter_numbers_find", [PLACE, PLACE, SIZE, PLACE])
_FIND_FEW = bind("jobmeter_numbers_find", [PLACE, PLACE, SIZE, PLACE], short=True)
_PUT = bind("jobmeter_numbers_put", [PLACE, PLACE, PLACE, SIZE], SIZE)
_REMOVE = bind("jobmeter_numbers_remove", [PLACE, PLACE, SIZE], SIZE)
_MOVE = bind("jobmeter_numbers_move", [PLACE, PLACE])


def allocate_zeros(count: int, kind: Any) -> NDArray[Any]:  # noqa: ANN401 - as NumPy's own
    """Return zeros that take memory only for written pages.

    ``np.zeros`` does so too, unless the C library has freed a larger block before: then it clears a block of its heap.
    """
    size = count * np.dtype(kind).itemsize
    if size < _RESERVED_BYTES:
        return np.zeros(count, kind)
    return np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), kind, count)


class _Slots(ctypes.Structure):
    """``struct Slots`` of the library."""

    _fields_ = (
        ("key", ctypes.c_void_p),
        ("number", ctypes.c_void_p),
        ("secret", ctypes.c_uint64),
        ("count", ctypes.c_int64),
    )


class NumberTable:
    """Numbers from 0 to 2**31 - 2 by series. One thread writes, and none reads meanwhile.

    Arrays of ``allocate`` have room for ``most`` series and never move. Another process with the same arrays may read
    while this process writes. That reader may miss a series, or find the number of another series. Without ``most`` the
    arrays grow.
    """

    def __init__(self, most: int = 0, allocate: Allocate = allocate_zeros) -> None:
        slots = _slots_for(most)
        self._state: Uint64s = allocate(2, np.uint64)
        self._series: Uint64s = allocate(2 * slots, np.uint64)
        self._number: NDArray[np.int32] = allocate(2 * slots, np.int32)
        if not self._state[0]:  # else another process has begun the table
            self._state[:] = _FIRST, int.from_bytes(os.urandom(8))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, series: Uint64s) -> Int64s:
        """Return the number of each series, int64[k]; -1 for an unknown series."""
        numbers = np.empty(len(series), np.int64)
        find = _FIND_FEW if len(series) <= _FEW else _FIND
        find(self.slots, point_to(np.ascontiguousarray(series)), len(series), point_to(numbers))
        return numbers

    def put(self, series: Uint64s, numbers: Int64s) -> None:
        """Store the numbers of series; the last number of a series stays."""
        self.reserve(self._count + len(series))
        series, numbers = np.ascontiguousarray(series), np.ascontiguousarray(numbers, np.int64)
        self._count += int(_PUT(self.slots, point_to(series), point_to(numbers), len(series)))

    def reserve(self, count: int) -> None:
        """Make room for ``count`` series."""
        while _SPARSE * count > int(self._state[0]):
            self._grow()

    def remove(self, series: Uint64s) -> None:
        """Remove series; unknown series are ignored."""
        series = np.ascontiguousarray(series)
        self._count -= int(_REMOVE(self.slots, point_to(series), len(series)))

    @property
    def slots(self) -> Any:  # noqa: ANN401 - a reference of ctypes
        """Reference to the arrays, for functions of the library."""
        return ctypes.byref(self._slots())

    def _slots(self) -> _Slots:
        count, secret = self._state.tolist()
        return _Slots(self._series.ctypes.data, self._number.ctypes.data, secret, count)

    def _grow(self) -> None:
        """Double the slots. The larger table lies behind the old table, which readers may still use."""
        old, before = self._slots(), (self._series, self._number)
        if 4 * old.count > len(self._series):
            self._series, self._number = np.zeros(4 * old.count, np.uint64), np.zeros(4 * old.count, np.int32)
        larger = _Slots(self._series.ctypes.data, self._number.ctypes.data, old.secret, 2 * old.count)
        _MOVE(ctypes.byref(old), ctypes.byref(larger))
        self._state[0] = larger.count
        del before  # until here the library reads these arrays


def _slots_for(series: int) -> int:
    return max(_FIRST, 1 << (_SPARSE * series - 1).bit_length())
