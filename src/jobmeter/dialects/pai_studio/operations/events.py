"""ListTrainingJobEvents and ListTrainingJobInstanceEvents: events as lines of text."""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer, times
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_studio.operations.common import (
    PAGES,
    TIME,
    TRAINING_JOB,
    page,
    replica_of,
)
from jobmeter.model.event import Event, EventFilter
from jobmeter.model.time import iso
from jobmeter.query.request import JobQuestion, JobRef

_SPAN = (
    Parameter("StartTime", "query", f"{TIME} Default: the first event."),
    Parameter("EndTime", "query", f"{TIME} Default: the last event. Not included."),
)


def list_training_job_events(call: Call, context: Context) -> Steps:
    """The events of a job and of its instances."""
    return _events(Arguments(call, context), context, "")


def list_training_job_instance_events(call: Call, context: Context) -> Steps:
    """The events of one instance."""
    arguments = Arguments(call, context)
    return _events(arguments, context, arguments.required("InstanceId"))


def _events(arguments: Arguments, context: Context, instance: str) -> Steps:
    ref = JobRef(arguments.required("TrainingJobId"))
    requested = page(arguments)
    start, end = times(arguments)
    view = yield from execute(JobQuestion(ref))
    found = yield from execute(
        EventFilter(
            projects=frozenset({view.job.project}),
            jobs=(view.job.id,),
            replicas=frozenset({replica_of(view, instance)} if instance else ()),
            start=start,
            end=end,
            offset=requested.offset,
            limit=requested.size,
        )
    )
    body = {"Events": [event_text(event) for event in found.events], "TotalCount": str(found.total)}
    return answer(body, context)


def event_text(event: Event) -> str:
    """``2026-11-20T15:33:56Z WARNING worker-0 OOMKilled: ...``, without what the event does not name."""
    head = " ".join(filter(None, (iso(event.time), event.level.upper(), event.replica, event.reason)))
    return f"{head}: {event.message}" if event.message else head


OPERATIONS = (
    Operation(
        name="ListTrainingJobEvents",
        action="jobs:read",
        method="GET",
        path="/api/v1/trainingjobs/{TrainingJobId}/events",
        answer=list_training_job_events,
        parameters=(TRAINING_JOB, *_SPAN, *PAGES),
        text=(
            "What happened to a job and its instances, by time: `{Events: [text], TotalCount, RequestId}`. An event is "
            "a line of time, level, instance, reason and message; `TotalCount` is text."
        ),
    ),
    Operation(
        name="ListTrainingJobInstanceEvents",
        action="jobs:read",
        method="GET",
        path="/api/v1/trainingjobs/{TrainingJobId}/instances/{InstanceId}/events",
        answer=list_training_job_instance_events,
        parameters=(
            TRAINING_JOB,
            Parameter("InstanceId", "path", "A pod's id or `<TrainingJobId>-<replica>`.", required=True),
            *_SPAN,
            *PAGES,
        ),
        text="What happened to one instance, as in ListTrainingJobEvents.",
    ),
)
