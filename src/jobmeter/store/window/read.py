"""Reads samples of series from pages: raw, in buckets, joined to lines, or the last one before a time."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from jobmeter.kernel import window as kernel
from jobmeter.model.batch import Bools, BucketColumns, Int64s, References, SampleColumns, SeriesKeys, Uint64s
from jobmeter.model.time import TimeRange
from jobmeter.store.window.pages import Pages, SeriesRows

T = TypeVar("T")

MOST_SAMPLES = 1_000_000
"""Samples that are put in buckets while writers wait, some milliseconds; more samples are copied in parts."""
_ROOM = 10_000
"""Buckets that are allocated without counting them first."""


class FoundRows(NamedTuple):
    """The rows of a list of keys, -1 for none, valid for one ``generation`` of the rows."""

    generation: int
    rows: Int64s
    whole: bool
    """True if each series has a row."""
    place: int
    """Address of ``rows``, for the kernel."""
    series: Uint64s
    series_place: int


class WindowReads:
    """Answers from pages. A subclass keeps writes and reads apart: ``_consistent``."""

    def __init__(self, pages: Pages, rows: SeriesRows) -> None:
        self._pages = pages
        self._rows = rows
        columns = pages.distance, pages.value, pages.base, pages.following, pages.filled
        # The arrays never move.
        self._at = kernel.list_pages([*columns, rows.first_page, rows.since, rows.mark], pages.size)

    def _consistent(self, keys: SeriesKeys, answer: Callable[[FoundRows], T | None]) -> T | None:
        """Return an answer from the rows of these series that no write changed meanwhile."""
        raise NotImplementedError

    def read(
        self,
        keys: SeriesKeys,
        span: TimeRange,
        *,
        first: int = 0,
        first_ms: int | None = None,
        most: int = MOST_SAMPLES,
    ) -> SampleColumns | None:
        """Return the first samples of those series in a span, series after series, at most ``most``.

        They begin with the series at position ``first``, and in that series at ``first_ms``. The index is a position in
        ``keys``. None if the window may lack samples of any series from ``first`` on.
        """
        begin_ms = span.start_ms if first_ms is None else first_ms

        def answer(found: FoundRows) -> SampleColumns | None:
            rows = found.rows[first:]
            if not len(rows):
                return SampleColumns.make_empty()
            since = self._rows.since
            if not found.whole or int(since[rows[0]]) > begin_ms:
                return None
            if len(rows) > 1 and int(since[rows[1:]].max()) > span.start_ms:
                return None
            return SampleColumns(*kernel.read(self._at, rows, begin_ms, span.start_ms, span.end_ms, most))

        columns = self._consistent(keys, answer)
        if columns is None or not first:
            return columns
        return SampleColumns(columns.index + np.uint32(first), columns.time, columns.value)

    def read_buckets(
        self,
        keys: SeriesKeys,
        span: TimeRange,
        step_ms: int,
        counters: Bools,
        references: References,
        most: int | None = None,
    ) -> BucketColumns | None:
        """Return the samples in buckets; see ``StoreMemory.read_buckets``. ``most`` is ``MOST_SAMPLES`` by default."""
        most = MOST_SAMPLES if most is None else most

        def answer(found: FoundRows) -> tuple[BucketColumns, References] | None:
            if not self._holds_all_since(found, span.start_ms):
                return None
            ends, moved = (span.start_ms, span.end_ms), references.copy()
            room = len(found.rows) * (span.length_ms // step_ms + 2)
            if room > _ROOM:
                samples, room = kernel.measure(self._at, found.rows, *ends, step_ms)
                if samples > most:
                    return None
            last = moved.time, moved.value
            made = kernel.bucket(self._at, found.rows, ends, step_ms, counters, last, (most, room))
            return None if made is None else (BucketColumns(*made), moved)

        made = self._consistent(keys, answer)
        if made is None:
            return None
        references.become(made[1])
        return made[0]

    def average_lines(
        self, keys: SeriesKeys, grid: kernel.WindowGrid, span: TimeRange, step_ms: int, most: int
    ) -> kernel.LineColumns | None:
        """Return the means of gauges in buckets, joined by line; see ``StoreMemory.average_lines``."""
        at, ends = self._at, (span.start_ms, span.end_ms)
        if span.start_ms == span.end_ms:
            return None
        return self._consistent(keys, lambda found: kernel.average_lines(at, found.place, grid, ends, step_ms, most))

    def write_revision(self, keys: SeriesKeys) -> int | None:
        """Return the number of the last write to these series, at any time; None if the window lacks any of them."""

        def answer(found: FoundRows) -> int | None:
            return int(self._rows.written[found.rows].max()) if found.whole and len(found.rows) else None

        return self._consistent(keys, answer)

    def read_previous(self, keys: SeriesKeys, before_ms: int) -> SampleColumns | None:
        """Return each series' last sample before a time; None if the window may lack any of these samples."""

        def answer(found: FoundRows) -> SampleColumns | None:
            if not self._holds_all_since(found, before_ms):
                return None
            time, value = kernel.find_previous(self._at, found.rows, before_ms)
            if not np.all(time >= self._rows.since[found.rows]):
                return None
            return SampleColumns(np.arange(len(time), dtype=np.uint32), time, value)

        return self._consistent(keys, answer)

    def _holds_all_since(self, found: FoundRows, start_ms: int) -> bool:
        """Return True if each series has a row, and each row has every sample since a time."""
        return not len(found.rows) or (found.whole and int(self._rows.since[found.rows].max()) <= start_ms)

    def _look_up(self, keys: SeriesKeys) -> FoundRows:
        """Return the rows of those series.

        Cached entries live as long as their keys, which decoders and queries use again.
        """
        found: FoundRows | None = keys.derived.get(self)
        generation = self._rows.generation
        if found is None or found.generation != generation:
            rows, series = self._rows.find(keys), np.ascontiguousarray(keys.series)
            whole = not len(rows) or int(rows.min()) >= 0
            found = FoundRows(generation, rows, whole, rows.ctypes.data, series, series.ctypes.data)
            keys.derived[self] = found
        return found
