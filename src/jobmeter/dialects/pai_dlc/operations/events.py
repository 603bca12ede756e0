"""GetJobEvents and GetPodEvents: plain sentences, each behind its time.

https://help.aliyun.com/zh/pai/developer-reference/api-pai-dlc-2020-12-03-getjobevents
https://help.aliyun.com/zh/pai/developer-reference/api-pai-dlc-2020-12-03-getpodevents
"""

from collections.abc import Generator
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer, requested_range
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_dlc.pods import find, pod_id, pod_uid
from jobmeter.dialects.pai_dlc.states import WORDS
from jobmeter.dialects.pai_dlc.times import TIME, WEEK, plain
from jobmeter.model.event import Event, EventFilter, EventSource
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.question import Question
from jobmeter.query.request import JobQuestion, JobRef

DEFAULT_EVENTS = 2000
MAX_EVENTS = 10_000


def get_job_events(call: Call, context: Context) -> Steps:
    """What happened to a job and to its pods."""
    arguments = Arguments(call, context)
    view = yield from execute(JobQuestion(JobRef(arguments.required("JobId"))))
    events = yield from _events(arguments, context, view.job)
    pods = {replica.name: pod_id(replica, view.job) for replica in _by_attempt(view)}
    bodies = [_message(event, view.job, pods.get(event.replica, event.replica)) for event in events]
    return answer({"JobId": view.job.id, "Events": bodies}, context)


def get_pod_events(call: Call, context: Context) -> Steps:
    """What happened to one pod; of one attempt of it, where PodUid names one."""
    arguments = Arguments(call, context)
    view = yield from execute(JobQuestion(JobRef(arguments.required("JobId"))))
    replica, one_attempt = find(view, arguments.required("PodId"), arguments.text("PodUid"))
    events = yield from _events(arguments, context, view.job, replica.name)
    shown = [event for event in events if not one_attempt or event.attempt == replica.attempt]
    pod = pod_id(replica, view.job)
    body = {
        "JobId": view.job.id,
        "PodId": pod,
        "PodUid": pod_uid(replica, view.job),
        "Events": [_message(event, view.job, pod if event.source is EventSource.STATE else "") for event in shown],
    }
    return answer(body, context)


def _events(
    arguments: Arguments, context: Context, job: Job, replica: str = ""
) -> Generator[Question[Any], Any, list[Event]]:
    """The newest, oldest first."""
    span = requested_range(arguments, context.now_ms, WEEK)
    page = yield from execute(
        EventFilter(
            projects=frozenset({job.project}),
            jobs=(job.id,),
            replicas=frozenset({replica}) if replica else frozenset(),
            start=span.start_ms,
            end=span.end_ms + 1,
            descending=True,
            limit=arguments.integer("MaxEventsNum", DEFAULT_EVENTS, 1, MAX_EVENTS),
        )
    )
    return list(reversed(page.events))


def _by_attempt(view: JobView) -> list[Replica]:
    return sorted(view.replicas, key=lambda replica: replica.attempt)


def _message(event: Event, job: Job, pod: str) -> str:
    """``2021-01-28 14:07:24 text``, with the pod where it is about one."""
    if event.source is EventSource.STATE and event.reason in set(JobState):
        whose = f"Pod {pod}" if pod else f"Job {job.id}"
        parts = [f"{whose} is {WORDS[JobState(event.reason)]}.", event.message]
        return " ".join([plain(event.time), *filter(None, parts)])
    parts = [event.reason if event.reason not in event.message else "", event.message]
    return f"{plain(event.time)} {f'Pod {pod}: ' if pod else ''}{': '.join(filter(None, parts))}"


_MAX = Parameter(
    "MaxEventsNum",
    "query",
    f"1 to {MAX_EVENTS}; of more events, the newest are given. Default: {DEFAULT_EVENTS}.",
)
_TIMES = (
    Parameter("StartTime", "query", f"{TIME} Default: seven days ago."),
    Parameter("EndTime", "query", f"{TIME} Default: now. Included."),
)

OPERATIONS = (
    Operation(
        name="GetJobEvents",
        action="jobs:read",
        method="GET",
        path="/api/v1/jobs/{JobId}/events",
        answer=get_job_events,
        parameters=(Parameter("JobId", "path", "The job.", required=True), _MAX, *_TIMES),
        text=(
            "What happened to a job and its pods, oldest first, each event a text such as `2021-01-28 14:07:24 Job "
            "dlc1 is Running.` with a time in UTC: `{JobId, Events, RequestId}`."
        ),
    ),
    Operation(
        name="GetPodEvents",
        action="jobs:read",
        method="GET",
        path="/api/v1/jobs/{JobId}/pods/{PodId}/events",
        answer=get_pod_events,
        parameters=(
            Parameter("JobId", "path", "The job.", required=True),
            Parameter("PodId", "path", "The pod, as GetJob names it.", required=True),
            Parameter("PodUid", "query", "One attempt of the pod, as GetJob names it. Default: all of them."),
            _MAX,
            *_TIMES,
        ),
        text="What happened to one pod, as in GetJobEvents: `{JobId, PodId, PodUid, Events, RequestId}`.",
    ),
)
