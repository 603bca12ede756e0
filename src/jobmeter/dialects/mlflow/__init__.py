"""MLflow's tracking API for runs, in the form that ``mlflow`` 3.17 uses. Sources and gaps: SPEC.md."""

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, BEARER, TRACE
from jobmeter.dialects.base import Answer, Context, Gap, GapStatus
from jobmeter.dialects.base.errors import Headers, headers_of, http_status
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import operations_of
from jobmeter.errors import ConflictError, JobmeterError, NotFoundError
from jobmeter.wire.mlflow.names import ARTIFACTS, NAME, owns

_CODES = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    405: "BAD_REQUEST",
    413: "INVALID_PARAMETER_VALUE",
    429: "REQUEST_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
    503: "TEMPORARILY_UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_NO_ARTIFACTS = (
    "Jobmeter stores no artifacts, only runs, parameters, tags and metrics. Write files to a folder or an object "
    "store, and log their address as a tag."
)


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Render the error as an answer, a JSON object for every status."""
    status = http_status(error)
    code, message = _CODES.get(status, ""), error.message
    if isinstance(error, NotFoundError) and error.kind in {"path", "method"}:
        if call.raw_path.startswith(ARTIFACTS):
            return _answer(501, "NOT_IMPLEMENTED", _NO_ARTIFACTS)
        code = "BAD_REQUEST" if error.kind == "method" else "ENDPOINT_NOT_FOUND"
    elif isinstance(error, ConflictError):
        status, code = 400, "RESOURCE_ALREADY_EXISTS"
    elif status == 500:
        message = "The request failed because of an internal error."
    return _answer(status, code, message, headers_of(error))


def _answer(status: int, code: str, message: str, headers: Headers = ()) -> Answer:
    return Answer(status, msgspec.json.encode({"error_code": code, "message": message}), headers)


GAPS = (
    Gap(
        "Artifacts (`mlflow-artifacts`, `artifacts/list`)",
        "501 with a message: Jobmeter stores no files. With the token of `jobmeter run` the client writes them to "
        "`mlruns` in its folder.",
    ),
    Gap("`experiments/search`, `update`, `delete`, `restore`, tags of experiments", "An experiment is only a name."),
    Gap("`runs/restore`, `runs/delete-tag`", "A deleted run stays deleted; a tag can be replaced.", GapStatus.NOT_YET),
    Gap("`runs/log-inputs`, `runs/outputs`, data sets, logged models", "Jobmeter records no data sets and models."),
    Gap("Model registry, prompts, gateway, webhooks", "Jobmeter measures jobs.", GapStatus.NEVER),
    Gap("Traces", "Send spans by OpenTelemetry's protocol."),
)


MLFLOW = PathDialect(
    name=NAME,
    title="MLflow tracking API, 3.17",
    schemes=(TRACE, BEARER, BASIC),
    operations=operations_of(f"{__name__}.operations"),
    gaps=GAPS,
    render=render,
    wrong_method="This path takes {allowed}, not {method}.",
    wrong_path="Jobmeter has no {path}: it records runs, their parameters, tags and metrics.",
    owns=owns,
)
