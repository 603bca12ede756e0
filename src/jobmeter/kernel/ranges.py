"""Finds windows of time in the samples of series, and sums their values (``ranges.c``)."""

import ctypes

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind
from jobmeter.kernel.library import place
from jobmeter.kernel.scratch import align

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

_FIND_TYPES = [PLACE, SIZE, PLACE, SIZE, PLACE, SIZE, SIZE, PLACE, PLACE]
_SUM_TYPES = [PLACE, SIZE, PLACE, PLACE, SIZE, ctypes.c_double, PLACE]
_FIND = bind("jobmeter_ranges_find", _FIND_TYPES, SIZE)
_FIND_FEW = bind("jobmeter_ranges_find", _FIND_TYPES, SIZE, short=True)
_SUM = bind("jobmeter_ranges_sum", _SUM_TYPES, SIZE)
_SUM_FEW = bind("jobmeter_ranges_sum", _SUM_TYPES, SIZE, short=True)
_FEW = 10_000
"""Most samples, or windows, of a short call."""


def find(times: Int64s, starts: Int64s, ends: Int64s, range_ms: int) -> tuple[Int64s, Int64s]:
    """Return the first sample after ``ends - range_ms`` and the first one after ``ends``, int64[series, ends].

    Series i has ``times[starts[i]:starts[i + 1]]``, ascending. Raises ValueError for series beyond the times.
    """
    times, starts, ends = align(times, np.int64), align(starts, np.int64), align(ends, np.int64)
    low, high = np.empty((2, len(starts) - 1, len(ends)), np.int64)
    call = _FIND_FEW if len(times) + low.size <= _FEW else _FIND
    inputs = place(times), len(times), place(starts), len(low), place(ends), len(ends)
    if call(*inputs, range_ms, place(low), place(high)):
        raise ValueError("a series has samples beyond the times")
    return low, high


def add(values: Float64s, low: Int64s, high: Int64s, missing: float = np.nan) -> Float64s:
    """Return the sum of ``values[low:high]`` of each window, in the shape of ``low``; ``missing`` for an empty window.

    Sums are computed in extended precision, so the mean of equal values is that value. Raises ValueError for windows
    beyond the values.
    """
    values, low, high = align(values, np.float64), align(low, np.int64), align(high, np.int64)
    sums = np.empty(low.shape)
    call = _SUM_FEW if len(values) + low.size <= _FEW else _SUM
    if low.shape != high.shape or call(
        place(values), len(values), place(low), place(high), low.size, missing, place(sums)
    ):
        raise ValueError("a window ends beyond the values")
    return sums
