"""Values made of samples in memory alone, for questions that must not wait."""

import numpy as np

from jobmeter.model.batch import BucketColumns, LineColumns, References, SeriesKeys
from jobmeter.model.time import TimeRange
from jobmeter.query.frame import in_order
from jobmeter.query.layout import Layout
from jobmeter.query.reduce import merge
from jobmeter.query.request import MetricQuery, Statistic
from jobmeter.query.shape import Read, Shape
from jobmeter.store.base import Memory

MOST_SERIES = 2_000
MOST_SAMPLES = 100_000
MOST_POINTS = 5_000
"""More than that takes longer than others may be cached waiting."""


def lines(query: MetricQuery, layout: Layout, memory: Memory) -> LineColumns | None:
    """The values of plain gauges by the names of the layout's grid; None where they are not, or not in memory.

    No metric of the question is derived from others.
    """
    grid = layout.grid
    if grid is None or query.statistic is not Statistic.MEAN or len(grid.keys) > MOST_SERIES:
        return None
    return memory.lines(grid.keys, grid.joined(query.aggregate, query.by), query.range, query.step_ms, MOST_SAMPLES)


def read(shape: Shape, memory: Memory, span: TimeRange, step_ms: int) -> BucketColumns | None:
    """The buckets of a shape's entries over a span; None where they are not all in memory."""
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
        counters = np.flatnonzero(group.counters)
        before = memory.previous(SeriesKeys(keys.job[counters], keys.series[counters]), span.start_ms)
        if before is None:
            return None
        own = before.time >= group.owned_ms
        references.update(counters[before.index[own]].astype(np.uint32), before.time[own], before.value[own])
    return memory.buckets(keys, span, step_ms, group.counters, references, MOST_SAMPLES)
