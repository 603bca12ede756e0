"""Copies samples out of a frame (``samples.c``) and appends them to the pages of their series (``append.c``)."""

import ctypes
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import place

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Places = ctypes.Array[ctypes.c_void_p]
"""``struct Places`` of the library: the addresses of its arrays."""

_ARGUMENTS = [DATA, SIZE, SIZE, SIZE, PLACE, PLACE, PLACE]
_COLUMNS = bind("jobmeter_samples", _ARGUMENTS, SIZE)
_FEW_COLUMNS = bind("jobmeter_samples", _ARGUMENTS, SIZE, short=True)
_FEW = 4_000
"""Most samples that a short call copies."""
_APPEND = bind("jobmeter_window_append", [PLACE] * 6 + [SIZE] * 3 + [PLACE], SIZE)


class ScannedSamples(msgspec.Struct, frozen=True, eq=False):
    """Times and values of samples, in arrays that own their memory.

    ``span``: the first and the last time, None without samples. ``extremes``: the lowest and the highest value, both
    NaN if any value is not finite, None without samples. ``single``: each series has one sample.
    """

    time: Int64s
    value: Float64s
    span: tuple[int, int] | None
    extremes: tuple[float, float] | None
    single: bool


class _Extent(ctypes.Structure):
    """``struct Extent`` of the library."""

    _fields_ = (
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
        ("lowest", ctypes.c_double),
        ("highest", ctypes.c_double),
        ("finite", ctypes.c_int64),
    )


def copy_columns(data: bytes, at: int, series: int, samples: int) -> ScannedSamples | None:
    """Copy the columns at position ``at`` of a frame's payload: counts of ``series``, times, values.

    None if the counts do not add up to ``samples``. Raises IndexError if the columns end beyond the data.
    """
    if at < 0 or at + 4 * series + 16 * samples > len(data):
        raise IndexError(f"{series} series and {samples} samples at byte {at} of {len(data)}")
    copy = _FEW_COLUMNS if samples <= _FEW else _COLUMNS
    time, value, extent = np.empty(samples, np.int64), np.empty(samples), _Extent()
    single = copy(data, at, series, samples, place(time), place(value), ctypes.byref(extent))
    if single < 0:
        return None
    if not samples:
        return ScannedSamples(time, value, None, None, bool(single))
    extremes = (extent.lowest, extent.highest) if extent.finite else (np.nan, np.nan)
    return ScannedSamples(time, value, (extent.first, extent.last), extremes, bool(single))


def list_places(arrays: Sequence[NDArray[np.generic]]) -> Places:
    """Return the addresses of the arrays in the library's order. The arrays must outlive them and must not move."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def append(
    places: Places,
    stock: Int64s,
    rows: Int64s,
    columns: tuple[NDArray[np.uint32], Int64s, NDArray[np.float64]],
    keep_from: int,
    write: int,
) -> Int64s:
    """Append the samples of ``columns`` (index, time, value) to their rows.

    ``rows`` int64[k] is the row of each index, -1 for no row. Samples without a row are skipped, and so are samples
    from before the time from which their row is complete. If two samples have the same time, the later one wins.
    Returns the positions of the samples that were not appended: before ``keep_from``, older than the last sample of
    their row, or without a free page. ``stock`` int64[3] is updated: returned pages, the first page never used, all
    pages. ``write`` becomes the number of the last write of each row with a sample. Raises IndexError for an index
    beyond ``rows``.
    """
    index = np.ascontiguousarray(columns[0], np.uint32)
    time, value = np.ascontiguousarray(columns[1], np.int64), np.ascontiguousarray(columns[2], np.float64)
    if len(index) and int(index.max()) >= len(rows):
        raise IndexError(f"a sample of series {int(index.max())}, and there are {len(rows)}")
    left = np.empty(len(time), np.int64)
    arrays = (one.ctypes.data for one in (stock, rows, index, time, value))
    return left[: _APPEND(places, *arrays, len(time), keep_from, write, left.ctypes.data)]
