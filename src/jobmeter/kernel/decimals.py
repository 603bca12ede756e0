"""Splits values into a whole number and a power of ten if that is exact: such pairs compress better than doubles."""

import threading

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind
from jobmeter.kernel.number_table import allocate_zeros

_SLOTS = 1 << 18
_SLOT_BYTES = 24

_decimals = bind("jobmeter_decimals", [PLACE, PLACE, SIZE, PLACE, SIZE, PLACE, PLACE, PLACE])

Split = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.uint8]]
"""``value``, ``number``, ``digits``: each row is ``number / 10**digits``, or ``value`` where ``number`` is 0."""


class Decimals:
    """Splits values. Safe for any number of threads.

    The digits that a series needs are cached for up to 262,144 series (6 MiB, allocated on use). So rows of one series
    get the same form although they arrive a few at a time. A dropped entry costs bytes on disk, nothing else.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots = allocate_zeros(_SLOTS * _SLOT_BYTES, np.uint8)

    def split(self, series: NDArray[np.uint64], value: NDArray[np.float64]) -> Split:
        """Split the values of rows exactly. Rows of one series should follow each other."""
        series, value = np.ascontiguousarray(series), np.ascontiguousarray(value)
        rows = len(value)
        rest, number, digits = np.empty(rows), np.empty(rows, np.int64), np.empty(rows, np.uint8)
        with self._lock:
            _decimals(
                series.ctypes.data, value.ctypes.data, rows, self._slots.ctypes.data, _SLOTS,
                rest.ctypes.data, number.ctypes.data, digits.ctypes.data,
            )  # fmt: skip
        return rest, number, digits
