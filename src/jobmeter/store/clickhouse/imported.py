"""Statistics of imported samples by hour, for questions before the roll-up.

The journal computes the statistics when it inserts samples of a series that has no earlier samples in the engine. So
the first question after an import need not read the samples again.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.kernel.sort_dedupe import RunBuckets
from jobmeter.model.batch import Bools, BucketColumns, SeriesKeys, Uint64s
from jobmeter.model.time import HOUR, MAX_TIME_MS, TimeRange
from jobmeter.store.clickhouse.order import Positions
from jobmeter.store.clickhouse.rows import JournalBlock

_MOST_HOURS = 1 << 18
"""Most hours of series that are stored, 20 MiB."""
_MOST_SERIES = 1 << 16
_ALWAYS = 0, MAX_TIME_MS + 1
_NO_HOURS = RunBuckets(np.empty(0, np.uint64), *(np.empty(0, np.int64),) * 4, *(np.empty(0),) * 5)


class ImportedSeries(msgspec.Struct, frozen=True, eq=False):
    """Series whose first samples this process inserts, and the hours of all their samples in the engine.

    ``ids`` uint64[k], sorted. ``hours``: sorted by series and time; ``owner`` has the series ids. A series without
    hours has no samples in the engine.
    """

    ids: Uint64s
    hours: RunBuckets

    def begin(self, ids: Uint64s) -> "ImportedSeries":
        """Add series that have no samples yet. Beyond the bound all series are dropped."""
        ids = np.union1d(self.ids, ids)
        return NOTHING if len(ids) > _MOST_SERIES else ImportedSeries(ids, self.hours)

    def has(self, ids: Uint64s) -> Bools:
        """Return bool[k]: True for each series of ``ids`` whose hours are complete."""
        place = np.searchsorted(self.ids, ids)
        here = place < len(self.ids)
        here[here] = self.ids[place[here]] == ids[here]
        return here

    def add_stored(self, sections: Sequence[JournalBlock]) -> "ImportedSeries":
        """Add samples that the engine has accepted. Drop series whose samples of an hour may have been replaced."""
        if not len(self.ids):
            return self
        parts, lost, size = [self.hours], np.empty(0, np.uint64), len(self.hours.time)
        for section in sections:
            ours = np.flatnonzero(self.has(section.rows.series))
            if not len(ours):
                continue
            found = section.bucket(ours, _ALWAYS, HOUR)
            if found is None:
                lost = np.append(lost, section.rows.series[ours])
                continue
            parts.append(found._replace(owner=section.rows.series[ours][found.owner]))
            size += len(found.time)
            if size > _MOST_HOURS:
                return NOTHING
        if len(parts) == 1 and not len(lost):
            return self
        joined = _join_buckets(parts)
        hours, clashing = _merge_rows(joined, HOUR)
        lost = np.append(lost, joined.owner[clashing])
        return ImportedSeries(np.setdiff1d(self.ids, lost), _select_buckets(hours, ~np.isin(hours.owner, lost)))

    def without(self, other: "ImportedSeries", left: "ImportedSeries") -> "ImportedSeries":
        """Return these series with the hours of ``left``, without the series of ``other`` that ``left`` lacks."""
        return ImportedSeries(np.setdiff1d(self.ids, np.setdiff1d(other.ids, left.ids)), left.hours)

    def buckets(
        self, sections: Sequence[JournalBlock], keys: SeriesKeys, span: TimeRange, step_ms: int
    ) -> BucketColumns | None:
        """Return the samples of some series in buckets, without the increases of counters.

        ``sections`` have the samples that the engine may lack. None unless all other samples of the series are in whole
        hours here, and their buckets have whole hours.
        """
        if not self.has(keys.series).all():
            return None
        order = np.argsort(keys.series)
        place = np.searchsorted(keys.series, self.hours.owner, sorter=order)
        here = place < len(keys)
        here[here] = keys.series[order[place[here]]] == self.hours.owner[here]
        here &= (self.hours.last_time >= span.start_ms) & (self.hours.first_time < span.end_ms)
        hours = _select_buckets(self.hours._replace(owner=place), here)
        cut = (hours.first_time < span.start_ms) | (hours.last_time >= span.end_ms)
        if cut.any() or (len(hours.time) and step_ms % HOUR):
            return None
        parts = [hours._replace(owner=order[hours.owner])]
        for section in sections:
            part = section.buckets(keys, span, step_ms)
            if part is None:
                return None
            parts.append(part)
        merged, clashing = _merge_rows(_join_buckets(parts), step_ms)
        return None if clashing.any() else _columns(merged)


NOTHING = ImportedSeries(np.empty(0, np.uint64), _NO_HOURS)


def _join_buckets(parts: Sequence[RunBuckets]) -> RunBuckets:
    return RunBuckets(*map(np.concatenate, zip(*parts, strict=True)))


def _select_buckets(rows: RunBuckets, chosen: Bools | Positions) -> RunBuckets:
    return RunBuckets._make(column[chosen] for column in rows)


def _merge_rows(rows: RunBuckets, step_ms: int) -> tuple[RunBuckets, Bools]:
    """Merge rows into buckets of ``step_ms``. Also return bool[n]: True for a row that overlaps another in time.

    Samples of overlapping rows may replace each other, so the buckets of these rows are wrong.
    """
    rows = rows._replace(time=rows.time // step_ms * step_ms)
    order = np.lexsort((rows.first_time, rows.time, rows.owner))
    clashing = np.zeros(len(order), np.bool_)
    if not len(order):
        return rows, clashing
    rows = _select_buckets(rows, order)
    again = (rows.owner[1:] == rows.owner[:-1]) & (rows.time[1:] == rows.time[:-1])
    clashing[order[1:]] = again & (rows.first_time[1:] <= rows.last_time[:-1])
    starts = np.flatnonzero(np.append(True, ~again))
    ends = np.append(starts[1:], len(order)) - 1
    merged = RunBuckets(
        owner=rows.owner[starts],
        time=rows.time[starts],
        samples=np.add.reduceat(rows.samples, starts),
        first_time=rows.first_time[starts],
        last_time=rows.last_time[ends],
        sum=np.add.reduceat(rows.sum, starts),
        minimum=np.minimum.reduceat(rows.minimum, starts),
        maximum=np.maximum.reduceat(rows.maximum, starts),
        first=rows.first[starts],
        last=rows.last[ends],
    )
    return merged, clashing


def _columns(rows: RunBuckets) -> BucketColumns:
    return BucketColumns(
        index=rows.owner.astype(np.uint32),
        time=rows.time,
        count=rows.samples.astype(np.uint64),
        sum=rows.sum,
        minimum=rows.minimum,
        maximum=rows.maximum,
        first=rows.first,
        first_time=rows.first_time,
        last=rows.last,
        last_time=rows.last_time,
        increase=np.zeros(len(rows.time)),
        elapsed=np.zeros(len(rows.time), np.int64),
    )
