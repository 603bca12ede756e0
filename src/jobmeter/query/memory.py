"""Values made of samples in memory alone, for questions that must not wait."""

from collections.abc import Sequence

import numpy as np

from jobmeter.kernel import window as kernel
from jobmeter.model.batch import BucketColumns, LineColumns, References, SeriesKeys, Uint8s
from jobmeter.model.catalog import Aggregate, Metric
from jobmeter.model.time import TimeRange
from jobmeter.query.frame import in_order
from jobmeter.query.layout import Layout
from jobmeter.query.reduce import merge
from jobmeter.query.request import MetricQuery, Statistic
from jobmeter.query.shape import Read, Shape
from jobmeter.query.table import Table
from jobmeter.store.base import Memory

MOST_SERIES = 2_000
MOST_SAMPLES = 100_000
MOST_POINTS = 5_000
"""More than that takes longer than others may be kept waiting."""

_JOINS = {
    Aggregate.MEAN: kernel.MEAN,
    Aggregate.RATIO: kernel.MEAN,
    Aggregate.SUM: kernel.SUM,
    Aggregate.MIN: kernel.MIN,
    Aggregate.MAX: kernel.MAX,
}


def lines(query: MetricQuery, metrics: Sequence[Metric], layout: Layout, memory: Memory) -> LineColumns | None:
    """The values of plain gauges by cell of the layout's grid; None where they are not, or memory cannot tell.

    ``metrics`` are those of the question, none derived from others.
    """
    grid = layout.grid
    if grid is None or query.statistic is not Statistic.MEAN or len(grid.keys) > MOST_SERIES:
        return None
    ways = {metric.name: _JOINS[query.aggregate or metric.over] for metric in metrics}
    how: Uint8s = np.repeat(np.array([ways[name] for name in grid.metrics], np.uint8), len(layout.heads))
    return memory.lines(grid.keys, grid.cell, how, query.range, query.step_ms, MOST_SAMPLES)


def table_of(found: LineColumns, number: int, lines_of_each: int) -> Table:
    """The values of the grid's metric of that number, by line."""
    first, end = np.searchsorted(found.line, (number * lines_of_each, (number + 1) * lines_of_each)).tolist()
    return Table(found.line[first:end] - number * lines_of_each, found.time[first:end], found.value[first:end])


def read(shape: Shape, memory: Memory, span: TimeRange, step_ms: int) -> BucketColumns | None:
    """The buckets of a shape's entries over a span; None where memory cannot tell."""
    parts: list[BucketColumns] = []
    for group in shape.reads(span):
        columns = _buckets(group, memory, step_ms)
        if columns is None:
            return None
        parts.append(in_order(columns, group))
    return merge(parts)


def _buckets(group: Read, memory: Memory, step_ms: int) -> BucketColumns | None:
    """As ``jobmeter.query.source.buckets``, of one piece."""
    keys, span = group.keys, group.span
    if len(keys) > MOST_SERIES:
        return None
    references = References.none(len(keys))
    if group.counters.any() and group.owned_ms < span.start_ms:
        asked = np.flatnonzero(group.counters)
        before = memory.previous(SeriesKeys(keys.job[asked], keys.series[asked]), span.start_ms)
        if before is None:
            return None
        own = before.time >= group.owned_ms
        references.update(asked[before.index[own]].astype(np.uint32), before.time[own], before.value[own])
    return memory.buckets(keys, span, step_ms, group.counters, references, MOST_SAMPLES)
