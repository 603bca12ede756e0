"""Adding samples to pages (``append.c``): those that follow all others of their series, which nearly all do."""

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind

Int64s = NDArray[np.int64]
Places = ctypes.Array[ctypes.c_void_p]
"""``struct Places`` of the library: where its arrays lie."""

_APPEND = bind("jobmeter_window_append", [PLACE] * 6 + [SIZE] * 2 + [PLACE], SIZE)
AVAILABLE = _APPEND is not None


def places_of(arrays: Sequence[NDArray[np.generic]]) -> Places:
    """The arrays as the library takes them, in its order. They must outlive it, and none of them may be moved."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def append(
    places: Places,
    stock: Int64s,
    rows: Int64s,
    columns: tuple[NDArray[np.uint32], Int64s, NDArray[np.float64]],
    keep_from: int,
) -> Int64s:
    """Add the samples of ``columns`` (index, time, value) to their rows; ``rows`` int64[k] by index, -1 for none.

    Samples of no row, and those from before which a row does not vouch, are passed over; of two of a time the later one
    wins. Gives the positions of those that are left over: before ``keep_from``, older than the last of their row, or
    without room. ``stock`` int64[3] moves on: pages given back, the first one never used, all. Raises IndexError for an
    index beyond ``rows``.
    """
    assert _APPEND is not None  # noqa: S101 - callers look at AVAILABLE
    index = np.ascontiguousarray(columns[0], np.uint32)
    time, value = np.ascontiguousarray(columns[1], np.int64), np.ascontiguousarray(columns[2], np.float64)
    if len(index) and int(index.max()) >= len(rows):
        raise IndexError(f"a sample of series {int(index.max())}, and there are {len(rows)}")
    left = np.empty(len(time), np.int64)
    arrays = (one.ctypes.data for one in (stock, rows, index, time, value))
    return left[: _APPEND(places, *arrays, len(time), keep_from, left.ctypes.data)]
