"""Reads samples from the pages: raw, in buckets, or the last one before a time."""

from jobmeter.kernel import window as kernel
from jobmeter.model.batch import Bools, BucketColumns, Float64s, Int64s, References, SampleColumns
from jobmeter.model.time import TimeRange
from jobmeter.store.window.pages import Pages, SeriesRows

_ROOM = 10_000
"""Buckets that are allocated without counting them first."""


class PageReader:
    """Reads rows of pages. It is bound to the current arrays of ``rows``: when they grow, make a new one.

    The caller prevents writes meanwhile. ``at`` has the addresses for the kernel.
    """

    def __init__(self, pages: Pages, rows: SeriesRows) -> None:
        self.first_page = rows.first_page
        self.at = kernel.pages_of(
            pages.distance, pages.value, pages.base, pages.following, pages.filled, rows.first_page, rows.since
        )  # the arrays keep their addresses for the life of this object

    def size(self, rows: Int64s, span: TimeRange, step_ms: int) -> tuple[int, int]:
        """Count the samples of the rows in a span, and the buckets that they fill."""
        return kernel.measure(self.at, rows, span.start_ms, span.end_ms, step_ms)

    def samples(self, rows: Int64s, span: TimeRange, first_ms: int, most: int) -> SampleColumns:
        """Return the first samples of rows in a span, row after row, at most ``most``.

        The index is a position in ``rows``. The samples of the first row begin at ``first_ms``.
        """
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
        """Return the samples in buckets, and update the references. None for more than ``most`` samples."""
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
        return kernel.previous(self.at, rows, before_ms)
