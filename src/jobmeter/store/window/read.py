"""Reads samples from the pages: raw, in buckets, or the last one before a time."""

import numpy as np

from jobmeter.kernel import window as kernel
from jobmeter.model.batch import NEVER, Bools, BucketColumns, Float64s, Int64s, References, SampleColumns
from jobmeter.model.time import TimeRange
from jobmeter.store.window.pages import Pages, SeriesRows

_ROOM = 10_000
"""Buckets that are allocated without counting them first."""
_PAGES = 1_024
"""Pages whose samples are copied at a time without the kernel."""


class PageReader:
    """Reads rows of pages. It is bound to the current arrays of ``rows``: when they grow, make a new one.

    The caller prevents writes meanwhile. ``at`` has the addresses for the kernel.
    """

    def __init__(self, pages: Pages, rows: SeriesRows) -> None:
        self._pages = pages
        self.first_page = rows.first_page
        self.at = kernel.pages_of(
            pages.distance, pages.value, pages.base, pages.following, pages.filled, rows.first_page, rows.since
        )  # the arrays keep their addresses for the life of this object

    def size(self, rows: Int64s, span: TimeRange, step_ms: int) -> tuple[int, int]:
        """Count the samples of the rows in a span, and the buckets that they fill. Only with the kernel."""
        return kernel.measure(self.at, rows, span.start_ms, span.end_ms, step_ms)

    def samples(self, rows: Int64s, span: TimeRange, first_ms: int, most: int) -> SampleColumns:
        """Return the first samples of rows in a span, row after row, at most ``most``.

        The index is a position in ``rows``. The samples of the first row begin at ``first_ms``.
        """
        if not kernel.AVAILABLE:
            return self._samples_in_arrays(rows, span, first_ms, most)
        return SampleColumns(*kernel.read(self.at, rows, first_ms, span.start_ms, span.end_ms, most))

    def buckets(
        self,
        rows: Int64s,
        span: TimeRange,
        step_ms: int,
        counters: Bools,
        references: References,
        most: int,
    ) -> BucketColumns | None:
        """Return the samples in buckets, and update the references. None for more than ``most`` samples.

        Only with the kernel.
        """
        ends = span.start_ms, span.end_ms
        room = len(rows) * (span.length_ms // step_ms + 2)
        if room > _ROOM:
            samples, room = self.size(rows, span, step_ms)
            if samples > most:
                return None
        last = references.time, references.value
        found = kernel.bucket(self.at, rows, ends, step_ms, counters, last, (most, room))
        return None if found is None else BucketColumns(*found)

    def previous(self, rows: Int64s, before_ms: int) -> tuple[Int64s, Float64s]:
        """Return the time (``NEVER`` for none) and the value of each row's last sample before a time."""
        if kernel.AVAILABLE:
            return kernel.previous(self.at, rows, before_ms)
        times, values = np.full(len(rows), NEVER, np.int64), np.zeros(len(rows))
        position, time, value = self._content(rows)
        before = time < before_ms
        times[position[before]], values[position[before]] = time[before], value[before]  # the last one wins
        return times, values

    def _samples_in_arrays(self, rows: Int64s, span: TimeRange, first_ms: int, most: int) -> SampleColumns:
        start_ms = np.full(len(rows), span.start_ms)
        start_ms[:1] = first_ms
        position, pages = self._pages.chains(self.first_page[rows])
        near = (self._pages.newest(pages) >= start_ms[position]) & (self._pages.base[pages] < span.end_ms)
        position, pages = position[near], pages[near]
        parts, left = list[SampleColumns](), most
        for at in range(0, len(pages), _PAGES):
            of, time, value = self._pages.content(pages[at : at + _PAGES])
            index = position[at : at + _PAGES][of]
            inside = np.flatnonzero((time >= start_ms[index]) & (time < span.end_ms))[:left]
            parts.append(SampleColumns(index[inside].astype(np.uint32), time[inside], value[inside]))
            left -= len(inside)
            if not left:
                break
        return SampleColumns.joined(parts)

    def _content(self, rows: Int64s) -> tuple[Int64s, Int64s, Float64s]:
        """Return all samples of rows, by (position in ``rows``, time)."""
        position, pages = self._pages.chains(self.first_page[rows])
        of, time, value = self._pages.content(pages)
        return position[of], time, value
