"""Joins several batches in their order, so that the later sample still wins."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Int64s, SampleBatch, SeriesKeys, find_runs
from jobmeter.model.series_table import SeriesList, find_distinct, list_of, make_batch

T = TypeVar("T", bound=np.generic)


def join(batches: Sequence[SampleBatch]) -> SampleBatch:
    """Join batches to one with every row, in order, in which each series is listed once."""
    if len(batches) == 1 and isinstance(batches[0].series, SeriesList):
        return batches[0]
    lists = [list_of(batch.series) for batch in batches]
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.uint32)
    keys = SeriesKeys(
        _concatenate([one.keys.job for one in lists], np.uint64),
        _concatenate([one.keys.series for one in lists], np.uint64),
    )
    series, places = find_distinct(SeriesList(_concatenate([one.names for one in lists], np.object_), keys))
    index = _concatenate([batch.index + offset for batch, offset in zip(batches, offsets[:-1], strict=True)], np.uint32)
    time = _concatenate([batch.time for batch in batches], np.int64)
    value = _concatenate([batch.value for batch in batches], np.float64)
    return make_batch(series, index if places is None else places[index], time, value)


def drop_unused(batch: SampleBatch) -> SampleBatch:
    """Drop the series that have no rows."""
    rows = np.bincount(batch.index, minlength=len(batch.series))
    return batch if rows.all() else select(batch, np.flatnonzero(rows))


def select(batch: SampleBatch, series: Sequence[int] | Int64s) -> SampleBatch:
    """Return the rows of some of a batch's series (positions in ``batch.series``), and list only these series."""
    positions = np.asarray(series, np.int64)
    place = np.full(len(batch.series), -1, np.int64)
    place[positions] = np.arange(len(positions))
    index = place[batch.index]
    keep = index >= 0
    columns = index[keep].astype(np.uint32), batch.time[keep], batch.value[keep]
    if isinstance(batch.series, SeriesList):
        return make_batch(batch.series.take(positions), *columns)
    return SampleBatch([batch.series[at] for at in positions.tolist()], *columns)


def find_extremes(batch: SampleBatch) -> tuple[Int64s, Int64s, Int64s]:
    """Return the positions of the series with rows, and the first and the last time of each."""
    if not len(batch):
        empty = np.empty(0, np.int64)
        return empty, empty, empty
    index, time = batch.index, batch.time
    if (index[1:] > index[:-1]).all():
        return index.astype(np.int64), time, time
    if np.any(index[1:] < index[:-1]):
        order = np.argsort(index, kind="stable")
        index, time = index[order], time[order]
    starts = find_runs(index)
    return (
        index[starts].astype(np.int64),
        np.minimum.reduceat(time, starts),
        np.maximum.reduceat(time, starts),
    )


def _concatenate(parts: Sequence[NDArray[T]], kind: type[T]) -> NDArray[T]:
    return np.concatenate(parts) if parts else np.empty(0, kind)
