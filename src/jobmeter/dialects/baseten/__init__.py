"""Baseten v1: its training API, in the form that ``truss`` and the ``baseten`` SDK use. Sources and gaps: SPEC.md."""

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.signatures import BEARER
from jobmeter.dialects.base import Answer, Context, Gap, GapStatus
from jobmeter.dialects.base.errors import headers_of, http_status, name_field, retry_seconds
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.base.view import KEY, View, ViewCall, encode_part, target
from jobmeter.dialects.baseten import names
from jobmeter.dialects.baseten.names import FIELDS, METRICS
from jobmeter.errors import InvalidRequestError, JobmeterError, ThrottledError
from jobmeter.model.time import SECOND

_CODES = {
    400: "VALIDATION_ERROR",
    401: "AUTHENTICATION_ERROR",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "VALIDATION_ERROR",
    500: "INTERNAL_ERROR",
    503: "SERVICE_UNAVAILABLE",
    504: "TIMEOUT",
}


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Render the error as an answer, a JSON object for every status."""
    status, message = http_status(error, over_limit=400), error.message
    if isinstance(error, ThrottledError):
        wait = retry_seconds(error.retry_after_ms)
        body = {"error": "Rate limit exceeded. Please try again later.", "retry_after": wait}
        return Answer(status, msgspec.json.encode(body), headers_of(error))
    if isinstance(error, InvalidRequestError):
        message = name_field(error, FIELDS)
    elif status == 401:
        message = f"The API key is not valid: {message}."
    elif status == 500:
        message = "The request failed because of an internal error."
    return Answer(status, msgspec.json.encode({"code": _CODES[status], "message": message}), headers_of(error))


_SHOWN = frozenset(METRICS.values())


def view_call(view: View) -> ViewCall | None:
    """Return the call for the job's metrics; None for a metric that they lack."""
    if view.metric.name not in _SHOWN:
        return None
    path = f"/v1/training_projects/{encode_part(view.job.project)}/jobs/{encode_part(view.job.id)}/metrics"
    times = {"start_epoch_millis": view.span.start_ms, "end_epoch_millis": view.span.end_ms}
    return ViewCall(
        operation="get_training_projects_jobs_metrics",
        path=target(path, **times, step_seconds=max(view.step_ms // SECOND, 1)),
        header=f"Authorization: Api-Key {KEY}",
        note="With the other metrics of this API.",
    )


_NO_LAUNCHER = "Jobmeter starts no jobs: the system that runs one records it."

GAPS = (
    Gap("`POST .../jobs` (`truss train push`)", _NO_LAUNCHER, GapStatus.NEVER),
    Gap("`POST .../jobs/{training_job_id}/recreate`", _NO_LAUNCHER, GapStatus.NEVER),
    Gap("`GET /v1/blobs/credentials/train`", "Jobmeter stores no uploads.", GapStatus.NEVER),
    Gap(
        "`PATCH .../interactive_sessions/{session_id}`, `POST .../ssh/sign`",
        "Jobmeter opens no sessions on the machines that it measures; `auth_codes` is always empty.",
        GapStatus.NEVER,
    ),
    Gap("`GET` and `PATCH /v1/training/capacity`", "Jobmeter hands out no capacity.", GapStatus.NEVER),
    Gap(
        "`GET /v1/training/jobs/{training_job_id}/queue_context`",
        "The queue belongs to the scheduler that runs the jobs.",
        GapStatus.NEVER,
    ),
    Gap(
        "`POST /v1/teams/{team_id}/training_projects`, `DELETE /v1/training_projects/{training_project_id}`",
        "A project is the project of a key: it has no team, and ends with its jobs.",
        GapStatus.NEVER,
    ),
)


_OWN = frozenset({"training_projects", "training_jobs", "training"})


def _owns(path: str) -> bool:
    """Return True for paths of the training API. Other dialects also have paths below ``/v1/``."""
    parts = path.split("/", 5)
    if len(parts) < 3 or parts[:2] != ["", "v1"]:
        return False
    return parts[2] in _OWN or (parts[2] == "teams" and parts[4:5] == ["training_projects"])


BASETEN = PathDialect(
    name=names.NAME,
    title="Baseten training API, v1",
    schemes=(BEARER,),
    operations=operations_of(f"{__name__}.operations"),
    gaps=GAPS,
    view_call=view_call,
    render=render,
    wrong_method="This path takes {allowed}, not {method}.",
    wrong_path="There is nothing at {path}.",
    owns=_owns,
)
