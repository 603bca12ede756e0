"""Marks of groups of rows, by which a reader in another process notices a write (``marks.c``)."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind
from jobmeter.kernel.library import place, point_to

GROUP = 64
"""Rows that share a mark."""
Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]

_BEGIN_WRITE = bind("jobmeter_marks_begin_write", [PLACE, PLACE, SIZE])
_END_WRITE = bind("jobmeter_marks_end_write", [PLACE, PLACE, SIZE])
_BEGIN_READ = bind("jobmeter_marks_begin_read", [*[PLACE] * 5, SIZE, PLACE], SIZE, short=True)
_END_READ = bind("jobmeter_marks_end_read", [PLACE, PLACE, SIZE, PLACE], SIZE, short=True)


class Marks:
    """Marks of groups of rows: a mark is odd while its group is written. ``marks`` uint64, by group, must not move.

    ``series`` uint64, by row, is the series of the row. ``there`` bool, by row, is True for a row in use.
    """

    def __init__(self, marks: Uint64s, series: Uint64s, there: NDArray[np.bool_]) -> None:
        self._marks = point_to(marks)
        self._places = self._marks, point_to(series), point_to(there)

    @contextmanager
    def mark_writing(self, rows: Int64s) -> Iterator[None]:
        """Mark rows as being written. One thread writes at a time, and does not nest this context."""
        rows = np.ascontiguousarray(rows, np.int64)
        _BEGIN_WRITE(self._marks, point_to(rows), len(rows))
        try:
            yield
        finally:
            _END_WRITE(self._marks, point_to(rows), len(rows))

    def begin_read(self, rows: int, series: int, count: int) -> Uint64s | None:
        """Return the mark of each row. None if any row is being written, or now has another series.

        ``rows`` and ``series`` are addresses of ``count`` int64 and uint64.
        """
        before = np.empty(count, np.uint64)
        return before if _BEGIN_READ(*self._places, rows, series, count, place(before)) else None

    def end_read(self, rows: int, before: Uint64s) -> bool:
        """Return True if no row was written since ``begin_read`` returned ``before``."""
        return bool(_END_READ(self._marks, rows, len(before), place(before)))
