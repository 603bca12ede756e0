"""The series of a job in steps: what the queries of one request have in common is asked once."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from jobmeter.dialects.base import ask
from jobmeter.dialects.foas.lines import Drawn, Points, draw, fits
from jobmeter.dialects.foas.metric_json import Asked, MetricJson
from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import BucketColumns, Float64s
from jobmeter.model.job import Job
from jobmeter.model.order import natural
from jobmeter.model.question import Asks
from jobmeter.model.series import Series, job_key
from jobmeter.query.plan import bucket_count
from jobmeter.query.reduce import take
from jobmeter.query.request import Statistic
from jobmeter.query.series import BucketsQuestion, SeriesQuestion

MAX_JOINED = 2_000_000
"""How many points of series may be joined for one answer."""


def lines_of(job: Job, wanted: MetricJson, names: Mapping[str, str]) -> Generator[Asks[Any], Any, list[Drawn]]:
    """The lines of every query, in their order; ``names`` gives our metric of each name."""
    metrics = {names[asked.name] for asked in wanted.queries}
    question = SeriesQuestion(
        metrics=frozenset(metrics), jobs=(job_key(job.project, job.id),), since_ms=wanted.span.start_ms
    )
    found = yield from ask(question)
    series = sorted(found.series, key=_order)
    _check(wanted, series, names)
    steps: dict[int, dict[Series, BucketColumns]] = {}
    for step_ms in dict.fromkeys(asked.downsample_ms for asked in wanted.queries):
        queries = [asked for asked in wanted.queries if asked.downsample_ms == step_ms]
        own = [one for one in series if any(_wants(asked, one, names) for asked in queries)]
        steps[step_ms] = (yield from _in_steps(own, wanted, step_ms)) if own else {}
    lines: list[Drawn] = []
    for asked in wanted.queries:
        points = [
            Points(tags_of(one), columns.time, _value(columns, asked.downsample))
            for one, columns in steps[asked.downsample_ms].items()
            if _wants(asked, one, names)
        ]
        lines += draw(asked, points, wanted.limit)
    return lines


def tags_of(series: Series) -> dict[str, str]:
    """What a series can be told from others by: its replica, node and device, and its labels."""
    parts = {"cluster": series.cluster, "node": series.node, "device": series.device, "replica": series.replica}
    return {**dict(series.labels), **{name: value for name, value in parts.items() if value}}


def _in_steps(
    series: Sequence[Series], wanted: MetricJson, step_ms: int
) -> Generator[Asks[Any], Any, dict[Series, BucketColumns]]:
    told = yield from ask(BucketsQuestion(series=tuple(series), range=wanted.span, step_ms=step_ms))
    columns = told.columns
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


def _wants(asked: Asked, series: Series, names: Mapping[str, str]) -> bool:
    return names[asked.name] == series.metric and fits(asked, tags_of(series))


def _check(wanted: MetricJson, series: Sequence[Series], names: Mapping[str, str]) -> None:
    points = sum(
        bucket_count(wanted.span, asked.downsample_ms)
        for asked in wanted.queries
        for one in series
        if _wants(asked, one, names)
    )
    if points > MAX_JOINED:
        raise LimitExceededError(
            f"this answer would join {points} points of {len(series)} series, {MAX_JOINED} are joined: take a longer"
            " granularity and downsample, a shorter range or fewer queries",
            "granularity",
        )


def _order(series: Series) -> tuple[object, ...]:
    return natural(series.replica), natural(series.node), series.labels, series.attempt
