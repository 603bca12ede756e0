"""GetJobEvents and GetPodEvents: plain sentences, each after its time.

https://help.aliyun.com/zh/pai/developer-reference/api-pai-dlc-2020-12-03-getjobevents
https://help.aliyun.com/zh/pai/developer-reference/api-pai-dlc-2020-12-03-getpodevents
"""

from jobmeter.dialects.alibaba.common.operation import Arguments, Lookup, answer, in_query, operation, pod_ids
from jobmeter.dialects.alibaba.common.times import plain
from jobmeter.dialects.alibaba.pai_dlc.operations.common import JOB, LAST_WEEK, POD, WEEK, job_view
from jobmeter.dialects.alibaba.pai_dlc.pods import find, pod_id, pod_uid
from jobmeter.dialects.alibaba.pai_dlc.states import WORDS
from jobmeter.dialects.base import Steps, execute
from jobmeter.model.event import Event, EventFilter, EventSource
from jobmeter.model.job import Job, JobState

DEFAULT_EVENTS = 2000
MAX_EVENTS = 10_000
_MAX = in_query("MaxEventsNum", f"1 to {MAX_EVENTS}; of more events, the newest are given. Default: {DEFAULT_EVENTS}.")


@operation("GET /api/v1/jobs/{JobId}/events", "jobs:read", JOB, _MAX, *LAST_WEEK, by_resource=True)
def get_job_events(arguments: Arguments) -> Steps:
    """Lists the events of a job and its pods, oldest first: `{JobId, Events, RequestId}`.

    Each event is a text such as `2021-01-28 14:07:24 Job dlc1 is Running.` with a time in UTC.
    """
    view = yield from job_view(arguments)
    events = yield from _events(arguments, view.job)
    pods = {name: pod or f"{view.job.id}-{name}" for name, pod in pod_ids(view).items()}
    bodies = [_message(event, view.job, pods.get(event.replica, event.replica)) for event in events]
    return answer({"JobId": view.job.id, "Events": bodies}, arguments)


@operation("GET /api/v1/jobs/{JobId}/pods/{PodId}/events", "jobs:read", JOB, *POD, _MAX, *LAST_WEEK, by_resource=True)
def get_pod_events(arguments: Arguments) -> Steps:
    """Lists the events of one pod, as in GetJobEvents: `{JobId, PodId, PodUid, Events, RequestId}`."""
    view = yield from job_view(arguments)
    replica, one_attempt = find(view, arguments.required("PodId"), arguments.text("PodUid"))
    events = yield from _events(arguments, view.job, replica.name)
    shown = [event for event in events if not one_attempt or event.attempt == replica.attempt]
    pod = pod_id(replica, view.job)
    body = {
        "JobId": view.job.id,
        "PodId": pod,
        "PodUid": pod_uid(replica, view.job),
        "Events": [_message(event, view.job, pod if event.source is EventSource.STATE else "") for event in shown],
    }
    return answer(body, arguments)


def _events(arguments: Arguments, job: Job, replica: str = "") -> Lookup[list[Event]]:
    """Return the newest events, oldest first."""
    span = arguments.time_range(WEEK)
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


def _message(event: Event, job: Job, pod: str) -> str:
    """Format an event as ``2021-01-28 14:07:24 text``, with the pod if it concerns one."""
    if event.source is EventSource.STATE and event.reason in set(JobState):
        whose = f"Pod {pod}" if pod else f"Job {job.id}"
        parts = [f"{whose} is {WORDS[JobState(event.reason)]}.", event.message]
        return " ".join([plain(event.time), *filter(None, parts)])
    parts = [event.reason if event.reason not in event.message else "", event.message]
    return f"{plain(event.time)} {f'Pod {pod}: ' if pod else ''}{': '.join(filter(None, parts))}"
