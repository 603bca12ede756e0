"""Aggregate several series into one, at every time at which one of them has a point.

A series contributes from its first point to its last. Missing points in between are interpolated as its aggregator
defines.
"""

from collections.abc import Callable, Mapping

import numpy as np

from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import Float64s, Int64s, find_runs
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.functions import Aggregator, Missing

MOST_CELLS = 100_000_000
"""Most values, including interpolated ones, that a group may be aggregated from."""
_AT_A_TIME = 2_000_000
_LEAST, _GREATEST, _TOTAL = np.fmin.reduce, np.fmax.reduce, np.nansum
_ACROSS: Mapping[str, Callable[..., Float64s]] = {
    "max": _GREATEST,
    "mimmax": _GREATEST,
    "mimmin": _LEAST,
    "min": _LEAST,
    "pfsum": _TOTAL,
    "sum": _TOTAL,
    "zimsum": _TOTAL,
}
"""Faster variants of functions that need no runs."""


def aggregate(columns: SeriesColumns, aggregator: Aggregator, missing: Missing) -> tuple[Int64s, Float64s]:
    """Return times and values of the aggregated series.

    NaN is missing: it is ignored, and is the result where there are no other values. Raises LimitExceededError if too
    many values would have to be interpolated.
    """
    starts = find_runs(columns.index)
    times = np.unique(columns.time)
    if len(starts) <= 1:
        return columns.time, _aggregate_single(columns.value, aggregator)
    if len(starts) * len(times) > MOST_CELLS:
        raise LimitExceededError(
            f"{len(starts)} series at {len(times)} different times are too many to combine: downsample, so that their "
            "times are the same",
            "downsample",
        )
    ends = np.r_[starts[1:], len(columns)]
    width = max(1, _AT_A_TIME // len(starts))
    parts = [
        _aggregate_across(_table(columns, starts, ends, times[at : at + width], missing), aggregator)
        for at in range(0, len(times), width)
    ]
    return times, np.concatenate(parts)


def _aggregate_single(values: Float64s, aggregator: Aggregator) -> Float64s:
    """Aggregate a single series: the function is applied to one value at a time."""
    found = np.full(len(values), np.nan)
    there = np.flatnonzero(~np.isnan(values))
    if len(there):
        found[there] = aggregator.function(values[there], np.arange(len(there)))
    return found


def _table(columns: SeriesColumns, starts: Int64s, ends: Int64s, times: Int64s, missing: Missing) -> Float64s:
    """Return the values of each series at each time, float64[series, times]; NaN if missing."""
    table = np.empty((len(starts), len(times)))
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        table[at] = _fill_in(columns.time[start:end], columns.value[start:end], times, missing)
    return table


def _fill_in(time: Int64s, value: Float64s, times: Int64s, missing: Missing) -> Float64s:
    """Return the values of one series, whose points are (``time``, ``value``), at the sorted ``times``.

    NaN before its first point, after its last one, and where missing values are not replaced. ``time`` has at least one
    point. https://opentsdb.net/docs/build/html/user_guide/query/aggregators.html#interpolation.
    """
    after = np.searchsorted(time, times)
    exact = after < len(time)
    exact[exact] = time[after[exact]] == times[exact]
    found = np.full(len(times), np.nan)
    found[exact] = value[after[exact]]
    if missing is Missing.SKIP:
        return found
    between = ~exact & (after > 0) & (after < len(time))
    if missing is Missing.ZERO:
        found[between] = 0.0
        return found
    right = after[between]
    left = right - 1
    if missing is Missing.PREVIOUS:
        found[between] = value[left]
        return found
    part = (times[between] - time[left]) / (time[right] - time[left])
    found[between] = value[left] + part * (value[right] - value[left])
    return found


def _aggregate_across(table: Float64s, aggregator: Aggregator) -> Float64s:
    across = _ACROSS.get(aggregator.name)
    there = ~np.isnan(table)
    sizes = there.sum(axis=0)
    if across is not None:
        return np.where(sizes > 0, across(table, axis=0), np.nan)
    result = np.full(table.shape[1], np.nan)
    filled = np.flatnonzero(sizes)
    if len(filled):
        starts = np.r_[0, np.cumsum(sizes[filled])[:-1]]
        # By time and then by series: the order of the functions' runs.
        result[filled] = aggregator.function(table.T[there.T], starts)
    return result
