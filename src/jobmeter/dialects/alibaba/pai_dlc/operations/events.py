"""GetJobEvents and GetPodEvents: plain sentences, each after its time.

https://help.aliyun.com/zh/pai/developer-reference/api-pai-dlc-2020-12-03-getjobevents
https://help.aliyun.com/zh/pai/developer-reference/api-pai-dlc-2020-12-03-getpodevents
"""

from typing import Annotated

from msgspec import Meta

from jobmeter.dialects.alibaba.common.operation import Lookup, answer, map_pod_ids, operation, select_given
from jobmeter.dialects.alibaba.common.times import format_plain
from jobmeter.dialects.alibaba.pai_dlc.pods import find, make_pod_id, make_pod_uid
from jobmeter.dialects.alibaba.pai_dlc.requests import WEEK, DlcJobRequest, PodRequest, WeekEnd, WeekStart
from jobmeter.dialects.alibaba.pai_dlc.states import WORDS
from jobmeter.dialects.base import Steps, ask
from jobmeter.model.event import Event, EventFilter, EventSource
from jobmeter.model.job import Job, JobState
from jobmeter.model.time import TimeRange

MaxEvents = Annotated[int, "Most events; the newest are returned.", Meta(ge=1, le=10_000)]


@operation("GET /api/v1/jobs/{JobId}/events", "jobs:read", by_resource=True)
class GetJobEvents(DlcJobRequest, frozen=True, kw_only=True):
    """Lists the events of a job and its pods, oldest first: `{JobId, Events, RequestId}`.

    Each event is a text such as `2021-01-28 14:07:24 Job dlc1 is Running.` with a time in UTC.
    """

    max_events_num: MaxEvents = 2000
    start_time: WeekStart = None
    end_time: WeekEnd = None

    def _steps(self) -> Steps:
        view = yield from self.find_view()
        events = yield from _events(
            view.job, "", self.read_time_range(self.start_time, self.end_time, WEEK), self.max_events_num
        )
        pods = {name: pod or f"{view.job.id}-{name}" for name, pod in map_pod_ids(view).items()}
        bodies = [_message(event, view.job, pods.get(event.replica, event.replica)) for event in events]
        return answer({"JobId": view.job.id, "Events": bodies}, self)


@operation("GET /api/v1/jobs/{JobId}/pods/{PodId}/events", "jobs:read", by_resource=True)
class GetPodEvents(PodRequest, frozen=True, kw_only=True):
    """Lists the events of one pod, as in GetJobEvents: `{JobId, PodId, PodUid, Events, RequestId}`."""

    max_events_num: MaxEvents = 2000
    start_time: WeekStart = None
    end_time: WeekEnd = None

    def _steps(self) -> Steps:
        view = yield from self.find_view()
        replica, one_attempt = find(view, self.pod_id, self.pod_uid)
        events = yield from _events(
            view.job, replica.name, self.read_time_range(self.start_time, self.end_time, WEEK), self.max_events_num
        )
        shown = [event for event in events if not one_attempt or event.attempt == replica.attempt]
        pod = make_pod_id(replica, view.job)
        body = {
            "JobId": view.job.id,
            "PodId": pod,
            "PodUid": make_pod_uid(replica, view.job),
            "Events": [_message(event, view.job, pod if event.source is EventSource.STATE else "") for event in shown],
        }
        return answer(body, self)


def _events(job: Job, replica: str, span: TimeRange, most: int) -> Lookup[list[Event]]:
    """Return the newest events, oldest first."""
    page = yield from ask(
        EventFilter(
            projects=frozenset({job.project}),
            jobs=(job.id,),
            replicas=select_given(replica),
            start=span.start_ms,
            end=span.end_ms + 1,
            descending=True,
            limit=most,
        )
    )
    return list(reversed(page.events))


def _message(event: Event, job: Job, pod: str) -> str:
    """Format an event as ``2021-01-28 14:07:24 text``, with the pod of a pod's event."""
    if event.source is EventSource.STATE and event.reason in set(JobState):
        whose = f"Pod {pod}" if pod else f"Job {job.id}"
        parts = [f"{whose} is {WORDS[JobState(event.reason)]}.", event.message]
        return " ".join([format_plain(event.time), *filter(None, parts)])
    parts = [event.reason if event.reason not in event.message else "", event.message]
    return f"{format_plain(event.time)} {f'Pod {pod}: ' if pod else ''}{': '.join(filter(None, parts))}"
