"""Samples that came: copied out of a frame (``samples.c``), and added to the pages of their series (``append.c``)."""

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
"""``struct Places`` of the library: where its arrays lie."""

_ARGUMENTS = [DATA, SIZE, SIZE, SIZE, PLACE, PLACE, PLACE]
_COLUMNS = bind("jobmeter_samples", _ARGUMENTS, SIZE)
_FEW_COLUMNS = bind("jobmeter_samples", _ARGUMENTS, SIZE, short=True)
_FEW = 4_000
"""Samples that are copied in a short call."""
_APPEND = bind("jobmeter_window_append", [PLACE] * 6 + [SIZE] * 2 + [PLACE], SIZE)
AVAILABLE = _APPEND is not None


class Columns(msgspec.Struct, frozen=True, eq=False):
    """Times and values of samples, in arrays of their own.

    ``span``: the first and the last time; ``extremes``: the lowest and the highest value, twice NaN where one is not
    finite. None where there are no samples. ``single``: each series has one sample.
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


def columns(data: bytes, at: int, series: int, samples: int) -> Columns | None:
    """The columns that begin at a place of a frame's payload: counts of ``series``, times, values.

    None where the counts do not add up to ``samples``. Raises IndexError where the columns end beyond the data.
    """
    if at < 0 or at + 4 * series + 16 * samples > len(data):
        raise IndexError(f"{series} series and {samples} samples at byte {at} of {len(data)}")
    copy = _FEW_COLUMNS if samples <= _FEW else _COLUMNS
    if copy is None:
        return _columns(data, at, series, samples)
    time, value, extent = np.empty(samples, np.int64), np.empty(samples), _Extent()
    single = copy(data, at, series, samples, place(time), place(value), ctypes.byref(extent))
    if single < 0:
        return None
    if not samples:
        return Columns(time, value, None, None, bool(single))
    extremes = (extent.lowest, extent.highest) if extent.finite else (np.nan, np.nan)
    return Columns(time, value, (extent.first, extent.last), extremes, bool(single))


def _columns(data: bytes, at: int, series: int, samples: int) -> Columns | None:
    """The same in NumPy."""
    counts = np.frombuffer(data, "<u4", series, at)
    single = series == samples and bool((counts == 1).all())
    if not single and int(counts.sum(dtype=np.uint64)) != samples:
        return None
    at += 4 * series
    time = np.frombuffer(data, "<i8", samples, at).astype(np.int64)
    value = np.frombuffer(data, "<f8", samples, at + 8 * samples).astype(np.float64)
    if not samples:
        return Columns(time, value, None, None, single)
    finite = bool(np.isfinite(value).all())
    extremes = (float(value.min()), float(value.max())) if finite else (np.nan, np.nan)
    return Columns(time, value, (int(time.min()), int(time.max())), extremes, single)


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
