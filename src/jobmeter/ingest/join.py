"""Several batches as one, in their order, so that the later sample still wins."""

from collections.abc import Sequence

import numpy as np

from jobmeter.model.batch import Int64s, SampleBatch, Uint32s
from jobmeter.model.series import Series


def join(batches: Sequence[SampleBatch]) -> SampleBatch:
    """One batch with every row, in order, in which each series is listed once."""
    if len(batches) == 1 and len(set(batches[0].series)) == len(batches[0].series):
        return batches[0]
    places: dict[Series, int] = {}
    parts = [_places(batch.series, places)[batch.index] for batch in batches]
    if not parts:
        return SampleBatch([], np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64))
    return SampleBatch(
        list(places),
        np.concatenate(parts),
        np.concatenate([batch.time for batch in batches]),
        np.concatenate([batch.value for batch in batches]),
    )


def _places(series: Sequence[Series], places: dict[Series, int]) -> Uint32s:
    """The place of each series, those that have none yet being given the next."""
    return np.fromiter((places.setdefault(one, len(places)) for one in series), np.uint32, len(series))


def select(batch: SampleBatch, series: Sequence[int]) -> SampleBatch:
    """The rows of some of a batch's series (positions in ``batch.series``), those series alone being listed."""
    place = np.full(len(batch.series), -1, np.int64)
    place[list(series)] = np.arange(len(series))
    index = place[batch.index]
    keep = index >= 0
    return SampleBatch(
        [batch.series[at] for at in series], index[keep].astype(np.uint32), batch.time[keep], batch.value[keep]
    )


def extremes(batch: SampleBatch) -> tuple[Int64s, Int64s, Int64s]:
    """(positions of the series that have rows, the first time of each, the last time of each), by position."""
    if not len(batch):
        empty = np.empty(0, np.int64)
        return empty, empty, empty
    index, time = batch.index, batch.time
    if np.any(index[1:] < index[:-1]):
        order = np.argsort(index, kind="stable")
        index, time = index[order], time[order]
    starts = np.flatnonzero(np.r_[True, index[1:] != index[:-1]])
    return (
        index[starts].astype(np.int64),
        np.minimum.reduceat(time, starts),
        np.maximum.reduceat(time, starts),
    )
