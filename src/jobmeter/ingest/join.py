"""Joins several batches in their order, so that the later sample still wins."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Float64s, Int64s, SampleBatch, Uint32s
from jobmeter.model.interner import SeriesInterner, SeriesList, current, make_batch
from jobmeter.model.series import Series

T = TypeVar("T", bound=np.generic)


def number_batch(batch: SampleBatch) -> SampleBatch:
    """Return the same rows with each series listed once, by the numbers of the current interner."""
    interner = current()
    series = batch.series
    if isinstance(series, SeriesList) and series.interner is interner:
        return batch
    return merge_rows(interner, interner.numbers(series), batch.index, batch.time, batch.value)


def join(batches: Sequence[SampleBatch]) -> SampleBatch:
    """Join batches to one with every row, in order, in which each series is listed once. See ``number_batch``."""
    if len(batches) == 1:
        return number_batch(batches[0])
    interner = current()
    parts = [_numbers(batch.series, interner) for batch in batches]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.uint32)
    return merge_rows(
        interner,
        _concatenate(parts, np.int64),
        _concatenate([batch.index + offset for batch, offset in zip(batches, offsets[:-1], strict=True)], np.uint32),
        _concatenate([batch.time for batch in batches], np.int64),
        _concatenate([batch.value for batch in batches], np.float64),
    )


def merge_rows(interner: SeriesInterner, numbers: Int64s, index: Uint32s, time: Int64s, value: Float64s) -> SampleBatch:
    """Make a batch of rows whose series have these numbers (``numbers[index]``); numbers may repeat."""
    series, places = find_distinct(interner, numbers)
    return make_batch(series, index if places is None else places[index], time, value)


def find_distinct(interner: SeriesInterner, numbers: Int64s) -> tuple[SeriesList, Uint32s | None]:
    """Return the series of these numbers, each once, and the position of each number among them.

    The positions are None if no number repeats.
    """
    order = np.arange(len(numbers))
    # Written backwards, so that the first position of a number wins. Entries without a number are never read.
    first_of = np.empty(len(interner), np.int64)
    first_of[numbers[::-1]] = order[::-1]
    first = first_of[numbers]
    once = first == order
    if once.all():
        return SeriesList(interner, numbers), None
    place = (np.cumsum(once) - 1).astype(np.uint32)
    return SeriesList(interner, numbers[once]), place[first]


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


def extremes(batch: SampleBatch) -> tuple[Int64s, Int64s, Int64s]:
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
    starts = np.flatnonzero(np.r_[True, index[1:] != index[:-1]])
    return (
        index[starts].astype(np.int64),
        np.minimum.reduceat(time, starts),
        np.maximum.reduceat(time, starts),
    )


def _numbers(series: Sequence[Series], interner: SeriesInterner) -> Int64s:
    if isinstance(series, SeriesList) and series.interner is interner:
        return series.numbers
    return interner.numbers(series)


def _concatenate(parts: Sequence[NDArray[T]], kind: type[T]) -> NDArray[T]:
    return np.concatenate(parts) if parts else np.empty(0, kind)
