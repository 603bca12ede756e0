"""Reading samples that lie in pages (``jobmeter.store.window.pages``)."""

import ctypes

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.library import LIBRARY, pointer

AVAILABLE = LIBRARY is not None
PAGE = 64
"""Samples in a page."""

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Pages = ctypes.Array[ctypes.c_void_p]
"""``struct Pages`` of the library: where its arrays lie."""


Samples = tuple[NDArray[np.uint32], Int64s, Float64s]
"""The columns of ``jobmeter.model.batch.SampleColumns``."""
Buckets = tuple[
    NDArray[np.uint32], Int64s, NDArray[np.uint64], Float64s, Float64s, Float64s,
    Float64s, Int64s, Float64s, Int64s, Float64s, Int64s,
]  # fmt: skip
"""The columns of ``jobmeter.model.batch.BucketColumns``, in their order."""


def pages_of(
    distance: NDArray[np.int32],
    value: Float64s,
    base: Int64s,
    following: NDArray[np.int32],
    filled: NDArray[np.int32],
    first_page: NDArray[np.int32],
) -> Pages:
    """The arrays as the library takes them. They must outlive it, and none of them may be moved."""
    arrays = (distance, value, base, following, filled, first_page)
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def measure(pages: Pages, rows: Int64s, start: int, end: int, step: int) -> tuple[int, int]:
    """How many samples the rows have in a span, and how many buckets of ``step`` these make."""
    assert LIBRARY is not None  # noqa: S101 - callers look at AVAILABLE
    samples, buckets = ctypes.c_int64(), ctypes.c_int64()
    LIBRARY.jobmeter_window_measure(
        pages, ctypes.c_int64(len(rows)), pointer(rows), ctypes.c_int64(start), ctypes.c_int64(end),
        ctypes.c_int64(step), ctypes.byref(samples), ctypes.byref(buckets),
    )  # fmt: skip
    return samples.value, buckets.value


def read(pages: Pages, rows: Int64s, start: int, end: int, size: int) -> Samples:
    """The ``size`` samples of the rows in a span, by their place in ``rows``, then by time."""
    assert LIBRARY is not None  # noqa: S101 - callers look at AVAILABLE
    index, time, value = np.empty(size, np.uint32), np.empty(size, np.int64), np.empty(size)
    LIBRARY.jobmeter_window_read(
        pages, ctypes.c_int64(len(rows)), pointer(rows), ctypes.c_int64(start), ctypes.c_int64(end),
        ctypes.c_int64(size), pointer(index), pointer(time), pointer(value),
    )  # fmt: skip
    return index, time, value


def bucket(
    pages: Pages,
    rows: Int64s,
    span: tuple[int, int],
    step: int,
    counters: NDArray[np.bool_],
    references: tuple[Int64s, Float64s],
    bounds: tuple[int, int],
) -> Buckets | None:
    """The samples of the rows in buckets, by their place in ``rows``; references (times and values) move on.

    ``bounds``: None where there are more samples or more buckets than that; references are of no use then.
    """
    assert LIBRARY is not None  # noqa: S101 - callers look at AVAILABLE
    room = bounds[1]
    index, whole, real = np.empty(room, np.uint32), np.empty((5, room), np.int64), np.empty((6, room))
    size = _bucket(
        pages, len(rows), rows.ctypes.data, *span, step, counters.ctypes.data, references[0].ctypes.data,
        references[1].ctypes.data, *bounds, index.ctypes.data, whole.ctypes.data, real.ctypes.data,
    )  # fmt: skip
    if size < 0:
        return None
    time, count, first_time, last_time, elapsed = whole[:, :size]
    total, minimum, maximum, first, last, increase = real[:, :size]
    return (
        index[:size], time, count.view(np.uint64), total, minimum, maximum,
        first, first_time, last, last_time, increase, elapsed,
    )  # fmt: skip


def previous(pages: Pages, rows: Int64s, before: int) -> tuple[Int64s, Float64s]:
    """The time (-1: none) and the value of the last sample of each row before a time."""
    assert LIBRARY is not None  # noqa: S101 - callers look at AVAILABLE
    time, value = np.empty(len(rows), np.int64), np.zeros(len(rows))
    LIBRARY.jobmeter_window_previous(
        pages, ctypes.c_int64(len(rows)), pointer(rows), ctypes.c_int64(before), pointer(time), pointer(value)
    )
    return time, value


if LIBRARY is not None:
    _bucket = LIBRARY.jobmeter_window_bucket
    _bucket.restype = ctypes.c_int64
    _whole, _where = ctypes.c_int64, ctypes.c_void_p
    _bucket.argtypes = [
        _where, _whole, _where, _whole, _whole, _whole, _where, _where, _where, _whole, _whole, _where, _where, _where,
    ]  # fmt: skip
