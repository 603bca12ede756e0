"""Training jobs: their metrics, measured and reported, events and logs."""

from collections.abc import Iterable
from typing import Any

from jobmeter.dialects.alibaba.common.instances import replicas_named
from jobmeter.dialects.alibaba.common.operation import (
    Arguments,
    answer,
    in_path,
    in_query,
    in_their_unit,
    listed,
    member_name,
    operation,
    ordered_range,
    pod_ids,
)
from jobmeter.dialects.alibaba.pai_studio.names import DEFAULT_STEP_MS, INSTANCE_METRICS, PAGES, TIME, page
from jobmeter.dialects.base import Steps, execute, rounded
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Event, EventFilter
from jobmeter.model.job import Job
from jobmeter.model.time import HOUR, MAX_TIME_MS, NS_PER_MS, SECOND, TimeRange, ceil_to, iso
from jobmeter.query.defaults import job_end, job_start
from jobmeter.query.reported import Report, ReportedQuestion
from jobmeter.query.request import By, JobQuestion, JobRef, Line, LogQuestion, MetricQuery

_JOB = in_path("TrainingJobId", "The job, by its id.")
_INSTANCE = in_query("InstanceId", "One instance: a pod's id or `<TrainingJobId>-<replica>`. Default: all.")
_JOB_RANGE = (
    in_query("StartTime", f"{TIME} Default: the job's start."),
    in_query("EndTime", f"{TIME} Default: now. Not included."),
)
_EVENT_RANGE = (
    in_query("StartTime", f"{TIME} Default: the first event."),
    in_query("EndTime", f"{TIME} Default: the last event. Not included."),
)


@operation(
    "GET /api/v1/trainingjobs/{TrainingJobId}/metrics",
    "metrics:read",
    _JOB,
    in_query("Name", "One metric, `loss` for what was reported as `app.loss`. Default: all."),
    *_JOB_RANGE,
    in_query("Order", "By time, `ASC` or `DESC`. Default: `ASC`."),
    *PAGES,
    by_resource=True,
)
def list_training_job_metrics(arguments: Arguments) -> Steps:
    """Lists the reported metrics, sample by sample: `{Metrics: [{Name, Timestamp, Value}], TotalCount, RequestId}`.

    The names are `app.*` metrics without the prefix; metrics of agents are not among them. Values of all
    replicas; values at the same time are in the order of the replicas.
    """
    ref = JobRef(arguments.required("TrainingJobId"))
    offset, size = page(arguments)
    descending = arguments.descending(default=False)
    view = yield from execute(JobQuestion(ref))
    name = arguments.text("Name")
    found = yield from execute(
        ReportedQuestion(
            ref=JobRef(view.job.id, view.job.project),
            range=_job_range(arguments, view.job),
            names=frozenset({name} if name else ()),
            descending=descending,
            offset=offset,
            limit=size,
        )
    )
    return answer({"Metrics": _reported(found.reports), "TotalCount": found.total}, arguments)


@operation(
    "GET /api/v1/trainingjobs/{TrainingJobId}/latestmetrics",
    "metrics:read",
    _JOB,
    in_query("Names", "Metrics, separated by commas. Default: all."),
    by_resource=True,
)
def get_training_job_latest_metrics(arguments: Arguments) -> Steps:
    """Returns the newest value of each metric that the program reported, of any replica.

    `{Metrics: [{Name, Timestamp, Value}], RequestId}`, by name, at most 1,000.
    """
    found = yield from execute(
        ReportedQuestion(
            ref=JobRef(arguments.required("TrainingJobId")),
            range=TimeRange(0, MAX_TIME_MS),
            names=frozenset(arguments.names("Names")),
            latest=True,
            limit=1_000,
        )
    )
    return answer({"Metrics": _reported(found.reports)}, arguments)


@operation(
    "GET /api/v1/trainingjobs/{TrainingJobId}/instancemetrics",
    "metrics:read",
    _JOB,
    in_query("MetricType", f"One of {listed(INSTANCE_METRICS)}.", required=True),
    _INSTANCE,
    *_JOB_RANGE,
    in_query("TimeStep", "`10s`, `5m`, `1h`; a bare number counts seconds. Default: `5m`."),
    by_resource=True,
)
def list_training_job_instance_metrics(arguments: Arguments) -> Steps:
    """Returns one metric of a training job, a line for each instance.

    `{InstanceMetrics: [{InstanceId, NodeName, Metrics: [{Time, Value}]}], RequestId}`. `Time` is the start of the step
    as ISO 8601 text; utilisations are percent, rates MB/s (10^6 bytes), none below 0. Instances without samples are
    absent.
    """
    ref = JobRef(arguments.required("TrainingJobId"))
    metric = INSTANCE_METRICS.get(metric_type := arguments.required("MetricType"))
    if metric is None:
        names = ", ".join(INSTANCE_METRICS)
        raise InvalidRequestError(f"MetricType {metric_type!r} is not one of {names}", "MetricType")
    step_ms = arguments.step("TimeStep", DEFAULT_STEP_MS, SECOND)
    view = yield from execute(JobQuestion(ref))
    result = yield from execute(
        MetricQuery(
            subject=JobRef(view.job.id, view.job.project),
            metrics=(metric.name,),
            range=_job_range(arguments, view.job, step_ms),
            step_ms=step_ms,
            by=By.REPLICA,
            replicas=replicas_named(view, arguments.text("InstanceId")),
        )
    )
    pods = pod_ids(view)
    nodes = {replica.name: replica.node for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    members = [
        {
            "InstanceId": pods.get(member_name(line)) or f"{view.job.id}-{member_name(line)}",
            "NodeName": nodes.get(line.replica) or line.node,
            "Metrics": _points(line),
        }
        for line in result.lines
    ]
    return answer({"InstanceMetrics": members}, arguments)


@operation(
    "GET /api/v1/trainingjobs/{TrainingJobId}/events", "jobs:read", _JOB, *_EVENT_RANGE, *PAGES, by_resource=True
)
def list_training_job_events(arguments: Arguments) -> Steps:
    """Lists the events of a job and its instances, by time: `{Events: [text], TotalCount, RequestId}`.

    An event is a line of time, level, instance, reason and message; `TotalCount` is text.
    """
    return _events(arguments, "")


@operation(
    "GET /api/v1/trainingjobs/{TrainingJobId}/instances/{InstanceId}/events",
    "jobs:read",
    _JOB,
    in_path("InstanceId", "A pod's id or `<TrainingJobId>-<replica>`."),
    *_EVENT_RANGE,
    *PAGES,
    by_resource=True,
)
def list_training_job_instance_events(arguments: Arguments) -> Steps:
    """Lists the events of one instance, as in ListTrainingJobEvents."""
    return _events(arguments, arguments.required("InstanceId"))


def _events(arguments: Arguments, instance: str) -> Steps:
    ref = JobRef(arguments.required("TrainingJobId"))
    offset, size = page(arguments)
    start, end = arguments.times()
    view = yield from execute(JobQuestion(ref))
    found = yield from execute(
        EventFilter(
            projects=frozenset({view.job.project}),
            jobs=(view.job.id,),
            replicas=replicas_named(view, instance),
            start=start,
            end=end,
            offset=offset,
            limit=size,
        )
    )
    body = {"Events": [_event_text(event) for event in found.events], "TotalCount": str(found.total)}
    return answer(body, arguments)


@operation(
    "GET /api/v1/trainingjobs/{TrainingJobId}/logs",
    "jobs:read",
    _JOB,
    _INSTANCE,
    in_query("WorkerId", "The older name of InstanceId."),
    in_query("StartTime", f"{TIME} Default: the first line."),
    in_query("EndTime", f"{TIME} Default: the last line. Not included."),
    *PAGES,
    by_resource=True,
)
def list_training_job_logs(arguments: Arguments) -> Steps:
    """Lists the output of a job's processes, line by line and by time: `{Logs: [text], TotalCount, RequestId}`.

    `TotalCount` is text.
    """
    ref = JobRef(arguments.required("TrainingJobId"))
    offset, size = page(arguments)
    start, end = arguments.times()
    view = yield from execute(JobQuestion(ref))
    found = yield from execute(
        LogQuestion(
            ref=JobRef(view.job.id, view.job.project),
            replicas=replicas_named(view, arguments.text("InstanceId") or arguments.text("WorkerId")),
            start_ns=None if start is None else start * NS_PER_MS,
            end_ns=None if end is None else end * NS_PER_MS,
            offset=offset,
            limit=size,
            count=True,
        )
    )
    total = len(found.lines) if found.total is None else found.total
    return answer({"Logs": [line.text for line in found.lines], "TotalCount": str(total)}, arguments)


def _job_range(arguments: Arguments, job: Job, step_ms: int = 1) -> TimeRange:
    """Return the range from StartTime (by default the job's start) to EndTime (by default now).

    After a job's end the default EndTime is its end, rounded up to the step.
    """
    now_ms, ended, begun = arguments.context.now_ms, job_end(job), job_start(job)
    end = arguments.time("EndTime", now_ms if ended is None else min(now_ms, ceil_to(ended + 1, step_ms)))
    start = arguments.time("StartTime", min(end, max(0, end - HOUR) if begun is None else begun))
    return ordered_range(start, end)


def _reported(reports: Iterable[Report]) -> list[dict[str, Any]]:
    return [{"Name": one.name, "Timestamp": iso(one.time), "Value": rounded(one.value)} for one in reports]


def _points(line: Line) -> list[dict[str, Any]]:
    values = in_their_unit(line)
    return [{"Time": iso(time), "Value": value} for time, value in zip(line.time.tolist(), values, strict=True)]


def _event_text(event: Event) -> str:
    """Format an event as ``2026-11-20T15:33:56Z WARNING worker-0 OOMKilled: ...``, without missing parts."""
    head = " ".join(filter(None, (iso(event.time), event.level.upper(), event.replica, event.reason)))
    return f"{head}: {event.message}" if event.message else head
