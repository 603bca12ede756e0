"""Samples with their keys, as runs of one series each: how they travel to disk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Float64s, Int64s, SampleBatch, SeriesKeys, Uint64s
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY, HOUR
from jobmeter.store.clickhouse.order import Positions, run_starts

JobHour = tuple[int, int]
"""A job key and the start of an hour in milliseconds."""

DAYS = ("raw_days", "minute_days", "hour_days")
_LONG_RUN = 64


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """``n`` samples in ``k`` runs, in the order in which they count: a later row replaces an earlier one.

    ``keys``: of each run; the very same object wherever the same list of series came again. ``count``: int64[k], the
    samples of each run, at least 1. ``time``: int64[n] ms; ``value``: float64[n].
    """

    keys: SeriesKeys
    count: Int64s
    time: Int64s
    value: Float64s
    retention: Retention

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def of(cls, batch: SampleBatch, retention: Retention) -> "Rows":
        """The rows of a batch that has some."""
        index = batch.index
        keys = batch.keys
        starts = run_starts(index)
        chosen = index[starts]
        count = np.diff(starts, append=len(index))
        if len(chosen) != len(keys) or int(chosen[0]) or (chosen[1:] != chosen[:-1] + np.uint32(1)).any():
            keys = SeriesKeys(keys.job[chosen], keys.series[chosen])
        return cls(keys, count, batch.time, batch.value, retention)

    @property
    def job(self) -> Uint64s:
        """uint64[k]: the job key of each run."""
        return self.keys.job

    @property
    def series(self) -> Uint64s:
        """uint64[k]: the series id of each run."""
        return self.keys.series

    @property
    def bytes(self) -> int:
        """Memory that the arrays take."""
        return 24 * len(self.count) + 16 * len(self.time)

    def starts(self) -> Positions:
        """Where each run begins."""
        return np.cumsum(self.count) - self.count

    def touched(self, before_ms: int) -> set[JobHour]:
        """The (job, hour) pairs that have rows before a time."""
        if int(self.time.min()) >= before_ms:
            return set()
        hour = self.time // HOUR
        job = np.repeat(self.job, self.count)
        late = self.time < before_ms
        job, hour = job[late], hour[late]
        # Rows come in runs of one job and hour: look at the first of each run only.
        first = np.flatnonzero(np.concatenate(([True], (job[1:] != job[:-1]) | (hour[1:] != hour[:-1]))))
        return {(one, at * HOUR) for one, at in zip(job[first].tolist(), hour[first].tolist(), strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of equal length, one array a column: ``days`` holds the days of ``DAYS``, in that order."""

    job: Uint64s
    series: Uint64s
    time: Int64s
    value: Float64s
    days: tuple[NDArray[np.uint16], ...]

    def __len__(self) -> int:
        return len(self.time)

    def columns(self) -> list[NDArray[np.generic]]:
        """All of them: job, series, time, value, days."""
        return [self.job, self.series, self.time, self.value, *self.days]

    def take(self, chosen: "slice | Positions | NDArray[np.bool_]") -> "Table":
        """Some of the rows."""
        days = tuple(column[chosen] for column in self.days)
        return Table(self.job[chosen], self.series[chosen], self.time[chosen], self.value[chosen], days)


def joined(group: Sequence[Rows]) -> Table:
    """The rows of a group as they came."""
    lengths = [len(rows) for rows in group]
    return Table(
        np.concatenate([np.repeat(rows.job, rows.count) for rows in group]),
        np.concatenate([np.repeat(rows.series, rows.count) for rows in group]),
        np.concatenate([rows.time for rows in group]),
        np.concatenate([rows.value for rows in group]),
        tuple(np.repeat(_days(group, name), lengths) for name in DAYS),
    )


def settled(group: Sequence[Rows]) -> Table:
    """The rows of a group sorted by (job, series, time); of each sample the row that came last.

    Rows mostly come as runs that ascend in time: then whole runs are put in order and no row is compared with another
    one but its neighbour.
    """
    job, series, count, time, value = (
        np.concatenate([getattr(rows, name) for rows in group]) for name in ("job", "series", "count", "time", "value")
    )
    starts = np.cumsum(count) - count
    order = np.lexsort((time[starts], series, job))
    table = Table(
        np.repeat(job[order], count[order]),
        np.repeat(series[order], count[order]),
        *_gathered(time, value, starts[order], count[order]),
        tuple(_kept_days(group, name, order, count) for name in DAYS),
    )
    same = (table.series[1:] == table.series[:-1]) & (table.job[1:] == table.job[:-1])
    if not (same & (table.time[1:] <= table.time[:-1])).any():
        return table
    return _each_once(joined(group))


def _gathered(time: Int64s, value: Float64s, starts: Positions, count: Int64s) -> tuple[Int64s, Float64s]:
    """The rows of runs, run after run."""
    if len(time) >= _LONG_RUN * len(starts):
        parts = [slice(start, start + length) for start, length in zip(starts.tolist(), count.tolist(), strict=True)]
        return np.concatenate([time[part] for part in parts]), np.concatenate([value[part] for part in parts])
    at = np.repeat(starts - (np.cumsum(count) - count), count) + np.arange(len(time))
    return time[at], value[at]


def _each_once(table: Table) -> Table:
    """The rows in order, one by one; of equal samples the last."""
    order = np.lexsort((table.time, table.series, table.job))
    table = table.take(order)
    again = (
        (table.time[1:] == table.time[:-1])
        & (table.series[1:] == table.series[:-1])
        & (table.job[1:] == table.job[:-1])
    )
    return table.take(np.append(~again, True)) if again.any() else table


def _days(group: Sequence[Rows], name: str) -> NDArray[np.uint16]:
    return np.fromiter((getattr(rows.retention, name) for rows in group), np.uint16, len(group))


def _kept_days(group: Sequence[Rows], name: str, order: Positions, count: Int64s) -> NDArray[np.uint16]:
    days = _days(group, name)
    if (days == days[0]).all():
        return np.full(int(count.sum()), days[0], np.uint16)
    return np.repeat(np.repeat(days, [len(rows.count) for rows in group])[order], count[order])


def day_parts(time: Int64s, rows: int, days: int) -> "Iterator[slice | Positions]":
    """Parts of at most so many rows that touch at most so many days, in order within every day.

    Where it takes several parts, whole days stay together as far as they fit: the engine makes a file set of each day
    of each part.
    """
    day = time // DAY
    first = int(day.min())
    span = int(day.max()) - first
    if not span or (span < days and len(time) <= rows):
        yield from (slice(start, start + rows) for start in range(0, len(time), rows))
        return
    # Sixteen bits are sorted by counting, many times as fast.
    number = (day - first).astype(np.uint16) if span < 1 << 16 else day
    order = np.argsort(number, kind="stable")
    begin, touched = 0, 0
    edges = [*run_starts(number[order]).tolist(), len(time)]
    for at, end in pairwise(edges):
        if touched and (end - begin > rows or touched == days):
            yield order[begin:at]
            begin, touched = at, 0
        touched += 1
        while end - begin > rows:
            yield order[begin : begin + rows]
            begin += rows
    if begin < len(time):
        yield order[begin:]
