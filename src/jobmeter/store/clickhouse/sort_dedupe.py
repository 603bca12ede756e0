"""Sorts and deduplicates rows on their way to the engine."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel import sort_dedupe as kernel
from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.store.clickhouse.order import Positions
from jobmeter.store.clickhouse.rows import DAYS, InsertBlock, SampleRuns, days_of, gathered, joined


def sort_dedupe(group: Sequence[SampleRuns]) -> InsertBlock:
    """Sort the rows of a group by (job, series, time). Of equal samples the last row stays."""
    return _in_kernel(group) if kernel.AVAILABLE else _in_arrays(group)


def _in_kernel(group: Sequence[SampleRuns]) -> InsertBlock:
    """Sort in the kernel, which sorts a repeated list of series once."""
    lists = list({id(rows.keys): rows.keys for rows in group}.values())
    keys, places = _ordered(lists)
    slots = {id(own): part for own, part in zip(lists, places, strict=True)}
    mixed = len({rows.retention for rows in group}) > 1
    runs = [kernel.SeriesSlices(slots[id(rows.keys)], rows.count, rows.time, rows.value) for rows in group]
    rows = kernel.sort_dedupe(runs, len(keys), origin=mixed)
    days = tuple(_days_of_rows(group, name, rows) for name in DAYS)
    job, series = (kernel.repeated(numbers, rows.sizes) for numbers in (keys.job, keys.series))
    return InsertBlock(job, series, rows.time, rows.value, days)


def _ordered(lists: Sequence[SeriesKeys]) -> tuple[SeriesKeys, list[Int64s]]:
    """Return all keys of some lists in order, each once; and the positions of each list's keys among them."""
    job = np.concatenate([keys.job for keys in lists])
    series = np.concatenate([keys.series for keys in lists])
    first, number = kernel.numbered(job, series)
    job, series = job[first], series[first]
    order = np.lexsort((series, job))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    places = np.split(place[number], np.cumsum([len(keys) for keys in lists])[:-1])
    return SeriesKeys(job[order], series[order]), places


def _days_of_rows(group: Sequence[SampleRuns], name: str, rows: kernel.Ordered) -> NDArray[np.uint16]:
    days = days_of(group, name)
    return np.full(len(rows.time), days[0], np.uint16) if rows.origin is None else days[rows.origin]


def _in_arrays(group: Sequence[SampleRuns]) -> InsertBlock:
    """Sort by (job, series, time) with NumPy. Of equal samples the last row stays.

    Rows mostly come as runs that ascend in time: then whole runs are sorted, and a row is compared only with its
    neighbour.
    """
    job, series, count, time, value = (
        np.concatenate([getattr(rows, name) for rows in group]) for name in ("job", "series", "count", "time", "value")
    )
    starts = np.cumsum(count) - count
    order = np.lexsort((time[starts], series, job))
    table = InsertBlock(
        np.repeat(job[order], count[order]),
        np.repeat(series[order], count[order]),
        *gathered(time, value, starts[order], count[order]),
        tuple(_days_of_runs(group, name, order, count) for name in DAYS),
    )
    same = (table.series[1:] == table.series[:-1]) & (table.job[1:] == table.job[:-1])
    if not (same & (table.time[1:] <= table.time[:-1])).any():
        return table
    return _each_once(joined(group))


def _each_once(table: InsertBlock) -> InsertBlock:
    """Sort single rows. Of equal samples the last one stays."""
    order = np.lexsort((table.time, table.series, table.job))
    table = table.take(order)
    again = (
        (table.time[1:] == table.time[:-1])
        & (table.series[1:] == table.series[:-1])
        & (table.job[1:] == table.job[:-1])
    )
    return table.take(np.append(~again, True)) if again.any() else table


def _days_of_runs(group: Sequence[SampleRuns], name: str, order: Positions, count: Int64s) -> NDArray[np.uint16]:
    days = days_of(group, name)
    if (days == days[0]).all():
        return np.full(int(count.sum()), days[0], np.uint16)
    return np.repeat(np.repeat(days, [len(rows.count) for rows in group])[order], count[order])
