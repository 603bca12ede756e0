"""Samples in pages of fixed size: memory that is taken once, and given from one series to the next without moving."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.window import PAGE
from jobmeter.model.batch import Float64s, Int64s

Int32s = NDArray[np.int32]

PAGE_BYTES = PAGE * 12 + 20
"""A page with everything that is kept of it."""
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
