"""Buckets of the series that answer a query, over a range."""

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.model.batch import BucketColumns, References
from jobmeter.model.time import TimeRange
from jobmeter.query.layout import MOST_SAMPLES, MOST_SERIES
from jobmeter.query.meter import Meter
from jobmeter.query.reduce import is_sorted, merge
from jobmeter.query.selected_series import Read, SelectedSeries
from jobmeter.query.source import RAW_IS_QUICK, Source, read_series_buckets
from jobmeter.store.base import StoreMemory


class BucketedSeries(msgspec.Struct, frozen=True, eq=False):
    """Selected series with the buckets of their parts: ``columns.index`` is a position in ``shape.entries``.

    ``limits`` come from the job's record. ``step_ms`` is the length of the buckets, 0 if their times are not multiples
    of it.
    """

    shape: SelectedSeries
    columns: BucketColumns
    limits: dict[str, float]
    step_ms: int = 0

    def select_rows(self, metric: str) -> BucketColumns:
        """Return the buckets of one metric's entries."""
        first, end = self.shape.find_range(metric)
        if first == 0 and end == len(self.shape.entries):
            return self.columns
        return self.columns.select(slice(*np.searchsorted(self.columns.index, (first, end)).tolist()))


def read(shape: SelectedSeries, source: Source, span: TimeRange, step_ms: int, meter: Meter) -> BucketColumns:
    """Read the buckets of a shape's entries over a span; clipped entries are read only within their clip."""
    parts: list[BucketColumns] = []
    for group in shape.list_reads(span, in_order=span.length_ms <= RAW_IS_QUICK):  # nearly always in memory
        columns = read_series_buckets(
            source, group.keys, group.counters, group.span, step_ms, owned_ms=group.owned_ms, meter=meter
        )
        parts.append(sort_buckets(columns, group))
    return merge(parts)


def read_memory(shape: SelectedSeries, memory: StoreMemory, span: TimeRange, step_ms: int) -> BucketColumns | None:
    """Read the buckets of a shape's entries from memory; None if some are not in memory."""
    parts: list[BucketColumns] = []
    for group in shape.list_reads(span, in_order=True):
        columns = _buckets(group, memory, step_ms)
        if columns is None:
            return None
        parts.append(sort_buckets(columns, group))
    return merge(parts)


def _buckets(group: Read, memory: StoreMemory, step_ms: int) -> BucketColumns | None:
    """Read the buckets of one group from memory; None if some are not in memory.

    See ``jobmeter.query.source.read_series_buckets``.
    """
    keys, span = group.keys, group.span
    if len(keys) > MOST_SERIES:
        return None
    references = References.make_empty(len(keys))
    if group.counters.any() and group.owned_ms < span.start_ms:
        counters = np.flatnonzero(group.counters)
        before = memory.read_previous(keys.select(counters), span.start_ms)
        if before is None:
            return None
        own = before.time >= group.owned_ms
        references.update(counters[before.index[own]].astype(np.uint32), before.time[own], before.value[own])
    return memory.read_buckets(keys, span, step_ms, group.counters, references, MOST_SAMPLES)


def sort_buckets(columns: BucketColumns, group: Read) -> BucketColumns:
    """Sort the buckets of a read by the shape's entries."""
    if group.in_order:
        return columns
    columns = replace(columns, index=group.positions[columns.index])
    return columns if is_sorted(columns.index) else columns.select(np.argsort(columns.index, kind="stable"))
