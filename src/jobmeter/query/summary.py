"""Summary of a job's usage over its whole life."""

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.model.answers import MetricSummary
from jobmeter.model.catalog import Aggregate, Kind, Metric, find
from jobmeter.model.job import JobView
from jobmeter.model.job_answers import JobSummary
from jobmeter.model.question import Question
from jobmeter.model.time import TimeRange, ceil_to, floor_to
from jobmeter.query.buckets import BucketedSeries
from jobmeter.query.defaults import find_end, find_start
from jobmeter.query.reduce import coarsen
from jobmeter.query.request import JobRef, Statistic
from jobmeter.query.source import WHOLE_MS
from jobmeter.query.table import ResultTable, compute_lines


class SummaryQuestion(msgspec.Struct, Question[JobSummary], frozen=True):
    """Question for the usage of a job over its whole life (or until now)."""

    by_resource = of_job = True

    ref: JobRef


def summarize(
    view: JobView, frame: BucketedSeries, metrics: Sequence[Metric], span: TimeRange, step_ms: int, now_ms: int
) -> JobSummary:
    """Summarise a job from a frame with its buckets of ``step_ms`` over ``span``."""
    whole = replace(frame, columns=coarsen(frame.columns, WHOLE_MS))
    found = [_metric(frame, whole, metric, span, step_ms) for metric in metrics]
    present = [one for one in found if one is not None]
    start = find_start(view.job)
    end = find_end(view.job)
    until = now_ms if end is None else end
    return JobSummary(
        state=view.job.state,
        duration_ms=None if start is None else max(until - start, 0),
        start_ms=floor_to(span.start_ms, step_ms),
        step_ms=step_ms,
        replicas=len(({one.name for one in view.replicas} | {entry.replica for entry in frame.shape.entries}) - {""}),
        nodes=len(({one.node for one in view.replicas} | {entry.series.node for entry in frame.shape.entries}) - {""}),
        devices=len(_devices(view, frame)),
        metrics=present,
        gpu_energy_joules=next((one.total for one in present if one.metric == "gpu.energy"), None),
    )


def _devices(view: JobView, frame: BucketedSeries) -> set[tuple[str, str]]:
    found = {(one.node, one.device) for one in view.allocations}
    return found | {(entry.series.node, entry.series.device) for entry in frame.shape.entries if entry.series.device}


def _metric(
    frame: BucketedSeries, whole: BucketedSeries, metric: Metric, span: TimeRange, step_ms: int
) -> MetricSummary | None:
    one_line = np.zeros(len(frame.shape.members), np.int64)
    points = compute_lines(frame, metric, Statistic.MEAN, Aggregate.WHOLE, one_line)
    if not len(points) and not len(frame.select_rows(metric.name)):
        return None
    # A rate without some parts of its counter has no total.
    counter = metric if metric.kind is Kind.COUNTER else find("" if metric.rate_but else metric.rate_of)
    mean = compute_lines(whole, metric, Statistic.MEAN, None, one_line)
    # A rate has no single reading that could be the highest: the highest bucket represents it.
    rate = _is_rate(frame, metric)
    moments, statistic = (frame, Statistic.MEAN) if rate else (whole, Statistic.MAX)
    highest = compute_lines(moments, metric, statistic, Aggregate.MAX, one_line)
    highest_of_job = compute_lines(frame, metric, statistic, Aggregate.WHOLE, one_line)
    over_life = compute_lines(whole, metric, Statistic.MEAN, Aggregate.WHOLE, one_line) if rate else points
    total = compute_lines(whole, counter, Statistic.INCREASE, Aggregate.SUM, one_line) if rate and counter else None
    return MetricSummary(
        metric=metric.name,
        unit=metric.answer_unit,
        job_mean=float(over_life.value.mean()) if len(over_life) else None,
        job_max=float(highest_of_job.value.max()) if len(highest_of_job) else None,
        mean=_read_single(mean),
        max=float(highest.value.max()) if len(highest) else None,
        last=float(points.value[-1]) if len(points) else None,
        total=None if total is None else _read_single(total),
        total_unit=counter.unit if rate and counter else "",
        points=_grid(points, span, step_ms),
    )


def _is_rate(frame: BucketedSeries, metric: Metric) -> bool:
    """Return True if the values of a metric in this frame come from a counter."""
    if metric.kind is Kind.COUNTER:
        return True
    if len(frame.select_rows(metric.name)):
        return False
    source = find(metric.ratio[0]) if metric.ratio else find(metric.rate_of)
    return source is not None and _is_rate(frame, source)


def _read_single(table: ResultTable) -> float | None:
    return float(table.value[0]) if len(table) else None


def _grid(points: ResultTable, span: TimeRange, step_ms: int) -> list[float | None]:
    first = floor_to(span.start_ms, step_ms)
    count = (ceil_to(span.end_ms, step_ms) - first) // step_ms
    grid: list[float | None] = [None] * count
    for time, value in zip(points.time.tolist(), points.value.tolist(), strict=True):
        grid[(time - first) // step_ms] = value
    return grid
