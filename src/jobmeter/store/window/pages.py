"""Samples in pages of fixed size, which pass from one series to another without moving; and a row for each series."""

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel import samples as kernel
from jobmeter.kernel.marks import GROUP, Marks
from jobmeter.kernel.number_table import Allocate, allocate_zeros
from jobmeter.kernel.window import PAGE
from jobmeter.model.batch import Bools, Float64s, Int64s, SampleColumns, SeriesKeys, Uint64s
from jobmeter.model.series_table import MOST, SeriesTable

Int32s = NDArray[np.int32]

PAGE_BYTES = PAGE * 12 + 20
"""Bytes of a page with everything that is cached about it."""
ROW_BYTES = 150
"""Memory of a series besides its samples: its columns, and its slots in the table."""
_NEVER = -(2**62)
NO_PAGE = NO_ROW = -1
FURTHEST = 2**31 - 1
"""Most milliseconds from the base time of a page to its last sample."""


def count_pages(bound: int) -> int:
    """Return the number of pages of a window of ``bound`` bytes."""
    return max(bound // PAGE_BYTES, 4)


def count_rows(bound: int) -> int:
    """Return the most rows of a table with a window of ``bound`` bytes: some are left for series outside."""
    return bound // ROW_BYTES + MOST


class Pages:
    """``size`` pages of ``PAGE`` samples.

    ``base`` int64 ms is the time of a page's first sample, ``filled`` int32 its number of samples, ``following`` int32
    the next page of the same series or ``NO_PAGE``. The system allocates memory lazily: a page that was never used
    takes none. Not safe for several threads.
    """

    def __init__(self, size: int, allocate: Allocate = allocate_zeros) -> None:
        self.size = size
        self.distance: Int32s = allocate(size * PAGE, np.int32)
        self.value: Float64s = allocate(size * PAGE, np.float64)
        self.base: Int64s = allocate(size, np.int64)
        self.filled: Int32s = allocate(size, np.int32)
        self.following: Int32s = allocate(size, np.int32)
        self.free: Int32s = allocate_zeros(size, np.int32)
        # Number of returned pages (in ``free``), the first page never used, and the number of all pages.
        self.stock = np.array([0, 0, size], np.int64)

    @property
    def left(self) -> int:
        """Number of free pages."""
        returned, fresh, size = self.stock.tolist()
        return int(returned + size - fresh)

    @property
    def used(self) -> int:
        """Number of pages in use."""
        return self.size - self.left

    def take(self, count: int) -> Int32s:
        """Take ``count`` pages, at most ``left``, empty and without successors."""
        returned, unused, _ = self.stock.tolist()
        again = min(count, returned)
        fresh = np.arange(unused, unused + count - again, dtype=np.int32)
        self.stock[:2] = returned - again, unused + len(fresh)
        pages = np.concatenate([self.free[returned - again : returned], fresh])
        self.following[pages] = NO_PAGE
        self.filled[pages] = 0
        return pages

    def give_back(self, pages: Int32s) -> None:
        """Return pages to the free ones."""
        returned = int(self.stock[0])
        self.free[returned : returned + len(pages)] = pages
        self.stock[0] = returned + len(pages)

    def follow_chains(self, first: Int32s, until: Int64s | None = None) -> tuple[Int64s, Int32s]:
        """Return pages and their successors, chain by chain: int64[k], a position in ``first``, and int32[k], the page.

        With ``until`` (int64 ms, by position) a chain ends with the first page behind ``first`` whose base is later.
        """
        at = np.flatnonzero(first != NO_PAGE)
        pages, ended = first[at], np.zeros(len(at), np.bool_)
        positions, found = [at], [pages]
        while len(at):
            on = ~ended & (self.following[pages] != NO_PAGE)
            at, pages = at[on], self.following[pages[on]]
            ended = np.zeros(len(at), np.bool_) if until is None else self.base[pages] > until[at]
            positions.append(at)
            found.append(pages)
        position = np.concatenate(positions)
        order = np.argsort(position, kind="stable")
        return position[order], np.concatenate(found)[order]

    def find_page(self, first: Int32s, last: Int32s, time: Int64s) -> Int32s:
        """Return the page of each chain in which a sample at that time belongs, int32[k].

        A chain is the pages from ``first`` to ``last``.
        """
        page = np.where((last != NO_PAGE) & (self.base[last] <= time), last, first)
        at = np.flatnonzero(page != last)
        while len(at):
            following = self.following[page[at]]
            on = self.base[following] <= time[at]
            at = at[on]
            page[at] = following[on]
            at = at[page[at] != last[at]]
        return page

    def find_newest(self, pages: Int32s) -> Int64s:
        """Return the time of the last sample of each page, int64[k] ms. No page may be empty."""
        newest: Int64s = self.base[pages] + self.distance[pages.astype(np.int64) * PAGE + self.filled[pages] - 1]
        return newest

    def read_content(self, pages: Int32s) -> tuple[Int64s, Int64s, Float64s]:
        """Return the samples of pages, page after page: the position in ``pages``, time and value of each."""
        filled = self.filled[pages].astype(np.int64)
        position = np.repeat(np.arange(len(pages)), filled)
        cells = (pages.astype(np.int64) * PAGE - (np.cumsum(filled) - filled))[position] + np.arange(len(position))
        return position, self.base[pages][position] + self.distance[cells], self.value[cells]

    def store(self, pages: Int32s, starts: Int64s, time: Int64s, value: Float64s) -> None:
        """Fill pages: the samples of each begin at ``starts``, and are ascending in time."""
        filled = np.diff(np.append(starts, len(time)))
        self.base[pages], self.filled[pages] = time[starts], filled
        cells = np.repeat(pages.astype(np.int64) * PAGE - starts, filled) + np.arange(len(time))
        self.distance[cells] = time - np.repeat(time[starts], filled)
        self.value[cells] = value


class SeriesRows:
    """Rows of the series in the window, among the rows of ``table``. Not safe for several threads.

    Columns, by row: ``job`` uint64, the job key. ``since`` int64 ms: the row has every sample of the series at or after
    that time. ``last`` int64 ms: the time of the newest sample that the row has ever had; a time long ago without a
    sample. ``written`` int64: the number of the last write. ``first_page`` and ``last_page`` int32. ``generation``
    changes when a series gets or loses its row. ``marks`` are set around each change of a row, for readers in other
    processes.
    """

    def __init__(self, table: SeriesTable) -> None:
        most, allocate = table.most, table.allocate
        self._table = table
        self._count = 0
        self._generation: memoryview = allocate(1, np.int64).data  # quicker than an array to read a number from
        self.job: Uint64s = allocate(most, np.uint64)
        self.since: Int64s = allocate(most, np.int64)
        self.last: Int64s = allocate(most, np.int64)
        self.first_page: Int32s = allocate(most, np.int32)
        self.last_page: Int32s = allocate(most, np.int32)
        self.written: Int64s = allocate(most, np.int64)
        self._there: Bools = table.there
        self.mark: Uint64s = allocate(most // GROUP + 1, np.uint64)
        self.marks = Marks(self.mark, table.ids, self._there)

    def __len__(self) -> int:
        return self._count

    @property
    def generation(self) -> int:
        """Return a number that changes when a series gets or loses its row."""
        return self._generation[0]

    def find(self, keys: SeriesKeys) -> Int64s:
        """Return the row of each series, -1 without one, int64[k]."""
        rows = self._table.find(keys.series)
        rows[~self._there[rows]] = NO_ROW
        return rows

    def list_rows(self) -> Int64s:
        """Return every row in use."""
        return np.flatnonzero(self._there[: self._table.end])

    def select_used(self, rows: Int64s) -> Int64s:
        """Return the given rows that are in use now."""
        there: Int64s = rows[self._there[rows]]
        return there

    def find_job_rows(self, job: int) -> Int64s:
        """Return the rows of a job's series."""
        end = self._table.end
        return np.flatnonzero(self._there[:end] & (self.job[:end] == np.uint64(job)))

    def add_all(self, keys: SeriesKeys, since_ms: int) -> Int64s:
        """Add rows without samples for distinct series that have none. Return their numbers, int64[k]."""
        rows = self._table.assign_rows(keys.series)
        with self.marks.mark_writing(rows):
            self.job[rows] = keys.job
            self.since[rows], self.last[rows] = since_ms, _NEVER
            self.first_page[rows] = self.last_page[rows] = NO_PAGE
            self._there[rows] = True
        self._count += len(rows)
        self._generation[0] += len(rows)
        return rows

    def remove(self, rows: Int64s) -> None:
        """Remove these series; the caller returns their pages."""
        with self.marks.mark_writing(rows):
            self._there[rows] = False
        self._count -= len(rows)
        self._generation[0] += len(rows)


class PageWriter:
    """Appends to pages."""

    def __init__(self, pages: Pages, rows: SeriesRows) -> None:
        self._stock = pages.stock
        self._at = kernel.list_places(
            [
                *(pages.distance, pages.value, pages.base, pages.following, pages.filled, pages.free),
                *(rows.first_page, rows.last_page, rows.last, rows.since, rows.written, rows.mark),
            ]
        )  # the arrays never move

    def append(self, row_numbers: Int64s, columns: SampleColumns, keep_from: int, write: int) -> SampleColumns:
        """Append samples to their rows (``row_numbers`` by index, -1 for none). Return the others.

        ``write`` becomes the number of the last write of every row that has a sample.
        """
        left = kernel.append(
            self._at, self._stock, row_numbers, (columns.index, columns.time, columns.value), keep_from, write
        )
        return columns.select(left)
