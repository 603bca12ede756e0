"""ListTrainingJobEvents, and NotifyTrainingJobInformation, with which a task reports an event.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ListTrainingJobEvents.html
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Parameter, RecordJobs, Steps, execute
from jobmeter.dialects.modelarts.answers import answer, iso_with_offset
from jobmeter.dialects.modelarts.arguments import (
    MAX_INTEGER,
    job_of,
    json_body,
    query_choice,
    query_integer,
    query_text,
    query_time,
    task_of,
)
from jobmeter.dialects.modelarts.errors import INVALID_QUERY, RefusedError
from jobmeter.dialects.modelarts.operations.common import JOB_PATH, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Event, EventFilter, EventSource, Level
from jobmeter.model.record import EventRecord, Records
from jobmeter.query.request import JobQuestion

DEFAULT_LIMIT, MAX_LIMIT = 50, 100
MAX_PATTERN = 256
MAX_TYPE = 256
REPORT_TYPE = "training-event"
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


class ReportBody(msgspec.Struct):
    """The body of NotifyTrainingJobInformation."""

    type: str = ""


def list_training_job_events(call: Call, context: Context) -> Steps:
    """Return one page of a job's events."""
    limit = query_integer(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
    offset = query_integer(call, "offset", 0, 0, MAX_INTEGER)
    order = query_choice(call, "order", ("asc", "desc"), "asc")
    start, end = _range(call)
    ref = job_of(call, context)
    view = yield from execute(JobQuestion(ref))
    page = yield from execute(
        EventFilter(
            projects=frozenset({view.job.project}),
            jobs=(view.job.id,),
            sources=_SOURCES.get(query_choice(call, "source", tuple(_SOURCES), ""), frozenset()),
            levels=_LEVELS.get(query_choice(call, "level", tuple(_LEVELS), ""), frozenset()),
            contains=_pattern(call),
            start=start,
            end=None if end is None else end + 1,
            descending=order == "desc",
            offset=offset * limit,
            limit=limit,
        )
    )
    body = {
        "total": page.total,
        "limit": limit,
        "offset": offset,
        "order": order,
        "start_time": query_text(call, "start_time"),
        "end_time": query_text(call, "end_time"),
        "events": [_event(event) for event in page.events],
    }
    return answer(body, context)


def notify_training_job_information(call: Call, context: Context) -> Steps:
    """Store an event of the task, with the type in its body."""
    ref = job_of(call, context)
    report = context.path["report_type"]
    if report != REPORT_TYPE:
        raise InvalidRequestError(f"{report[:64]!r} is not {REPORT_TYPE}", "report_type")
    name = json_body(call, ReportBody).type.strip()
    if not (0 < len(name) <= MAX_TYPE and name.isprintable()):
        raise InvalidRequestError(f"it has 1 to {MAX_TYPE} printable characters", "type")
    view = yield from execute(JobQuestion(ref))
    event = EventRecord(
        time=context.now_ms,
        project=view.job.project,
        job=view.job.id,
        replica=task_of(view, context),
        source=EventSource.REPLICA,
        reason=name,
        message="Reported by the task.",
    )
    yield from execute(RecordJobs(Records(events=[event])))
    return answer({}, context)


def _range(call: Call) -> tuple[int | None, int | None]:
    start, end = query_time(call, "start_time"), query_time(call, "end_time")
    if (start is None) != (end is None):
        missing = "start_time" if start is None else "end_time"
        raise RefusedError(INVALID_QUERY, "start_time and end_time come together", missing)
    if start is not None and end is not None and end < start:
        raise RefusedError(INVALID_QUERY, "it lies before start_time", "end_time")
    return start, end


def _pattern(call: Call) -> str:
    text = query_text(call, "pattern")
    if len(text) > MAX_PATTERN:
        raise RefusedError(INVALID_QUERY, f"it may have {MAX_PATTERN} characters", "pattern")
    return text


def _event(event: Event) -> dict[str, Any]:
    where = f"[{event.replica or event.node}] " if event.replica or event.node else ""
    what = ": ".join(text for text in (event.reason, event.message) if text)
    return {
        "time": iso_with_offset(event.time),
        "level": next(name for name, levels in _LEVELS.items() if event.level in levels),
        "message": where + what,
        "source": next(name for name, sources in _SOURCES.items() if event.source in sources),
    }


OPERATIONS = (
    operation(
        "ListTrainingJobEvents",
        "GET",
        f"{JOB_PATH}/events",
        list_training_job_events,
        "`{total, limit, offset, order, start_time, end_time, events: [{time, level, message, source}]}`.",
        Parameter("offset", "query", "Which page, counted from 0. Default: 0."),
        Parameter("limit", "query", f"Events on a page, 1 to {MAX_LIMIT}. Default: {DEFAULT_LIMIT}."),
        Parameter("order", "query", "By time, `asc` or `desc`. Default: `asc`."),
        Parameter("start_time", "query", "Milliseconds or ISO 8601; with `end_time`."),
        Parameter("end_time", "query", "Included; with `start_time`."),
        Parameter("level", "query", "`Info`, `Warning` or `Error`. Default: all."),
        Parameter("pattern", "query", f"What a message holds, up to {MAX_PATTERN} characters."),
        Parameter("source", "query", "`Job`, `Task` or `K8S` (nodes). Default: all."),
        Parameter("X-Language", "header", "Accepted; messages are as they were recorded."),
        by_resource=True,
    ),
    operation(
        "NotifyTrainingJobInformation",
        "POST",
        f"{JOB_PATH}/tasks/{{task_id}}/reports/{{report_type}}",
        notify_training_job_information,
        "Stores an event of the task, now, with the type as its reason; `{}`.",
        Parameter("report_type", "path", f"`{REPORT_TYPE}`.", required=True),
        Parameter("type", "body", f"What happened, 1 to {MAX_TYPE} characters.", required=True),
        action="jobs:write",
    ),
)
