"""Newest value of each line, with its measurement time."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.model.answers import LatestValue
from jobmeter.model.batch import Bools, BucketColumns, Int64s, References, SampleColumns, SeriesKeys, mark_last_rows
from jobmeter.model.catalog import Aggregate, Metric
from jobmeter.model.job import JobView
from jobmeter.model.question import Question
from jobmeter.model.time import MINUTE, TimeRange
from jobmeter.query.buckets import BucketedSeries, sort_buckets
from jobmeter.query.layout import Layout
from jobmeter.query.lines import choose_unit, find_aggregate
from jobmeter.query.meter import Meter
from jobmeter.query.reduce import build_buckets, merge
from jobmeter.query.request import By, JobRef, NodeRef, Statistic, list_sources
from jobmeter.query.restarts import join_restarts
from jobmeter.query.selected_series import SelectedSeries
from jobmeter.query.source import Source
from jobmeter.query.table import compute_lines

WINDOW_MS = 5 * MINUTE
"""Largest age in milliseconds of a latest value, relative to the newest sample."""
_FINEST_MS = 1


class LatestQuestion(msgspec.Struct, Question[list[LatestValue]], frozen=True):
    """Question for the newest value of each line, at most 5 minutes older than the subject's newest sample.

    Sorted like lines. Without metrics: the core metrics. ``aggregate`` None: lines combine members as in the catalogue.
    """

    by_resource = of_job = True

    ref: JobRef | NodeRef
    metrics: tuple[str, ...] = ()
    by: By = By.REPLICA
    aggregate: Aggregate | None = None


def read_newest(shape: SelectedSeries, source: Source, span: TimeRange, meter: Meter) -> BucketColumns:
    """Return the last sample in the span of each entry, as a bucket at time 0; of a counter the last increase."""
    columns = merge(
        [
            sort_buckets(_read_last(source, group.keys, group.counters, group.span, meter), group)
            for group in shape.list_reads(span)
        ]
    )
    return replace(columns, time=np.zeros(len(columns), np.int64))


def drop_superseded(shape: SelectedSeries, view: JobView, by: By, columns: BucketColumns) -> BucketColumns:
    """Drop values of earlier attempts and former devices of a replica: only the last measured counts.

    ``columns`` come from ``read_newest``.
    """
    part = shape.part
    if by not in {By.JOB, By.REPLICA}:  # with other kinds of lines each device is its own member
        numbers: dict[tuple[object, ...], int] = {}
        joined = join_restarts(shape.entries, view, By.JOB).entries
        keys = ((one.series.metric, one.member, one.series.labels) for one in joined)
        part = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    group = part[columns.index]
    last = np.zeros(len(shape.entries), np.int64)
    np.maximum.at(last, group, columns.last_time)
    return columns.select(columns.last_time == last[group])


def _read_last(source: Source, keys: SeriesKeys, counters: Bools, span: TimeRange, meter: Meter) -> BucketColumns:
    references = References.make_empty(len(keys))
    last = merge([])
    for piece in source.read_pieces(keys, span, _FINEST_MS, meter):
        if isinstance(piece.columns, SampleColumns):
            # A bucket of a millisecond has one sample.
            last = _ends(merge([last, build_buckets(piece.columns, _FINEST_MS, counters, references)]))
    return last


def _ends(columns: BucketColumns) -> BucketColumns:
    return columns.select(mark_last_rows(columns.index))


def compute_values(
    frame: BucketedSeries, metrics: Sequence[Metric], question: LatestQuestion, layout: Layout
) -> Iterator[LatestValue]:
    """Compute the latest values of metrics for the lines of a layout, from a frame of ``read_newest`` columns."""
    line, heads = layout.line, layout.heads
    for metric in metrics:
        unit = choose_unit(metric, Statistic.MEAN)
        table = compute_lines(
            frame, metric, Statistic.MEAN, question.aggregate or find_aggregate(metric, question.by), line
        )
        times = _times(frame, metric, line, len(heads))
        for owner, value in zip(table.owner.tolist(), table.value.tolist(), strict=True):
            replica, node, device, rank = heads[owner]
            yield LatestValue(
                metric=metric.name,
                unit=unit,
                replica=replica,
                node=node,
                device=device,
                rank=rank,
                time=int(times[owner]),
                value=value,
            )


def _times(frame: BucketedSeries, metric: Metric, line: Int64s, lines: int) -> Int64s:
    """Return for each line the time of the newest sample behind the metric."""
    times = np.zeros(lines, np.int64)
    for name in list_sources([metric]):
        rows = frame.select_rows(name)
        np.maximum.at(times, line[frame.shape.member[rows.index]], rows.last_time)
    return times
