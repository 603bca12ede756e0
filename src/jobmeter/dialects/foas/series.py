"""The series of a job in steps: the queries of one request share their reads."""

from collections.abc import Mapping, Sequence

import numpy as np

from jobmeter.dialects.alibaba.operation import Lookup
from jobmeter.dialects.base import execute
from jobmeter.dialects.foas.lines import Drawn, Points, draw, fits
from jobmeter.dialects.foas.metric_json import MetricJson, MetricRequest
from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import BucketColumns, Float64s
from jobmeter.model.job import Job
from jobmeter.model.order import natural
from jobmeter.model.series import Series, job_key
from jobmeter.query.reduce import take
from jobmeter.query.request import Statistic, bucket_count
from jobmeter.query.series import BucketsQuestion, SeriesQuestion

MAX_JOINED = 2_000_000
"""How many points of series may be joined for one answer."""


def lines_of(job: Job, document: MetricJson, names: Mapping[str, str]) -> Lookup[list[Drawn]]:
    """The lines of every query, in their order; ``names`` gives our metric of each name."""
    metrics = {names[sub_query.name] for sub_query in document.queries}
    question = SeriesQuestion(
        metrics=frozenset(metrics), jobs=(job_key(job.project, job.id),), since_ms=document.span.start_ms
    )
    found = yield from execute(question)
    series = sorted(found.series, key=_order)
    _check(document, series, names)
    steps: dict[int, dict[Series, BucketColumns]] = {}
    for step_ms in dict.fromkeys(sub_query.downsample_ms for sub_query in document.queries):
        queries = [sub_query for sub_query in document.queries if sub_query.downsample_ms == step_ms]
        own = [one for one in series if any(_wants(sub_query, one, names) for sub_query in queries)]
        steps[step_ms] = (yield from _in_steps(own, document, step_ms)) if own else {}
    lines: list[Drawn] = []
    for sub_query in document.queries:
        points = [
            Points(tags_of(one), columns.time, _value(columns, sub_query.downsample))
            for one, columns in steps[sub_query.downsample_ms].items()
            if _wants(sub_query, one, names)
        ]
        lines += draw(sub_query, points, document.limit)
    return lines


def tags_of(series: Series) -> dict[str, str]:
    """The tags of a series: its replica, node and device, and its labels."""
    parts = {"cluster": series.cluster, "node": series.node, "device": series.device, "replica": series.replica}
    return {**dict(series.labels), **{name: value for name, value in parts.items() if value}}


def _in_steps(series: Sequence[Series], document: MetricJson, step_ms: int) -> Lookup[dict[Series, BucketColumns]]:
    answer = yield from execute(BucketsQuestion(series=tuple(series), range=document.span, step_ms=step_ms))
    columns = answer.columns
    bounds = columns.index.searchsorted(np.arange(len(series) + 1)).tolist()
    return {one: take(columns, slice(bounds[at], bounds[at + 1])) for at, one in enumerate(series)}


def _value(columns: BucketColumns, statistic: Statistic) -> Float64s:
    match statistic:
        case Statistic.MIN:
            return columns.minimum
        case Statistic.MAX:
            return columns.maximum
        case Statistic.SUM:
            return columns.sum
        case _:
            return columns.sum / columns.count


def _wants(sub_query: MetricRequest, series: Series, names: Mapping[str, str]) -> bool:
    return names[sub_query.name] == series.metric and fits(sub_query, tags_of(series))


def _check(document: MetricJson, series: Sequence[Series], names: Mapping[str, str]) -> None:
    points = sum(
        bucket_count(document.span, sub_query.downsample_ms)
        for sub_query in document.queries
        for one in series
        if _wants(sub_query, one, names)
    )
    if points > MAX_JOINED:
        raise LimitExceededError(
            f"this answer would join {points} points of {len(series)} series, {MAX_JOINED} are joined: take a longer"
            " granularity and downsample, a shorter range or fewer queries",
            "granularity",
        )


def _order(series: Series) -> tuple[object, ...]:
    return natural(series.replica), natural(series.node), series.labels, series.attempt
