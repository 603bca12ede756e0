"""Reads samples from pages (``jobmeter.store.window.pages``)."""

import ctypes
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind
from jobmeter.kernel.library import place, point_to
from jobmeter.kernel.scratch import align, borrow_scratch

PAGE = 64
"""Samples in a page."""

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Pages = ctypes.Array[ctypes.c_void_p]
"""``struct Pages`` of the library: the addresses of its arrays."""


Samples = tuple[NDArray[np.uint32], Int64s, Float64s]
"""The columns of ``jobmeter.model.batch.SampleColumns``."""
Buckets = tuple[
    NDArray[np.uint32], Int64s, NDArray[np.uint64], Float64s, Float64s, Float64s,
    Float64s, Int64s, Float64s, Int64s, Float64s, Int64s,
]  # fmt: skip
"""The columns of ``jobmeter.model.batch.BucketColumns``, in their order."""


def list_pages(arrays: Sequence[NDArray[Any]], size: int) -> Pages:
    """Return the addresses of arrays in the library's order, and the number of pages.

    The order is distance, value, base, following page, filled, first page of a row, time since which a row is complete,
    marks of rows. The arrays must outlive the addresses and must not move.
    """
    return (ctypes.c_void_p * (len(arrays) + 1))(*(array.ctypes.data for array in arrays), size)


_ROWS = [PLACE, SIZE, PLACE]
_MEASURE = bind("jobmeter_window_measure", [*_ROWS, *[SIZE] * 3, *[PLACE] * 2])
_READ = bind("jobmeter_window_read", [*_ROWS, *[SIZE] * 4, *[PLACE] * 3], SIZE)
_READ_FEW = bind("jobmeter_window_read", [*_ROWS, *[SIZE] * 4, *[PLACE] * 3], SIZE, short=True)
_BUCKET = bind("jobmeter_window_bucket", [*_ROWS, *[SIZE] * 3, *[PLACE] * 3, *[SIZE] * 2, *[PLACE] * 3], SIZE)
_PREVIOUS = bind("jobmeter_window_previous", [*_ROWS, SIZE, *[PLACE] * 2])
_LINES = bind("jobmeter_window_lines", [*_ROWS, PLACE, PLACE, SIZE, *[SIZE] * 4, PLACE], SIZE, short=True)
_FEW = 50_000
"""Most samples that a short call reads."""
_ROOM = 100_000
"""Samples for which there is room at the first attempt."""
MEAN, SUM, MIN, MAX = range(4)
"""Functions that join the rows of a line."""


def measure(pages: Pages, rows: Int64s, start: int, end: int, step: int) -> tuple[int, int]:
    """Count the samples of the rows in a span, and the buckets of ``step`` that they fill."""
    samples, buckets = ctypes.c_int64(), ctypes.c_int64()
    _MEASURE(pages, len(rows), point_to(rows), start, end, step, ctypes.byref(samples), ctypes.byref(buckets))
    return samples.value, buckets.value


def read(pages: Pages, rows: Int64s, first: int, start: int, end: int, most: int) -> Samples:
    """Return the first ``most`` samples of the rows in ``[start, end)``, by position in ``rows``, then by time.

    The first row begins at ``first`` instead of ``start``.
    """
    call = _READ_FEW if most <= _FEW else _READ
    room = min(most, _ROOM)
    while True:
        # Scratch buffers: a few samples must not cost the memory of many.
        index, time = borrow_scratch("window_index", np.uint32, room), borrow_scratch("window_time", np.int64, room)
        value = borrow_scratch("window_value", np.float64, room)
        columns = place(index), place(time), place(value)
        size = call(pages, len(rows), place(align(rows, np.int64)), first, start, end, room, *columns)
        if size < room or room == most:
            return index[:size].copy(), time[:size].copy(), value[:size].copy()
        room = most


def bucket(
    pages: Pages,
    rows: Int64s,
    span: tuple[int, int],
    step: int,
    counters: NDArray[np.bool_],
    references: tuple[Int64s, Float64s],
    bounds: tuple[int, int],
) -> Buckets | None:
    """Return the samples of the rows in buckets, by position in ``rows``. Updates the references (times and values).

    None if there are more samples or more buckets than ``bounds``; the references are then undefined.
    """
    room = bounds[1]
    index, whole, real = np.empty(room, np.uint32), np.empty((5, room), np.int64), np.empty((6, room))
    size = _BUCKET(
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


class WindowGrid:
    """Rows joined to lines: ``line`` int64[rows] is the line of each row, ``how`` uint8[lines] how its rows are joined.

    Reuse one object for repeated calls: looking up the address of an array takes longer than reading it.
    """

    __slots__ = ("_arrays", "how", "line", "lines")

    def __init__(self, line: Int64s, how: NDArray[np.uint8]) -> None:
        self._arrays = np.ascontiguousarray(line, np.int64), np.ascontiguousarray(how, np.uint8)
        if len(line) and not 0 <= int(self._arrays[0].min()) <= int(self._arrays[0].max()) < len(how):
            raise ValueError("a row refers to a line that does not exist")
        self.line, self.how = (array.ctypes.data for array in self._arrays)
        self.lines = len(how)

    def __len__(self) -> int:
        return len(self._arrays[0])


class LineColumns(msgspec.Struct, frozen=True, eq=False):
    """Values of lines in buckets: ``time`` int64[n] bucket starts in ms, ascending in a line; ``value`` float64[n].

    Lines follow each other; ``ends`` int64[lines] is the end of each. ``samples`` counts the samples behind the values.
    """

    ends: Int64s
    time: Int64s
    value: Float64s
    samples: int


def average_lines(
    pages: Pages, rows: int, grid: WindowGrid, span: tuple[int, int], step: int, most: int
) -> LineColumns | None:
    """Return the mean of the rows' samples in buckets of ``step``, joined by line. Empty buckets are left out.

    ``rows`` is the address of the row numbers, int64, as many as the grid has. ``span`` must not be empty. None for
    more than ``most`` samples, for a row -1, or for a row that lacks samples of the span.
    """
    start, end = span
    cells = grid.lines * ((end - 1) // step - start // step + 1)
    block = np.empty(4 * cells + grid.lines + 1, np.int64)
    size = _LINES(pages, len(grid), rows, grid.line, grid.how, grid.lines, start, end, step, most, place(block))
    if size < 0:
        return None
    value = block[3 * cells : 3 * cells + size].view(np.float64)
    return LineColumns(block[4 * cells : -1], block[2 * cells : 2 * cells + size], value, int(block[-1]))


def find_previous(pages: Pages, rows: Int64s, before: int) -> tuple[Int64s, Float64s]:
    """Return the time (-1: none) and the value of the last sample of each row before a time."""
    time, value = np.empty(len(rows), np.int64), np.zeros(len(rows))
    _PREVIOUS(pages, len(rows), point_to(rows), before, point_to(time), point_to(value))
    return time, value
