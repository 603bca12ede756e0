"""Reduce samples to buckets, and buckets to larger ones: array functions without I/O.

Everything works on columns sorted by (index, time), all series at once. ``BucketColumns`` can be merged in any grouping
with equal results, because each bucket's increase is counted from the last sample before it.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from jobmeter.model.batch import (
    NEVER,
    Bools,
    BucketColumns,
    Float64s,
    Int64s,
    References,
    SampleColumns,
    Uint32s,
    find_runs,
)

Positions = NDArray[np.intp]


def build_buckets(columns: SampleColumns, step_ms: int, counters: Bools, references: References) -> BucketColumns:
    """Build the buckets of raw samples; ``references`` is updated to the last samples of ``columns``.

    ``counters`` bool[k] marks series with increases. Buckets are epoch-aligned and named by their start.
    """
    if not len(columns):
        return BucketColumns.make_empty()
    index, time, value = columns.index, columns.time, columns.value
    number = time // step_ms  # much faster than a remainder
    starts = find_runs(index, number)
    ends = np.r_[starts[1:], len(index)] - 1
    increase, elapsed = _growth(columns, starts, ends, counters, references)
    references.update(index, time, value)
    return BucketColumns(
        index=index[starts],
        time=number[starts] * step_ms,
        count=(ends - starts + 1).astype(np.uint64),
        sum=np.add.reduceat(value, starts),
        minimum=np.minimum.reduceat(value, starts),
        maximum=np.maximum.reduceat(value, starts),
        first=value[starts],
        first_time=time[starts],
        last=value[ends],
        last_time=time[ends],
        increase=increase,
        elapsed=elapsed,
    )


def _growth(
    columns: SampleColumns, starts: Positions, ends: Positions, counters: Bools, references: References
) -> tuple[Float64s, Int64s]:
    """Return for each bucket the increase since the sample before it, and the time since then; 0 for gauges."""
    if not counters.any():
        return np.zeros(len(starts)), np.zeros(len(starts), np.int64)
    index, time, value = columns.index, columns.time, columns.value
    first = find_runs(index)
    series = index[first]
    # A series without a reference starts at its first sample: its increase before that is unknown.
    present = references.time[series] != NEVER
    grown = np.empty(len(value))
    np.subtract(value[1:], value[:-1], out=grown[1:])
    grown[first] = np.where(present, value[first] - references.value[series], 0.0)
    reset = grown < 0
    grown[reset] = value[reset]
    before = time[np.maximum(starts - 1, 0)]
    at_first = np.searchsorted(starts, first)  # every series begins a bucket
    before[at_first] = np.where(present, references.time[series], time[first])
    counted = counters[index[starts]]
    return np.where(counted, np.add.reduceat(grown, starts), 0.0), np.where(counted, time[ends] - before, 0)


def compute_growth(before: Float64s, after: Float64s) -> Float64s:
    """Return the growth of a counter between two readings; after a reset it counts from zero."""
    return np.where(after >= before, after - before, after)


def coarsen(columns: BucketColumns, step_ms: int) -> BucketColumns:
    """Merge buckets into larger ones of ``step_ms``, a multiple of their length."""
    return _merge(columns, columns.index, columns.time // step_ms * step_ms)


def relabel(columns: BucketColumns, index: Uint32s) -> BucketColumns:
    """Assign rows to other series: row r belongs to ``index[r]``.

    Rows that meet in a bucket are merged in time order.
    """
    return _merge(columns, index, columns.time)


def merge(parts: Sequence[BucketColumns]) -> BucketColumns:
    """Merge parts of one read; a bucket in several parts becomes one."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return BucketColumns.make_empty()
    if len(filled) == 1:
        return filled[0]
    columns = _interleave(filled)
    return _merge(columns, columns.index, columns.time)


def _interleave(parts: Sequence[BucketColumns]) -> BucketColumns:
    """Interleave the rows of all parts by series, and within a series in the order of the parts.

    Each part is sorted by series. If the parts follow each other in time, as they nearly always do, no sorting is
    needed.
    """
    _, places = merge_order([part.index for part in parts])
    size = sum(map(len, parts))
    columns = {}
    for name in FIELDS:
        column = np.empty(size, getattr(parts[0], name).dtype)
        for part, place in zip(parts, places, strict=True):
            column[place] = getattr(part, name)
        columns[name] = column
    return BucketColumns(**columns)


def merge_order(owners: Sequence[Uint32s | Int64s]) -> tuple[Positions, list[Positions]]:
    """Return the positions that interleave several parts by owner, and within an owner in the order of the parts.

    Each part is sorted by owner and not empty. Returns the number of rows per owner, then the positions of each part's
    rows.
    """
    most = max(int(owner[-1]) for owner in owners) + 1
    counts = [np.bincount(owner, minlength=most) for owner in owners]
    total = np.sum(counts, axis=0)
    first = np.cumsum(total) - total
    places = []
    for owner, count in zip(owners, counts, strict=True):
        own = np.cumsum(count) - count
        places.append(np.arange(len(owner)) + np.repeat(first - own, count))
        first = first + count
    return total, places


FIELDS = BucketColumns.__struct_fields__


def _merge(columns: BucketColumns, index: Uint32s, start: Int64s) -> BucketColumns:
    if not len(columns):
        return columns
    ordered = columns
    if not is_sorted(index, start, columns.first_time):
        order = np.lexsort((columns.first_time, start, index))
        ordered, index, start = columns.select(order), index[order], start[order]
    starts = find_runs(index, start)
    if len(starts) == len(index):
        return replace(ordered, index=index.astype(np.uint32), time=start)
    ends = np.r_[starts[1:], len(index)] - 1
    if len(starts) > _MOSTLY * (len(index) - len(starts)):
        return _merge_some(ordered, index, start, starts, ends)
    return _merge_all(ordered, index, start, starts, ends)


_MOSTLY = 8
"""Ratio of unchanged to merged rows above which only the changed buckets are touched."""


def _merge_some(
    ordered: BucketColumns, index: Uint32s, start: Int64s, starts: Positions, ends: Positions
) -> BucketColumns:
    several = np.flatnonzero(ends > starts)
    counts = ends[several] - starts[several] + 1
    first = np.cumsum(counts) - counts
    rows = np.arange(int(counts.sum())) + np.repeat(starts[several] - first, counts)
    merged = _merge_all(ordered.select(rows), index[rows], start[rows], first, first + counts - 1)
    columns = {name: getattr(ordered, name)[starts] for name in FIELDS}
    columns["index"], columns["time"] = index[starts].astype(np.uint32), start[starts]
    for name in FIELDS:
        columns[name][several] = getattr(merged, name)
    return BucketColumns(**columns)


def _merge_all(
    ordered: BucketColumns, index: Uint32s, start: Int64s, starts: Positions, ends: Positions
) -> BucketColumns:
    """Merge the rows of each run from ``starts`` to ``ends``, ordered by (index, start), into one bucket."""
    last_time = np.maximum.reduceat(ordered.last_time, starts)
    newest = ends
    if np.any(ordered.last_time[ends] != last_time):
        # Rows overlap in time (two attempts of one replica): the row that ends last has the last sample.
        newest = np.lexsort((ordered.last_time, start, index))[ends]
    return BucketColumns(
        index=index[starts].astype(np.uint32),
        time=start[starts],
        count=np.add.reduceat(ordered.count, starts),
        sum=np.add.reduceat(ordered.sum, starts),
        minimum=np.minimum.reduceat(ordered.minimum, starts),
        maximum=np.maximum.reduceat(ordered.maximum, starts),
        first=ordered.first[starts],
        first_time=ordered.first_time[starts],
        last=ordered.last[newest],
        last_time=last_time,
        increase=np.add.reduceat(ordered.increase, starts),
        elapsed=np.add.reduceat(ordered.elapsed, starts),
    )


def is_sorted(*keys: NDArray[np.int64] | NDArray[np.uint32]) -> bool:
    """Return True if rows are sorted by the first key, then the second, and so on."""
    undecided = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if np.any(undecided & (key[1:] < key[:-1])):
            return False
        undecided &= key[1:] == key[:-1]
        if not undecided.any():
            return True
    return True
