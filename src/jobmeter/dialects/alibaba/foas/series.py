"""Reads the series of a job in steps: the queries of one request share their reads."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jobmeter.dialects.alibaba.common.operation import Lookup
from jobmeter.dialects.alibaba.foas.lines import Drawn, draw, extend_to_step
from jobmeter.dialects.alibaba.foas.metric_json import MetricJson, MetricRequest, step_count
from jobmeter.dialects.base import ask
from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import BucketColumns
from jobmeter.model.job import Job
from jobmeter.model.order import make_natural_key
from jobmeter.model.series import Series, compute_job_key
from jobmeter.model.time import TimeRange
from jobmeter.query.series import BucketsQuestion, SamplesQuestion, SeriesQuestion
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.compute import MARGIN_MS, prepare, select_tagged
from jobmeter.query.tsdb.downsample import reduce_steps
from jobmeter.query.tsdb.tags import Tagged, TagView
from jobmeter.wire.opentsdb.names import JOB, NODE_TAGS, PROJECT

MAX_JOINED = 2_000_000
"""Most points that are joined for one answer."""
_NODE = "node"
_IMPLIED = frozenset({JOB, PROJECT})
"""Tags that the path of a request implies."""


class _Reading(NamedTuple):
    """A read for some queries, from a time on: in steps of ``step_ms``, or every sample if it is 0."""

    step_ms: int
    start_ms: int

    @classmethod
    def from_query(cls, query: MetricRequest, span: TimeRange) -> "_Reading":
        # A rate needs the point before the first one.
        start = max(0, span.start_ms - (MARGIN_MS if query.rate is not None else 0))
        return cls(query.downsample.interval_ms if query.downsample.stepped else 0, start)


def read_lines(job: Job, document: MetricJson, names: Mapping[str, str]) -> Lookup[list[Drawn]]:
    """Return the lines of every query, in order; ``names`` maps each name to our metric."""
    metrics = {names[query.name] for query in document.queries}
    question = SeriesQuestion(
        metrics=frozenset(metrics), jobs=(compute_job_key(job.project, job.id),), since_ms=document.span.start_ms
    )
    found = yield from ask(question)
    series = sorted(found.series, key=_order)
    wanted = [_select_wanted(query, series, names) for query in document.queries]
    _check(document, series, wanted)
    span = document.span
    readings = [_Reading.from_query(query, span) for query in document.queries]
    columns: dict[_Reading, tuple[list[Series], BucketColumns | SeriesColumns]] = {}
    for reading in dict.fromkeys(readings):
        chosen = {id(one.series) for at, own in enumerate(wanted) if readings[at] == reading for one in own}
        members = [one for one in series if id(one) in chosen]
        columns[reading] = members, (yield from _read(members, reading, span.end_ms))
    lines: list[Drawn] = []
    for query, reading, own in zip(document.queries, readings, wanted, strict=True):
        lines += draw(query, own, _points(query, own, *columns[reading], span), span, document.limit)
    return lines


def tag_series(series: Series, node: str = _NODE) -> Tagged:
    """Return the series with its tags: replica, node (by that name), device, cluster, attempt and its labels."""
    tags = TagView(project=False, node=node).read_tags(series)
    return Tagged(series, {name: value for name, value in tags.items() if name not in _IMPLIED})


def _select_wanted(query: MetricRequest, series: Sequence[Series], names: Mapping[str, str]) -> list[Tagged]:
    node = next((one.tag for one in query.filters if one.tag in NODE_TAGS), _NODE)
    own = [tag_series(one, node) for one in series if one.metric == names[query.name]]
    return select_tagged(own, query, _IMPLIED)


def _read(series: Sequence[Series], reading: _Reading, end_ms: int) -> Lookup[BucketColumns | SeriesColumns]:
    """Return the steps, or the samples, of some series, by their position."""
    around = TimeRange(reading.start_ms, end_ms)
    if not series:
        return SeriesColumns.make_empty()
    if reading.step_ms:
        question = BucketsQuestion(series=tuple(series), range=around, step_ms=reading.step_ms)
        return (yield from ask(question)).columns
    read = (yield from ask(SamplesQuestion(series=tuple(series), range=around))).columns
    return SeriesColumns(read.index.astype(np.int64), read.time, read.value)


def _points(
    query: MetricRequest,
    own: Sequence[Tagged],
    series: Sequence[Series],
    read: BucketColumns | SeriesColumns,
    span: TimeRange,
) -> SeriesColumns:
    """Return the points of the query's own series, by their position among them, in steps of its downsample."""
    columns = reduce_steps(read, query.downsample.function.name) if isinstance(read, BucketColumns) else read
    chosen = {id(one.series) for one in own}
    places = np.array([at for at, one in enumerate(series) if id(one) in chosen], np.int64)
    columns = columns.filter(np.isin(columns.index, places))
    columns = SeriesColumns(np.searchsorted(places, columns.index), columns.time, columns.value)
    stepped = isinstance(read, BucketColumns)
    return prepare(columns, query, extend_to_step(query, span), milliseconds=True, stepped=stepped)


def _check(document: MetricJson, series: Sequence[Series], wanted: Sequence[Sequence[Tagged]]) -> None:
    points = sum(
        step_count(document.span, query) * len(own) for query, own in zip(document.queries, wanted, strict=True)
    )
    if points > MAX_JOINED:
        raise LimitExceededError(
            f"this answer would join {points} points of {len(series)} series of at most {MAX_JOINED}: choose a longer"
            " granularity and downsample, a shorter range or fewer queries",
            "granularity",
        )


def _order(series: Series) -> tuple[object, ...]:
    return make_natural_key(series.replica), make_natural_key(series.node), series.labels, series.attempt
