"""Reads the points of a request: the queries, and the conversion of their results."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from jobmeter.dialects.alibaba.common.cloudmonitor.dimensions import FIELD, MOST, MonitoredResource, name_card
from jobmeter.dialects.alibaba.common.cloudmonitor.names import MonitoredMeasure, MonitoredPart
from jobmeter.dialects.alibaba.common.cloudmonitor.request import MonitoringRequest, PointPosition
from jobmeter.dialects.alibaba.common.operation import Lookup, map_pod_ids
from jobmeter.dialects.base import ask
from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.catalog import Aggregate
from jobmeter.model.job import Condition, Job, JobFilter, JobState, Operator
from jobmeter.model.time import TimeRange, floor_to
from jobmeter.query.request import By, JobQuestion, JobRef, MetricQuery, Statistic

MOST_BUCKETS = 40_000
"""Most periods of one query."""

Points = Lookup[tuple[list[dict[str, Any]], str]]
_Values = dict[PointPosition, float]
_Point = tuple[PointPosition, dict[str, Any]]


class _Figures(NamedTuple):
    mean: _Values
    least: _Values
    most: _Values


class _Target(msgspec.Struct, frozen=True):
    """A job to read, its pods' names, and the requested resources."""

    job: Job
    pods: dict[str, str]
    resources: tuple[MonitoredResource, ...]

    def name_pod(self, replica: str) -> str:
        return self.pods.get(replica) or f"{self.job.id}-{replica}"

    def select_replicas(self, resources: Sequence[MonitoredResource]) -> frozenset[str] | None:
        """Return the replicas to read, empty for all; None if the job has none of the requested pods."""
        pods = {one.pod for one in resources}
        if "" in pods:
            return frozenset()
        return frozenset(replica for replica in self.pods if self.name_pod(replica) in pods) or None


def read_points(request: MonitoringRequest, *, strict: bool) -> Points:
    """Return one page of points by (time, job, pod, card), and the token of the next page, empty at the end.

    ``strict``: an unknown job raises NotFoundError; otherwise it has no points.
    """
    targets = yield from _targets(request, strict)
    after = request.after
    at = request.span.start_ms if after is None else max(request.span.start_ms, after.time)
    width = request.length
    found: list[_Point] = []
    while at < request.span.end_ms and len(found) <= request.length and targets:
        until = min(floor_to(at, request.period_ms) + width * request.period_ms, request.span.end_ms)
        points = yield from _points(request, targets, TimeRange(at, until))
        found += [point for point in points if after is None or point[0] > after]
        at, width = until, min(width * 4, MOST_BUCKETS)
    return _page(request, found)


def read_newest_page(request: MonitoringRequest) -> Points:
    """Return one page of each line's newest point, by (job, pod, card), and the token of the next page."""
    found = yield from _read_newest(request)
    after = request.after and request.after[1:]
    return _page(request, [one for one in found if after is None or one[0][1:] > after])


def read_newest_points(request: MonitoringRequest) -> Lookup[list[dict[str, Any]]]:
    """Return the newest point of each line, without a limit, by (job, pod, card)."""
    found = yield from _read_newest(request)
    return [point for _, point in found]


def _read_newest(request: MonitoringRequest) -> Lookup[list[_Point]]:
    targets = yield from _targets(request, strict=False)
    points = yield from _points(request, targets, request.span)
    last = {place[1:]: (place, point) for place, point in points}
    return [last[line] for line in sorted(last)]


def _page(request: MonitoringRequest, found: Sequence[_Point]) -> tuple[list[dict[str, Any]], str]:
    shown = found[: request.length]
    token = request.make_next_token(shown[-1][0]) if len(found) > len(shown) else ""
    return [point for _, point in shown], token


def _targets(request: MonitoringRequest, strict: bool) -> Lookup[list[_Target]]:
    by_job: dict[str, list[MonitoredResource]] = {}
    for resource in request.resources:
        names = [resource.job] if resource.job else (yield from _find_running_jobs(resource, request.span))
        for name in names:
            by_job.setdefault(name, []).append(resource)
    if len(by_job) > MOST:
        raise LimitExceededError(f"{FIELD} fit {len(by_job)} jobs, a question may be about {MOST}: name them", FIELD)
    found = []
    for name, filter_of in sorted(by_job.items()):
        try:
            view = yield from ask(JobQuestion(JobRef(name)))
        except NotFoundError:
            if strict:
                raise
            continue
        found.append(_Target(view.job, map_pod_ids(view), tuple(filter_of)))
    return found


def _find_running_jobs(resource: MonitoredResource, span: TimeRange) -> Lookup[list[str]]:
    """Return the jobs that ran in the range: the jobs of a member that names no job."""
    workspaces = frozenset({resource.workspace}) if resource.workspace else frozenset()
    ended = Condition("end", Operator.BETWEEN, (span.start_ms, None))
    running = yield from ask(JobFilter(states=frozenset({JobState.RUNNING}), workspaces=workspaces, limit=MOST + 1))
    closed = frozenset(state for state in JobState if state.finished)
    past = yield from ask(JobFilter(states=closed, workspaces=workspaces, conditions=(ended,), limit=MOST + 1))
    jobs = [job for job in (*running.jobs, *past.jobs) if job.start is None or job.start < span.end_ms]
    return [job.id for job in jobs]


def _points(request: MonitoringRequest, targets: Sequence[_Target], span: TimeRange) -> Lookup[list[_Point]]:
    found: list[_Point] = []
    for target in targets:
        for by, resources in _levels(request.measure, target.resources):
            replicas = target.select_replicas(resources)
            if replicas is None:
                continue
            figures = yield from _figures(request, target, span, by, replicas)
            found += _describe_points(request.measure, target, resources, figures)
    return sorted(found, key=lambda point: point[0])


def _levels(
    measure: MonitoredMeasure, resources: Iterable[MonitoredResource]
) -> Iterator[tuple[By, list[MonitoredResource]]]:
    """Yield the level of each group of members. A job metric of a named pod has the pod's level."""
    members = list(resources)
    if measure.by is not By.JOB:
        yield measure.by, members
        return
    for by, some in ((By.JOB, [w for w in members if not w.pod]), (By.REPLICA, [w for w in members if w.pod])):
        if some:
            yield by, some


def _figures(
    request: MonitoringRequest, target: _Target, span: TimeRange, by: By, replicas: frozenset[str]
) -> Lookup[_Figures]:
    measure = request.measure

    def values(name: str, statistic: Statistic, how: Aggregate | None) -> Lookup[_Values]:
        result = yield from ask(
            MetricQuery(
                subject=JobRef(target.job.id, target.job.project),
                metrics=(name,),
                range=span,
                step_ms=request.period_ms,
                by=by,
                statistic=statistic,
                aggregate=how,
                replicas=replicas,
            )
        )
        return {
            PointPosition(time, target.job.id, line.replica, line.device): value
            for line in result.lines
            for time, value in zip(line.time.tolist(), line.value.tolist(), strict=True)
        }

    total = Aggregate.SUM if measure.summed else None
    mean = yield from values(measure.metric.name, Statistic.MEAN, total)
    least = most = mean
    if not measure.steady:
        least = yield from values(measure.metric.name, Statistic.MIN, total or Aggregate.MIN)
        most = yield from values(measure.metric.name, Statistic.MAX, total or Aggregate.MAX)
    figures = _Figures(mean, least, most)
    if measure.part is MonitoredPart.ITSELF:
        return figures
    share = yield from values(measure.share, Statistic.MEAN, None)
    limit = {place: mean[place] / part for place, part in share.items() if part and place in mean}
    return _divide_by_limit(figures, limit, measure.part)


def _divide_by_limit(usage: _Figures, limit: _Values, part: MonitoredPart) -> _Figures:
    if part is MonitoredPart.TOTAL:
        return _Figures(limit, limit, limit)
    return _Figures(
        *(
            {place: limit[place] - values[place] for place in limit if place in values}
            for values in (usage.mean, usage.most, usage.least)
        )
    )


def _describe_points(
    measure: MonitoredMeasure, target: _Target, resources: Sequence[MonitoredResource], figures: _Figures
) -> Iterator[_Point]:
    for place, value in figures.mean.items():
        pod = target.name_pod(place.replica) if place.replica else ""
        card = name_card(place.device) if place.device else ""
        match = next((one for one in resources if one.covers(pod, card)), None)
        if match is not None:
            average = measure.convert(value)
            point = {
                "timestamp": place.time,
                **_make_dimensions(target, match, pod, card),
                "Minimum": measure.convert(figures.least.get(place, value)),
                "Maximum": measure.convert(figures.most.get(place, value)),
                "Average": average,
                "Value": average,
            }
            yield place, point


def _make_dimensions(target: _Target, resource: MonitoredResource, pod: str, card: str) -> dict[str, str]:
    parts = {
        "userId": resource.user or target.job.user,
        "regionId": resource.region,
        "workspaceId": target.job.workspace,
        "jobId": target.job.id,
        "pod": pod,
        "gpu": card,
    }
    return {name: part for name, part in parts.items() if part}
