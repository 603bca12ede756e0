"""ListTrainingJobEvents, and NotifyTrainingJobInformation, with which a task reports an event.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ListTrainingJobEvents.html
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from jobmeter.dialects.base import RecordJobs, Steps, ask
from jobmeter.dialects.base.request import HEADER, Choice, Time
from jobmeter.dialects.modelarts.answers import answer, format_time
from jobmeter.dialects.modelarts.errors import INVALID_QUERY, RefusedError
from jobmeter.dialects.modelarts.requests import JOB_PATH, MAX_INTEGER, ModelArtsJobRequest, TaskRequest, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Event, EventFilter, EventSource, Level
from jobmeter.model.record import EventRecord, Records
from jobmeter.query.request import JobQuestion

MAX_TYPE = 256
_LEVELS: Mapping[str, frozenset[Level]] = {
    "Info": frozenset({Level.DEBUG, Level.INFO}),
    "Warning": frozenset({Level.WARNING}),
    "Error": frozenset({Level.ERROR}),
}
_SOURCES: Mapping[str, frozenset[EventSource]] = {
    "Job": frozenset({EventSource.STATE, EventSource.JOB, EventSource.SERVER}),
    "Task": frozenset({EventSource.REPLICA}),
    "K8S": frozenset({EventSource.NODE}),
}


@operation(f"GET {JOB_PATH}/events", "jobs:read", name="ListTrainingJobEvents", by_resource=True)
class ListModelArtsJobEvents(ModelArtsJobRequest, frozen=True, kw_only=True):
    """`{total, limit, offset, order, start_time, end_time, events: [{time, level, message, source}]}`."""

    offset: Annotated[int, "The page, counted from 0.", Meta(ge=0, le=MAX_INTEGER)] = 0
    limit: Annotated[int, "Events on a page.", Meta(ge=1, le=100)] = 50
    order: Annotated[Literal["asc", "desc"], "By time."] = "asc"
    start_time: Annotated[int | None, "Milliseconds or ISO 8601; with `end_time`.", Time()] = None
    end_time: Annotated[int | None, "Included; with `start_time`.", Time()] = None
    level: Annotated[frozenset[Level], "Default: all.", Choice(_LEVELS)] = frozenset()
    pattern: Annotated[str, "A part of the message.", Meta(max_length=256)] = ""
    source: Annotated[frozenset[EventSource], "`K8S`: nodes. Default: all.", Choice(_SOURCES)] = frozenset()
    language: Annotated[str, HEADER, "Accepted; messages are as they were recorded."] = field(
        default="", name="X-Language"
    )

    def _steps(self) -> Steps:
        self._check_range()
        view = yield from ask(JobQuestion(self.ref))
        page = yield from ask(
            EventFilter(
                projects=frozenset({view.job.project}),
                jobs=(view.job.id,),
                sources=self.source,
                levels=self.level,
                contains=self.pattern,
                start=self.start_time,
                end=None if self.end_time is None else self.end_time + 1,
                descending=self.order == "desc",
                offset=self.offset * self.limit,
                limit=self.limit,
            )
        )
        body = {
            "total": page.total,
            "limit": self.limit,
            "offset": self.offset,
            "order": self.order,
            "start_time": (self.call.get_parameter("start_time") or "").strip(),
            "end_time": (self.call.get_parameter("end_time") or "").strip(),
            "events": [_event(event) for event in page.events],
        }
        return answer(body, self.context)

    def _check_range(self) -> None:
        if (self.start_time is None) != (self.end_time is None):
            missing = "start_time" if self.start_time is None else "end_time"
            raise RefusedError(INVALID_QUERY, "start_time and end_time come together", missing)
        if self.start_time is not None and self.end_time is not None and self.end_time < self.start_time:
            raise RefusedError(INVALID_QUERY, "it lies before start_time", "end_time")


@operation(f"POST {JOB_PATH}/tasks/{{task_id}}/reports/{{report_type}}", "jobs:write")
class NotifyTrainingJobInformation(TaskRequest, frozen=True, kw_only=True):
    """Stores an event of the task, now, with the type as its reason; `{}`."""

    report_type: Literal["training-event"]
    type: Annotated[str, f"The name of the event, 1 to {MAX_TYPE} characters."]

    def _steps(self) -> Steps:
        ref, name = self.ref, self.type.strip()
        if not (0 < len(name) <= MAX_TYPE and name.isprintable()):
            raise InvalidRequestError(f"it has 1 to {MAX_TYPE} printable characters", "type")
        view = yield from ask(JobQuestion(ref))
        event = EventRecord(
            time=self.context.now_ms,
            project=view.job.project,
            job=view.job.id,
            replica=self.find_task(view),
            source=EventSource.REPLICA,
            reason=name,
            message="Reported by the task.",
        )
        yield from ask(RecordJobs(Records(events=[event])))
        return answer({}, self.context)


def _event(event: Event) -> dict[str, Any]:
    where = f"[{event.replica or event.node}] " if event.replica or event.node else ""
    what = ": ".join(text for text in (event.reason, event.message) if text)
    return {
        "time": format_time(event.time),
        "level": next(name for name, levels in _LEVELS.items() if event.level in levels),
        "message": where + what,
        "source": next(name for name, sources in _SOURCES.items() if event.source in sources),
    }
