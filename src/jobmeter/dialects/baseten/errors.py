"""Our errors as Baseten's code, message and status.

``{"code", "message"}`` is the form that its clients read (``truss`` prints ``message``); the body of a 429 is its own,
https://docs.baseten.co/reference/management-api/rate-limits. VALIDATION_ERROR is the only code known from the vendor;
SPEC.md lists the others.
"""

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import choose_http_status, make_headers, name_field, retry_seconds
from jobmeter.dialects.baseten.names import FIELDS
from jobmeter.errors import InvalidRequestError, JobmeterError, ThrottledError

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
    status, message = choose_http_status(error, over_limit=400), error.message
    if isinstance(error, ThrottledError):
        wait = retry_seconds(error.retry_after_ms)
        body = {"error": "Rate limit exceeded. Please try again later.", "retry_after": wait}
        return Answer(status, msgspec.json.encode(body), make_headers(error))
    if isinstance(error, InvalidRequestError):
        message = name_field(error, FIELDS)
    elif status == 401:
        message = f"The API key is not valid: {message}."
    elif status == 500:
        message = "The request failed because of an internal error."
    return Answer(status, msgspec.json.encode({"code": _CODES[status], "message": message}), make_headers(error))
