"""``/jobs/{job}/calls``: vendor API calls that return a chart's data."""

import msgspec

from jobmeter.dialects.base.view import View
from jobmeter.dialects.registry import view_calls
from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import find
from jobmeter.model.order import make_natural_key
from jobmeter.model.time import MAX_TIME_MS, SECOND, TimeRange
from jobmeter.query.request import JobQuestion
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref


class CallBody(msgspec.Struct, frozen=True):
    """A call: ``header`` has ``$JOBMETER_KEY`` for a token, ``body`` is JSON, ``note`` lists differences."""

    api: str
    operation: str
    method: str
    path: str
    header: str
    body: str
    note: str


class CallList(msgspec.Struct, frozen=True):
    """A call for each vendor API that can express the chart."""

    job: str
    project: str
    calls: list[CallBody]


HEADING = "metrics"


@Endpoint(
    "listViewCalls",
    "GET /jobs/{job}/calls",
    "metrics:read",
    queries=(
        QueryArguments("metric", "A name of the catalogue.", required=True, example="gpu.utilization"),
        QueryArguments("start", "Start of the range, inclusive.", example="2026-11-20T15:00:00Z"),
        QueryArguments("end", "End of the range, exclusive."),
        QueryArguments("step", "Seconds of a bucket. Default: 60.", type="integer"),
        QueryArguments("replica", "The replica shown. Default: the first."),
        PROJECT,
    ),
    lane="control",
    by_resource=True,
)
def _calls(context: CallContext) -> CallList:
    """List vendor API calls that return a chart's data.

    The calls are not executed; they contain a placeholder for the key.
    """
    given = context.arguments
    found = context.ask(JobQuestion(make_job_ref(context)))
    start, end = given.read_time("start"), given.read_time("end")
    if start is None or end is None or not 0 <= start < end <= MAX_TIME_MS:
        raise InvalidRequestError("give start and end, with the end after the start", "start")
    metric = find(name := given.read_text("metric"))
    if metric is None:
        raise InvalidRequestError(f"metric {name[:100]!r} is not in the catalogue", "metric")
    names = sorted({replica.name for replica in found.replicas}, key=make_natural_key)
    replica = given.read_text("replica") or (names[0] if names else "")
    step_ms = given.read_integer("step", 60, 1, MAX_TIME_MS // SECOND) * SECOND
    view = View(job=found.job, metric=metric, span=TimeRange(start, end), step_ms=step_ms, replica=replica)
    calls = [copy_fields(CallBody, call, api=title) for title, call in view_calls(view)]
    return CallList(found.job.id, found.job.project, calls)
