"""Samples with their keys, as runs of one series each: the form in which they are written to disk."""

from collections.abc import Iterator, Sequence
from typing import Self

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from jobmeter.kernel.sort_dedupe import OwnedRuns, SeriesSlices
from jobmeter.model.batch import Float64s, Int64s, SampleBatch, SeriesKeys, Uint64s, find_runs, mark_first_rows
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY, HOUR, TimeRange
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.order import Positions

JobHour = tuple[int, int]
"""A job key and the start of an hour in milliseconds."""

DAYS = ("raw_days", "minute_days", "hour_days")
_LONG_RUN = 64
"""Average rows of a run from which whole runs are copied."""


class SampleRuns(msgspec.Struct, frozen=True, eq=False):
    """``n`` samples in ``k`` runs, in the order of writes: a later row replaces an earlier one.

    ``keys``: the key of each run; the same object for a repeated list of series. ``count``: int64[k], the samples of
    each run, at least 1. ``time``: int64[n] ms; ``value``: float64[n]. ``existing_span``: see ``span``.
    ``descriptors``: for the series without a durable descriptor for the day of the samples.
    """

    keys: SeriesKeys
    count: Int64s
    time: Int64s
    value: Float64s
    retention: Retention
    existing_span: tuple[int, int] | None = None
    descriptors: Descriptors | None = None

    def __len__(self) -> int:
        return len(self.time)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last time."""
        return self.existing_span or (int(self.time.min()), int(self.time.max()))

    @classmethod
    def from_batch(cls, batch: SampleBatch, descriptors: Descriptors | None, retention: Retention) -> "SampleRuns":
        """Make the runs of a batch that is not empty."""
        index, keys, span = batch.index, batch.keys, batch.span
        if batch.single:
            ones: Int64s | None = keys.derived.get(SampleRuns)
            if ones is None:
                ones = keys.derived[SampleRuns] = np.ones(len(index), np.int64)
            return cls(keys, ones, batch.time, batch.value, retention, span, descriptors)
        starts = find_runs(index)
        chosen = index[starts]
        count = np.diff(starts, append=len(index))
        if len(chosen) != len(keys) or int(chosen[0]) or (chosen[1:] != chosen[:-1] + np.uint32(1)).any():
            keys = keys.select(chosen)
        return cls(keys, count, batch.time, batch.value, retention, span, descriptors)

    @property
    def job(self) -> Uint64s:
        """Job key of each run, uint64[k]."""
        return self.keys.job

    @property
    def series(self) -> Uint64s:
        """Series id of each run, uint64[k]."""
        return self.keys.series

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        described = self.descriptors.nbytes if self.descriptors else 0
        return 24 * len(self.count) + 16 * len(self.time) + described

    def copy(self) -> "SampleRuns":
        """Copy the arrays, so that no larger ones stay referenced."""
        if _is_whole(self.time) and _is_whole(self.value):
            return self
        return replace(self, time=self.time.copy(), value=self.value.copy())

    def find_starts(self) -> Positions:
        """Return the start of each run."""
        return np.cumsum(self.count) - self.count

    def find_late_hours(self, before_ms: int) -> set[JobHour]:
        """Return the (job, hour) pairs that have rows before a time."""
        if self.span[0] >= before_ms:
            return set()
        hour = self.time // HOUR
        job = np.repeat(self.job, self.count)
        late = self.time < before_ms
        job, hour = job[late], hour[late]
        # Rows come in runs of one job and hour: take the first of each run only.
        first = find_runs(job, hour)
        return {(one, at * HOUR) for one, at in zip(job[first].tolist(), hour[first].tolist(), strict=True)}


class JournalBlock:
    """Rows stored together, sorted at the first read."""

    __slots__ = ("_order", "_series", "end_ms", "rows", "start_ms")

    def __init__(self, rows: SampleRuns) -> None:
        self.rows = rows
        self.start_ms = rows.span[0]
        self.end_ms = rows.span[1] + 1
        self._order: Positions | None = None
        self._series: Uint64s | None = None

    def meets(self, span: TimeRange) -> bool:
        """Return True if a row may lie in the span."""
        return self.start_ms < span.end_ms and self.end_ms > span.start_ms

    def select(self, keys: SeriesKeys, span: TimeRange) -> SeriesSlices | None:
        """Return the rows of some series in a span, with the positions of their series in ``keys``; None for no rows.

        The rows of a series are in their order of arrival, the series in the order of ``keys``.
        """
        if not self.meets(span):
            return None
        chosen, hits = self._runs_of(keys)
        if not len(chosen):
            return None
        rows, count = self.rows, self.rows.count[chosen]
        slots = np.repeat(np.arange(len(keys)), hits)
        found = SeriesSlices(slots, count, *gather_rows(rows.time, rows.value, rows.find_starts()[chosen], count))
        return found if span.start_ms <= self.start_ms and self.end_ms <= span.end_ms else _cut_runs(found, span)

    def select_runs(self, keys: SeriesKeys) -> OwnedRuns:
        """Return the runs of some series; the owners are positions in ``keys``."""
        chosen, hits = self._runs_of(keys)
        return self.assign_runs(chosen, np.repeat(np.arange(len(keys)), hits))

    def assign_runs(self, chosen: Positions, owner: NDArray[np.generic]) -> OwnedRuns:
        """Return some of the runs with the owner of each."""
        rows = self.rows
        return OwnedRuns(owner, rows.find_starts()[chosen], rows.count[chosen], rows.time, rows.value)

    def count(self, keys: SeriesKeys) -> int:
        """Count the rows of some series, at any time."""
        return int(self.rows.count[self._runs_of(keys)[0]].sum())

    def _runs_of(self, keys: SeriesKeys) -> tuple[Positions, Positions]:
        """Return the runs of some series in the order of ``keys``, and the number of runs of each."""
        order, series = self._order_series()
        first = np.searchsorted(series, keys.series, "left")
        hits = np.searchsorted(series, keys.series, "right") - first
        return order[expand_ranges(first, hits)], hits

    def _order_series(self) -> tuple[Positions, Uint64s]:
        if self._order is None or self._series is None:
            order = np.argsort(self.rows.series, kind="stable")
            # Two concurrent readers sort the same rows: the result is the same.
            self._series = self.rows.series[order]
            self._order = order
        return self._order, self._series


def _cut_runs(runs: SeriesSlices, span: TimeRange) -> SeriesSlices | None:
    """Return the rows in a span; None for no rows."""
    inside = (runs.time >= span.start_ms) & (runs.time < span.end_ms)
    count = np.add.reduceat(inside, np.cumsum(runs.counts) - runs.counts, dtype=np.int64)
    some = count > 0
    if not some.any():
        return None
    return SeriesSlices(runs.slots[some], count[some], runs.time[inside], runs.value[inside])


class InsertBlock(msgspec.Struct, frozen=True, eq=False):
    """Columns of equal length: ``days`` has the days of ``DAYS``, in that order."""

    job: Uint64s
    series: Uint64s
    time: Int64s
    value: Float64s
    days: tuple[NDArray[np.uint16], ...]

    def __len__(self) -> int:
        return len(self.time)

    def take(self, chosen: "slice | Positions | NDArray[np.bool_]") -> "InsertBlock":
        """Return some of the rows."""
        days = tuple(column[chosen] for column in self.days)
        return InsertBlock(self.job[chosen], self.series[chosen], self.time[chosen], self.value[chosen], days)


def join_runs(group: Sequence[SampleRuns]) -> InsertBlock:
    """Return the rows of a group in their order of arrival."""
    lengths = [len(rows) for rows in group]
    return InsertBlock(
        np.concatenate([np.repeat(rows.job, rows.count) for rows in group]),
        np.concatenate([np.repeat(rows.series, rows.count) for rows in group]),
        np.concatenate([rows.time for rows in group]),
        np.concatenate([rows.value for rows in group]),
        tuple(np.repeat(list_days(group, name), lengths) for name in DAYS),
    )


def list_descriptors(group: Sequence[SampleRuns]) -> list[Descriptors]:
    """Return all descriptors that come with some rows."""
    return [rows.descriptors for rows in group if rows.descriptors is not None]


def list_days(group: Sequence[SampleRuns], name: str) -> NDArray[np.uint16]:
    """Return the retention, in days of a kind, of each member of a group."""
    return np.fromiter((getattr(rows.retention, name) for rows in group), np.uint16, len(group))


def _is_whole(array: NDArray[np.generic]) -> bool:
    """Return True if the array keeps no larger memory alive than its own."""
    base: object = array.base
    return base is None or (isinstance(base, bytes) and len(base) == array.nbytes)


def split_by_days(group: Sequence[SampleRuns], rows: int, days: int) -> Iterator[list[SampleRuns]]:
    """Split a group, which is not empty, into parts with at most ``days`` days each, in order within every day.

    Whole days stay together, because the engine makes a file set of each day of each part: a part has at most ``rows``
    rows or lies on a single day.
    """
    cuts = [_DayCut.from_rows(one) for one in group]
    days_found, place = np.unique(np.concatenate([cut.day for cut in cuts]), return_inverse=True)
    sizes = np.bincount(place, np.concatenate([cut.count for cut in cuts])).astype(int)
    chosen, size = list[int](), 0
    for day, count in zip(days_found.tolist(), sizes.tolist(), strict=True):
        if chosen and (size + count > rows or len(chosen) == days):
            yield _select_days(cuts, chosen)
            chosen, size = [], 0
        chosen.append(day)
        size += count
    yield list(group) if len(chosen) == len(sizes) else _select_days(cuts, chosen)


def split_rows(group: Sequence[SampleRuns], rows: int) -> Iterator[list[SampleRuns]]:
    """Split a group into consecutive portions of about ``rows`` rows: the rows that reach the number end a portion."""
    portion, size = list[SampleRuns](), 0
    for one in group:
        portion.append(one)
        size += len(one)
        if size >= rows:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _select_days(cuts: "Sequence[_DayCut]", days: Sequence[int]) -> list[SampleRuns]:
    return [rows for cut in cuts if (rows := cut.cut_days(days[0], days[-1])) is not None]


class _DayCut(msgspec.Struct, frozen=True, eq=False):
    """Rows, cut into ``k`` pieces of one run and one day each if they lie on several days.

    ``day``, ``start``, ``count``: int64[k], the day of each piece, its first row, and its number of rows.
    """

    rows: SampleRuns
    day: Int64s
    start: Positions
    count: Int64s

    @classmethod
    def from_rows(cls, rows: SampleRuns) -> Self:
        first, last = (time // DAY for time in rows.span)
        if first == last:
            return cls(rows, np.array([first]), np.zeros(1, np.intp), np.array([len(rows)]))
        day = rows.time // DAY
        begins = mark_first_rows(day)
        begins[rows.find_starts()] = True
        start = np.flatnonzero(begins)
        return cls(rows, day[start], start, np.diff(start, append=len(day)))

    def cut_days(self, first: int, last: int) -> SampleRuns | None:
        """Return the rows of some days, both included; None for no rows."""
        chosen = (self.day >= first) & (self.day <= last)
        if chosen.all():
            return self.rows
        if not chosen.any():
            return None
        rows, start, count = self.rows, self.start[chosen], self.count[chosen]
        run = np.searchsorted(rows.find_starts(), start, "right") - 1
        time, value = gather_rows(rows.time, rows.value, start, count)
        return SampleRuns(SeriesKeys(rows.job[run], rows.series[run]), count, time, value, rows.retention)


def gather_rows(time: Int64s, value: Float64s, starts: Positions, count: Int64s) -> tuple[Int64s, Float64s]:
    """Return the rows of some runs, run after run: ``count`` rows of each, from ``starts`` on."""
    if int(count.sum()) >= _LONG_RUN * len(starts):
        parts = [slice(start, start + length) for start, length in zip(starts.tolist(), count.tolist(), strict=True)]
        return np.concatenate([time[part] for part in parts]), np.concatenate([value[part] for part in parts])
    at = expand_ranges(starts, count)
    return time[at], value[at]


def expand_ranges(start: Positions, length: Int64s) -> Positions:
    """Return ``start[0], start[0] + 1, ...`` for ``length[0]`` numbers, then the same for the next."""
    return np.repeat(start - (np.cumsum(length) - length), length) + np.arange(int(length.sum()))
