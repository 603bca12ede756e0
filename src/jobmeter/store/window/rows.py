"""What the window knows of each series, in columns: a row for each."""

import numpy as np

from jobmeter.model.batch import Int64s, SeriesKeys, Uint64s
from jobmeter.store.window.pages import NO_PAGE

ROW_BYTES = 150
"""Memory that a series takes beside its samples: its columns, and its place in a dictionary."""
_FIRST = 1024
_NEVER = -(2**62)


class Rows:
    """Series by number. Not safe for several threads.

    Columns, by row: ``job`` uint64, the job key; ``since`` int64 ms: every sample of the series at or after that time
    is here; ``last`` int64 ms: the time of the newest sample that was ever here, long ago without one; ``first_page``
    and ``last_page`` int32. ``generation`` changes when a series gets or loses its row.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._end = 0
        self.series = np.empty(_FIRST, np.uint64)
        self.job = np.empty(_FIRST, np.uint64)
        self.since = np.empty(_FIRST, np.int64)
        self.last = np.empty(_FIRST, np.int64)
        self.first_page = np.empty(_FIRST, np.int32)
        self.last_page = np.empty(_FIRST, np.int32)
        self.written = np.zeros(_FIRST, np.int64)
        self._there = np.zeros(_FIRST, np.bool_)

    def __len__(self) -> int:
        return len(self._places)

    def find(self, keys: SeriesKeys) -> Int64s:
        """int64[k]: the row of each series, -1 where it has none."""
        places = self._places
        return np.array([places.get(one, -1) for one in keys.series.tolist()], np.int64)

    def all(self) -> Int64s:
        """Every row that a series has."""
        return np.flatnonzero(self._there[: self._end])

    def still_there(self, rows: Int64s) -> Int64s:
        """Those of some rows that a series has now."""
        there: Int64s = rows[self._there[rows]]
        return there

    def of_job(self, job: int) -> Int64s:
        """The rows of a job's series."""
        return np.flatnonzero(self._there[: self._end] & (self.job[: self._end] == np.uint64(job)))

    def add(self, job: int, series: int, since_ms: int) -> int:
        """A row for a series that has none, without samples."""
        if self._free:
            row = self._free.pop()
        else:
            row, self._end = self._end, self._end + 1
            if row == len(self.job):
                self._grow()
        self._places[series] = row
        self.series[row], self.job[row] = series, job
        self.since[row], self.last[row] = since_ms, _NEVER
        self.first_page[row] = self.last_page[row] = NO_PAGE
        self._there[row] = True
        self.generation += 1
        return row

    def add_all(self, job: Uint64s, series: Uint64s, since_ms: int) -> Int64s:
        """Rows for different series that have none, without samples: int64[k]."""
        count = len(series)
        again = self._free[len(self._free) - min(count, len(self._free)) :]
        del self._free[len(self._free) - len(again) :]
        fresh = range(self._end, self._end + count - len(again))
        self._end += len(fresh)
        while self._end > len(self.job):
            self._grow()
        numbers = [*again, *fresh]
        self._places.update(zip(series.tolist(), numbers, strict=True))
        rows = np.array(numbers, np.int64)
        self.series[rows], self.job[rows] = series, job
        self.since[rows], self.last[rows] = since_ms, _NEVER
        self.first_page[rows] = self.last_page[rows] = NO_PAGE
        self._there[rows] = True
        self.generation += count
        return rows

    def remove(self, rows: Int64s) -> None:
        """Forget these series; their pages are the caller's to give back."""
        for series in self.series[rows].tolist():
            del self._places[series]
        self._free += rows.tolist()
        self._there[rows] = False
        self.generation += len(rows)

    def _grow(self) -> None:
        for name in ("series", "job", "since", "last", "first_page", "last_page", "written", "_there"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
