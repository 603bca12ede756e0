"""Sorts and deduplicates rows of many sections together (``sort_dedupe.c``)."""

import ctypes
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind
from jobmeter.kernel.library import point_to

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Uint64s = NDArray[np.uint64]

_COUNT = bind("jobmeter_sort_count", [PLACE, SIZE, PLACE], SIZE)
_PUT = bind("jobmeter_sort_place", [PLACE] * 2, SIZE)
_SORT = bind("jobmeter_sort_rows", [PLACE, SIZE, PLACE], SIZE)
_NUMBER = bind("jobmeter_sort_number", [PLACE, PLACE, SIZE, PLACE, PLACE, SIZE, PLACE, PLACE], SIZE)
_BUCKET = bind("jobmeter_sort_bucket", [SIZE, *[PLACE] * 4, *[SIZE] * 4, *[PLACE] * 2], SIZE)
_KEY = np.frombuffer(os.urandom(16), np.uint64) | np.uint64(1)


_WHOLE, _REAL = ("time", "samples", "first_time", "last_time"), ("sum", "minimum", "maximum", "first", "last")
BUCKET = np.dtype([("owner", "u8"), *((name, "i8") for name in _WHOLE), *((name, "f8") for name in _REAL)])
"""Statistics of an owner's samples in a bucket; ``time`` is its start."""
Buckets = NDArray[np.void]
"""Rows of ``BUCKET``."""


class SeriesSlices(NamedTuple):
    """Runs of rows, each of one series.

    ``slots`` int64[k]: the slot of each run's series. ``counts`` int64[k]: its rows, at least 1. ``time`` int64[n] and
    ``value`` float64[n]: all rows, run after run.
    """

    slots: Int64s
    counts: Int64s
    time: Int64s
    value: Float64s


class Ordered(NamedTuple):
    """Rows by slot, then by time, each pair once.

    ``sizes`` int64[slots]: the rows of each slot. ``time`` int64[n], ``value`` float64[n]. ``origin`` uint32[n]: the
    section of each row, if it was requested.
    """

    sizes: Int64s
    time: Int64s
    value: Float64s
    origin: "NDArray[np.uint32] | None"


class OwnedRuns(NamedTuple):
    """Runs among some rows, each of one owner.

    ``owner`` uint64[k] or int64[k]; ``starts`` int64[k]: the first row of each run; ``counts`` int64[k]: its rows, at
    least 1. ``time`` int64[n] from 0 on and ``value`` float64[n]: the rows.
    """

    owner: NDArray[Any]
    starts: Int64s
    counts: Int64s
    time: Int64s
    value: Float64s


def make_buckets(
    sections: Sequence[OwnedRuns], span: tuple[int, int], step: int, most: int
) -> tuple[Buckets, NDArray[np.uint64]]:
    """Return the samples of a span in buckets of ``step``, sorted by owner and time; and the owners without buckets.

    An owner gets no buckets if its runs overlap in time, if the times of a run do not ascend, or beyond ``most``
    buckets. Raises IndexError for a run outside of the rows.
    """
    parts = [_address(runs) for runs in sections if len(runs.owner)]
    if not parts:
        return np.empty(0, BUCKET), np.empty(0, np.uint64)
    owner, counts, first, last, times, values = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((first, owner))
    owner = owner[order].astype(np.uint64)
    steps = np.minimum(last, span[1] - 1) // step - np.maximum(first, span[0]) // step + 1
    found = np.empty(min(int(np.clip(steps, 0, counts).sum()), most), BUCKET)
    wrong = np.zeros(len(owner), np.bool_)
    arrays = map(point_to, (owner, *(column[order] for column in (counts, times, values))))
    size = _BUCKET(len(owner), *arrays, *span, step, len(found), point_to(found), point_to(wrong))
    return found[:size], np.unique(owner[wrong])


def _address(runs: OwnedRuns) -> tuple[NDArray[Any], Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Return owner, number of rows, first and last time of each run, and the addresses of its times and values."""
    owner, starts, counts, time, value = runs
    if not (starts.min() >= 0 and counts.min() > 0 and (starts + counts).max() <= len(time) == len(value)):
        raise IndexError(f"a run lies outside of {len(time)} rows")
    if not (time.flags.c_contiguous and value.flags.c_contiguous and time.dtype == np.int64):
        raise ValueError("the rows are not contiguous")
    places = (8 * starts + column.ctypes.data for column in (time, value))
    return owner, counts, time[starts], time[starts + counts - 1], *places


def sort_dedupe(sections: Sequence[SeriesSlices], slots: int, *, origin: bool) -> Ordered:
    """Sort the rows of some sections. If a slot and time repeat, the last row wins.

    Raises IndexError for a slot of ``slots`` or more, ValueError if the counts of the runs do not match the rows.
    """
    sections_read = [_make_contiguous(runs) for runs in sections]
    lengths = np.array([[len(column) for column in runs] for runs in sections_read], np.int64).reshape(-1, 4).T.copy()
    lists = [_addresses(column) for column in zip(*sections_read, strict=True)]
    given = (ctypes.c_void_p * 7)(
        len(sections_read), lengths[0].ctypes.data, lengths[2].ctypes.data, *(one.ctypes.data for one in lists)
    )
    sizes = np.zeros(slots, np.int64)
    wrong = 2 if (lengths[::2] != lengths[1::2]).any() else _COUNT(given, slots, point_to(sizes))
    if wrong == 1:
        raise IndexError(f"a run has a slot outside of 0 to {slots - 1}")
    if wrong:
        raise ValueError("the counts of the runs do not match the rows")
    ends = np.cumsum(sizes) - sizes
    rows, largest = int(sizes.sum()), int(sizes.max(initial=0))
    time, value = np.empty(rows, np.int64), np.empty(rows)
    of = np.empty(rows, np.uint32) if origin else None
    sizes[:] = 0
    taken = (ctypes.c_void_p * 6)(
        slots, ends.ctypes.data, sizes.ctypes.data, time.ctypes.data, value.ctypes.data,
        None if of is None else of.ctypes.data,
    )  # fmt: skip
    if not _PUT(given, taken):
        room = np.empty(3 * largest, np.int64)  # a variable, so that the array outlives the call
        rows = _SORT(taken, largest, point_to(room))
    return Ordered(sizes, time[:rows], value[:rows], None if of is None else of[:rows])


def number_pairs(job: Uint64s, series: Uint64s) -> tuple[Int64s, Int64s]:
    """Return the first position of each distinct pair, and for each row the number of its pair."""
    count = len(job)
    first, number = np.empty(count, np.int64), np.empty(count, np.int64)
    slots = np.full(1 << (2 * count).bit_length(), -1, np.int32)
    job, series = np.ascontiguousarray(job, np.uint64), np.ascontiguousarray(series, np.uint64)
    rows_left = _NUMBER(
        point_to(job), point_to(series), count, point_to(_KEY), point_to(slots), len(slots) - 1, point_to(first),
        point_to(number),
    )  # fmt: skip
    return first[:rows_left], number


def _make_contiguous(runs: SeriesSlices) -> SeriesSlices:
    slots, counts, time, value = runs
    whole = np.ascontiguousarray
    return SeriesSlices(
        whole(slots, np.int64), whole(counts, np.int64), whole(time, np.int64), whole(value, np.float64)
    )


def _addresses(arrays: Sequence[NDArray[np.generic]]) -> Uint64s:
    return np.array([array.ctypes.data for array in arrays], np.uint64)
