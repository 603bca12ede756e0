"""Training jobs: their metrics, measured and reported, events and logs."""

from collections.abc import Iterable
from typing import Annotated, Any

from jobmeter.dialects.alibaba.common.instances import find_replicas
from jobmeter.dialects.alibaba.common.operation import (
    ORDER,
    TIME,
    AlibabaRequest,
    Step,
    answer,
    check_range,
    convert_units,
    make_range,
    map_pod_ids,
    operation,
    select_given,
)
from jobmeter.dialects.alibaba.pai_studio.names import DEFAULT_STEP_MS, INSTANCE_METRICS, TIME_TEXT, StudioPageRequest
from jobmeter.dialects.base import Steps, ask, round_digits
from jobmeter.dialects.base.request import Choice
from jobmeter.model.catalog import Metric
from jobmeter.model.event import Event, EventFilter
from jobmeter.model.job import Job
from jobmeter.model.series import choose_member_name
from jobmeter.model.time import HOUR, MAX_TIME_MS, NS_PER_MS, SECOND, TimeRange, ceil_to, format_iso
from jobmeter.query.defaults import find_end, find_start
from jobmeter.query.reported import JobReport, ReportedQuestion
from jobmeter.query.request import By, JobQuestion, JobRef, Line, LogQuestion, MetricQuery

TrainingJob = Annotated[str, "The job, by its id."]
RangeStart = Annotated[int | None, f"{TIME_TEXT} Default: the job's start.", TIME]
RangeEnd = Annotated[int | None, f"{TIME_TEXT} Not included. Default: now.", TIME]


class EventsOfJobRequest(StudioPageRequest, frozen=True, kw_only=True):
    """A request for events of a training job."""

    training_job_id: TrainingJob
    start_time: Annotated[int | None, f"{TIME_TEXT} Default: the first event.", TIME] = None
    end_time: Annotated[int | None, f"{TIME_TEXT} Not included. Default: the last event.", TIME] = None

    def read_events(self, instance: str) -> Steps:
        """Return the events of an instance; for an empty text, all events of the job."""
        check_range(self.start_time, self.end_time)
        view = yield from ask(JobQuestion(JobRef(self.training_job_id)))
        offset, size = self.page
        found = yield from ask(
            EventFilter(
                projects=frozenset({view.job.project}),
                jobs=(view.job.id,),
                replicas=find_replicas(view, instance),
                start=self.start_time,
                end=self.end_time,
                offset=offset,
                limit=size,
            )
        )
        body = {"Events": [_event_text(event) for event in found.events], "TotalCount": str(found.total)}
        return answer(body, self)


Instance = Annotated[str, "One instance: a pod's id or `<TrainingJobId>-<replica>`. Default: all."]


@operation("GET /api/v1/trainingjobs/{TrainingJobId}/metrics", "metrics:read", by_resource=True)
class ListTrainingJobMetrics(StudioPageRequest, frozen=True, kw_only=True):
    """Lists the reported metrics, sample by sample: `{Metrics: [{Name, Timestamp, Value}], TotalCount, RequestId}`.

    The names are `app.*` metrics without the prefix; metrics of agents are not among them. Values of all
    replicas; values at the same time are in the order of the replicas.
    """

    training_job_id: TrainingJob
    start_time: RangeStart = None
    end_time: RangeEnd = None
    name: Annotated[str, "One metric, `loss` for what was reported as `app.loss`. Default: all."] = ""
    order: Annotated[bool, "By time.", ORDER] = False

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(JobRef(self.training_job_id)))
        offset, size = self.page
        found = yield from ask(
            ReportedQuestion(
                ref=JobRef(view.job.id, view.job.project),
                range=_range_of(self.context.now_ms, (self.start_time, self.end_time), view.job),
                names=select_given(self.name),
                descending=self.order,
                offset=offset,
                limit=size,
            )
        )
        return answer({"Metrics": _describe_reports(found.reports), "TotalCount": found.total}, self)


@operation("GET /api/v1/trainingjobs/{TrainingJobId}/latestmetrics", "metrics:read", by_resource=True)
class GetTrainingJobLatestMetrics(AlibabaRequest, frozen=True, kw_only=True):
    """Returns the newest value of each metric that the program reported, of any replica.

    `{Metrics: [{Name, Timestamp, Value}], RequestId}`, by name, at most 1,000.
    """

    training_job_id: TrainingJob
    names: Annotated[tuple[str, ...], "Metrics, separated by commas. Default: all."] = ()

    def _steps(self) -> Steps:
        found = yield from ask(
            ReportedQuestion(
                ref=JobRef(self.training_job_id),
                range=TimeRange(0, MAX_TIME_MS),
                names=frozenset(self.names),
                latest=True,
                limit=1_000,
            )
        )
        return answer({"Metrics": _describe_reports(found.reports)}, self)


@operation("GET /api/v1/trainingjobs/{TrainingJobId}/instancemetrics", "metrics:read", by_resource=True)
class ListTrainingJobInstanceMetrics(AlibabaRequest, frozen=True, kw_only=True):
    """Returns one metric of a training job, a line for each instance.

    `{InstanceMetrics: [{InstanceId, NodeName, Metrics: [{Time, Value}]}], RequestId}`. `Time` is the start of the step
    as ISO 8601 text; utilisations are percent, rates MB/s (10^6 bytes), none below 0. Instances without samples are
    absent.
    """

    training_job_id: TrainingJob
    start_time: RangeStart = None
    end_time: RangeEnd = None
    metric_type: Annotated[Metric, Choice(INSTANCE_METRICS, exact=True)]
    instance_id: Instance = ""
    time_step: Annotated[int, Step(SECOND)] = DEFAULT_STEP_MS

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(JobRef(self.training_job_id)))
        result = yield from ask(
            MetricQuery(
                subject=JobRef(view.job.id, view.job.project),
                metrics=(self.metric_type.name,),
                range=_range_of(self.context.now_ms, (self.start_time, self.end_time), view.job, self.time_step),
                step_ms=self.time_step,
                by=By.REPLICA,
                replicas=find_replicas(view, self.instance_id),
            )
        )
        pods = map_pod_ids(view)
        nodes = {replica.name: replica.node for replica in sorted(view.replicas, key=lambda one: one.attempt)}
        members = [
            {
                "InstanceId": pods.get(name) or f"{view.job.id}-{name}",
                "NodeName": nodes.get(line.replica) or line.node,
                "Metrics": _points(line),
            }
            for line, name in ((line, choose_member_name(line.replica, line.node)) for line in result.lines)
        ]
        return answer({"InstanceMetrics": members}, self)


@operation("GET /api/v1/trainingjobs/{TrainingJobId}/events", "jobs:read", by_resource=True)
class ListTrainingJobEvents(EventsOfJobRequest, frozen=True, kw_only=True):
    """Lists the events of a job and its instances, by time: `{Events: [text], TotalCount, RequestId}`.

    An event is a line of time, level, instance, reason and message; `TotalCount` is text.
    """

    def _steps(self) -> Steps:
        return self.read_events("")


@operation("GET /api/v1/trainingjobs/{TrainingJobId}/instances/{InstanceId}/events", "jobs:read", by_resource=True)
class ListTrainingJobInstanceEvents(EventsOfJobRequest, frozen=True, kw_only=True):
    """Lists the events of one instance, as in ListTrainingJobEvents."""

    instance_id: Annotated[str, "A pod's id or `<TrainingJobId>-<replica>`."]

    def _steps(self) -> Steps:
        return self.read_events(self.instance_id)


@operation("GET /api/v1/trainingjobs/{TrainingJobId}/logs", "jobs:read", by_resource=True)
class ListTrainingJobLogs(StudioPageRequest, frozen=True, kw_only=True):
    """Lists the output of a job's processes, line by line and by time: `{Logs: [text], TotalCount, RequestId}`.

    `TotalCount` is text.
    """

    training_job_id: TrainingJob
    instance_id: Instance = ""
    worker_id: Annotated[str, "The older name of InstanceId."] = ""
    start_time: Annotated[int | None, f"{TIME_TEXT} Default: the first line.", TIME] = None
    end_time: Annotated[int | None, f"{TIME_TEXT} Not included. Default: the last line.", TIME] = None

    def _steps(self) -> Steps:
        start, end = self.start_time, self.end_time
        check_range(start, end)
        view = yield from ask(JobQuestion(JobRef(self.training_job_id)))
        offset, size = self.page
        found = yield from ask(
            LogQuestion(
                ref=JobRef(view.job.id, view.job.project),
                replicas=find_replicas(view, self.instance_id or self.worker_id),
                start_ns=None if start is None else start * NS_PER_MS,
                end_ns=None if end is None else end * NS_PER_MS,
                offset=offset,
                limit=size,
                count=True,
            )
        )
        total = len(found.lines) if found.total is None else found.total
        return answer({"Logs": [line.text for line in found.lines], "TotalCount": str(total)}, self)


def _range_of(now_ms: int, bounds: tuple[int | None, int | None], job: Job, step_ms: int = 1) -> TimeRange:
    """Return the range from StartTime (by default the job's start) to EndTime (by default now).

    After a job's end the default EndTime is its end, rounded up to the step.
    """
    start, end = bounds
    ended, begun = find_end(job), find_start(job)
    if end is None:
        end = now_ms if ended is None else min(now_ms, ceil_to(ended + 1, step_ms))
    if start is None:
        start = min(end, max(0, end - HOUR) if begun is None else begun)
    return make_range(start, end)


def _describe_reports(reports: Iterable[JobReport]) -> list[dict[str, Any]]:
    return [{"Name": one.name, "Timestamp": format_iso(one.time), "Value": round_digits(one.value)} for one in reports]


def _points(line: Line) -> list[dict[str, Any]]:
    values = convert_units(line)
    return [{"Time": format_iso(time), "Value": value} for time, value in zip(line.time.tolist(), values, strict=True)]


def _event_text(event: Event) -> str:
    """Format an event as ``2026-11-20T15:33:56Z WARNING worker-0 OOMKilled: ...``, without missing parts."""
    head = " ".join(filter(None, (format_iso(event.time), event.level.upper(), event.replica, event.reason)))
    return f"{head}: {event.message}" if event.message else head
