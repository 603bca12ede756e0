"""Statistics of imported samples by hour, for questions before the roll-up.

The journal computes the statistics when it inserts samples of a series that has no earlier samples in the engine. So
the first question after an import need not read the samples again.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.kernel.sort_dedupe import BUCKET, Buckets, make_buckets
from jobmeter.model.batch import Bools, BucketColumns, SeriesKeys, Uint64s
from jobmeter.model.time import HOUR, MAX_TIME_MS, TimeRange
from jobmeter.store.clickhouse.order import Positions
from jobmeter.store.clickhouse.rows import JournalBlock, expand_ranges

_MOST_HOURS = 1 << 18
"""Most hours of series that are stored, 20 MiB."""
_MOST_SERIES = 1 << 16
_ALWAYS = 0, MAX_TIME_MS + 1
_MOST_BUCKETS = 1 << 21
"""Most buckets of waiting samples that a question reads here, 170 MB."""


class ImportedSeries(msgspec.Struct, frozen=True, eq=False):
    """Series whose first samples this process inserts, and the hours of all their samples in the engine.

    ``ids`` uint64[k], sorted. ``hours``: sorted by series and time; ``owner`` has the series ids. A series without
    hours has no samples in the engine.
    """

    ids: Uint64s
    hours: Buckets

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
        parts, lost, size = [self.hours], np.empty(0, np.uint64), len(self.hours)
        for section in sections:
            ours = np.flatnonzero(self.has(section.rows.series))
            if not len(ours):
                continue
            runs = section.assign_runs(ours, section.rows.series[ours])
            found, wrong = make_buckets([runs], _ALWAYS, HOUR, len(section.rows))
            lost = np.append(lost, wrong)
            parts.append(found)
            size += len(found)
            if size > _MOST_HOURS:
                return NOTHING
        if len(parts) == 1 and not len(lost):
            return self
        hours, clashing = _merge_buckets(parts, HOUR)
        lost = np.append(lost, clashing)
        return ImportedSeries(np.setdiff1d(self.ids, lost), hours[~np.isin(hours["owner"], lost)])

    def subtract(self, other: "ImportedSeries", left: "ImportedSeries") -> "ImportedSeries":
        """Return these series with the hours of ``left``, without the series of ``other`` that ``left`` lacks."""
        return ImportedSeries(np.setdiff1d(self.ids, np.setdiff1d(other.ids, left.ids)), left.hours)

    def read_buckets(
        self, sections: Sequence[JournalBlock], keys: SeriesKeys, span: TimeRange, step_ms: int
    ) -> BucketColumns | None:
        """Return the samples of some series in buckets, without the increases of counters.

        ``sections`` have the samples that the engine may lack. None unless all other samples of the series are in whole
        hours here, and their buckets have whole hours.
        """
        if not self.has(keys.series).all():
            return None
        first, end = (np.searchsorted(self.hours["owner"], keys.series, side) for side in ("left", "right"))
        hours = _take(self.hours, expand_ranges(first, end - first))
        hours["owner"] = np.repeat(np.arange(len(keys)), end - first)
        outside = (hours["last_time"] < span.start_ms) | (hours["first_time"] >= span.end_ms)
        if outside.any():
            hours = hours[~outside]
        cut = (hours["first_time"] < span.start_ms) | (hours["last_time"] >= span.end_ms)
        if cut.any() or (len(hours) and step_ms % HOUR):
            return None
        runs = [section.select_runs(keys) for section in sections]
        waiting, wrong = make_buckets(runs, (span.start_ms, span.end_ms), step_ms, _MOST_BUCKETS)
        if len(wrong):
            return None
        merged, clashing = _merge_buckets([hours, waiting], step_ms) if len(hours) else (waiting, ())
        return None if len(clashing) else _columns(merged)


NOTHING = ImportedSeries(np.empty(0, np.uint64), np.empty(0, BUCKET))


def _merge_buckets(parts: Sequence[Buckets], step_ms: int) -> tuple[Buckets, Uint64s]:
    """Merge parts into buckets of ``step_ms``, sorted by owner and time. Each part is sorted by owner.

    Also return owners with rows that overlap in time. Samples of overlapping rows may replace each other, so the
    buckets of these owners are wrong.
    """
    rows = np.concatenate([part.view(np.uint64) for part in parts]).view(BUCKET)
    if (rows["owner"][1:] < rows["owner"][:-1]).any():
        rows = _take(rows, np.argsort(rows["owner"], kind="stable"))
    same = rows["owner"][1:] == rows["owner"][:-1]
    if (same & (rows["first_time"][1:] < rows["first_time"][:-1])).any():
        rows = _take(rows, np.lexsort((rows["first_time"], rows["owner"])))
    rows["time"] = rows["time"] // step_ms * step_ms
    again = same & (rows["time"][1:] == rows["time"][:-1])
    if not again.any():
        return rows, rows["owner"][:0]
    clashing = again & (rows["first_time"][1:] <= rows["last_time"][:-1])
    starts = np.flatnonzero(np.append(True, ~again))
    ends = np.append(starts[1:], len(rows)) - 1
    merged = _take(rows, starts)
    for name, join in _JOINS.items():
        merged[name] = join.reduceat(rows[name], starts)
    for name in ("last_time", "last"):
        merged[name] = rows[name][ends]
    return merged, rows["owner"][1:][clashing]


def _take(rows: Buckets, chosen: Positions) -> Buckets:
    """Return some rows. NumPy copies numbers many times faster than structures."""
    numbers = rows.view(np.uint64).reshape(-1, BUCKET.itemsize // 8)
    return numbers[chosen].reshape(-1).view(BUCKET)


_JOINS = {"samples": np.add, "sum": np.add, "minimum": np.minimum, "maximum": np.maximum}


def _columns(rows: Buckets) -> BucketColumns:
    column = {name: np.ascontiguousarray(rows[name]) for name in BUCKET.names or ()}
    index, count = column.pop("owner").astype(np.uint32), column.pop("samples").astype(np.uint64)
    size = len(rows)
    return BucketColumns(index=index, count=count, increase=np.zeros(size), elapsed=np.zeros(size, np.int64), **column)
