"""Samples in pages of fixed size, memory that is given from one series to the next without moving; a row for each."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel import append as kernel
from jobmeter.kernel.window import PAGE
from jobmeter.model.batch import Float64s, Int64s, SampleColumns, SeriesKeys, Uint64s

Int32s = NDArray[np.int32]

PAGE_BYTES = PAGE * 12 + 20
"""A page with everything that is cached of it."""
ROW_BYTES = 150
"""Memory that a series takes beside its samples: its columns, and its place in a dictionary."""
_FIRST = 1024
_NEVER = -(2**62)
NO_PAGE = -1
FURTHEST = 2**31 - 1
"""Milliseconds from the base time of a page to its last sample, at most."""


class Pages:
    """``size`` pages of ``PAGE`` samples.

    ``base`` int64 ms is the time of a page's first sample, ``filled`` int32 how many it has, ``following`` int32 the
    next page of the same series or ``NO_PAGE``. Memory is the system's to give: a page that was never used takes none.
    Not safe for several threads.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.distance = np.empty(size * PAGE, np.int32)
        self.value = np.empty(size * PAGE, np.float64)
        self.base = np.empty(size, np.int64)
        self.filled = np.empty(size, np.int32)
        self.following = np.empty(size, np.int32)
        self.free = np.empty(size, np.int32)
        # How many were given back (they lie in ``free``), the first one that was never used, and how many there are.
        self.stock = np.array([0, 0, size], np.int64)

    @property
    def left(self) -> int:
        """How many pages are free."""
        returned, fresh, size = self.stock.tolist()
        return int(returned + size - fresh)

    @property
    def used(self) -> int:
        """How many are not."""
        return self.size - self.left

    def take(self, count: int) -> Int32s:
        """That many pages, which must be ``left``, with nothing in them and nothing after them."""
        returned, unused, _ = self.stock.tolist()
        again = min(count, returned)
        fresh = np.arange(unused, unused + count - again, dtype=np.int32)
        self.stock[:2] = returned - again, unused + len(fresh)
        pages = np.concatenate([self.free[returned - again : returned], fresh])
        self.following[pages] = NO_PAGE
        self.filled[pages] = 0
        return pages

    def give_back(self, pages: Int32s) -> None:
        """Let others have these pages."""
        returned = int(self.stock[0])
        self.free[returned : returned + len(pages)] = pages
        self.stock[0] = returned + len(pages)

    def chain(self, page: int) -> Iterator[int]:
        """A page and those that follow it."""
        while page != NO_PAGE:
            yield page
            page = int(self.following[page])

    def newest(self, pages: Int32s) -> Int64s:
        """int64[k] ms: the time of the last sample of each page, which has one."""
        newest: Int64s = self.base[pages] + self.distance[pages.astype(np.int64) * PAGE + self.filled[pages] - 1]
        return newest

    def content(self, page: int) -> tuple[Int64s, Float64s]:
        """The samples of a page and of those that follow it, ascending in time."""
        times, values = [np.empty(0, np.int64)], [np.empty(0)]
        for one in self.chain(page):
            cells = slice(one * PAGE, one * PAGE + int(self.filled[one]))
            times.append(self.base[one] + self.distance[cells])
            values.append(self.value[cells])
        return np.concatenate(times), np.concatenate(values)

    def store(self, pages: Int32s, places: Int64s, time: Int64s, value: Float64s) -> None:
        """Put samples into pages, whose base times are set, at ``places`` (0 to ``PAGE`` - 1)."""
        cells = pages.astype(np.int64) * PAGE + places
        self.distance[cells] = time - self.base[pages]
        self.value[cells] = value

    def rewrite_last(
        self, pages: Int32s, time: Int64s, value: Float64s, chosen: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Give the last sample of pages another value, where ``chosen`` and where it is of that time: bool[k]."""
        at = np.flatnonzero(chosen & (pages >= 0))
        last = pages[at].astype(np.int64)
        cells = last * PAGE + self.filled[last] - 1
        same = self.base[last] + self.distance[cells] == time[at]
        self.value[cells[same]] = value[at[same]]
        there = np.zeros(len(pages), np.bool_)
        there[at[same]] = True
        return there

    def write_new(self, time: Int64s, value: Float64s) -> tuple[int, int]:
        """Samples, ascending in time, in pages of their own: the first and the last of these, ``NO_PAGE`` for none."""
        if not len(time):
            return NO_PAGE, NO_PAGE
        edges = cuts(time)
        pages = self.take(len(edges) - 1)
        for page, start, end in zip(pages.tolist(), edges[:-1], edges[1:], strict=True):
            self.base[page], self.filled[page] = time[start], end - start
            cells = slice(page * PAGE, page * PAGE + end - start)
            self.distance[cells] = time[start:end] - time[start]
            self.value[cells] = value[start:end]
        self.following[pages[:-1]] = pages[1:]
        return int(pages[0]), int(pages[-1])


def cuts(time: Int64s) -> list[int]:
    """Where pages of these samples begin, and where the last one ends."""
    edges = [0]
    while edges[-1] < len(time):
        start = edges[-1]
        near = int(np.searchsorted(time, time[start] + FURTHEST, side="right"))
        edges.append(min(start + PAGE, near, len(time)))
    return edges


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


class PageWriter:
    """Adds to pages. ``rows`` as they are now: when they have grown it takes another one."""

    def __init__(self, pages: Pages, rows: Rows) -> None:
        self.first_page = rows.first_page
        self._stock = pages.stock
        self._at = kernel.places_of(
            [
                *(pages.distance, pages.value, pages.base, pages.following, pages.filled, pages.free),
                *(rows.first_page, rows.last_page, rows.last, rows.since),
            ]
        )  # the arrays stay where they are for as long as this object is used

    def append(self, row_numbers: Int64s, columns: SampleColumns, keep_from: int) -> SampleColumns:
        """Add samples to their rows (``row_numbers`` by index, -1 for none); returns the others."""
        if not kernel.AVAILABLE:
            return columns
        left = kernel.append(
            self._at, self._stock, row_numbers, (columns.index, columns.time, columns.value), keep_from
        )
        return SampleColumns(columns.index[left], columns.time[left], columns.value[left])
