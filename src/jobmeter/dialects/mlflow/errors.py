"""Our errors as MLflow's code, message and status: ``{"error_code", "message"}``.

The client retries 408, 429, 500, 502, 503 and 504, and raises any other status with the message:
https://github.com/mlflow/mlflow/blob/master/mlflow/utils/request_utils.py.
"""

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import Headers, choose_http_status, make_headers
from jobmeter.errors import ConflictError, JobmeterError, NotFoundError
from jobmeter.wire.mlflow.names import ARTIFACTS

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
    status = choose_http_status(error)
    code, message = _CODES.get(status, ""), error.message
    if isinstance(error, NotFoundError) and error.kind in {"path", "method"}:
        if call.raw_path.startswith(ARTIFACTS):
            return _answer(501, "NOT_IMPLEMENTED", _NO_ARTIFACTS)
        code = "BAD_REQUEST" if error.kind == "method" else "ENDPOINT_NOT_FOUND"
    elif isinstance(error, ConflictError):
        status, code = 400, "RESOURCE_ALREADY_EXISTS"
    elif status == 500:
        message = "The request failed because of an internal error."
    return _answer(status, code, message, make_headers(error))


def _answer(status: int, code: str, message: str, headers: Headers = ()) -> Answer:
    return Answer(status, msgspec.json.encode({"error_code": code, "message": message}), headers)
