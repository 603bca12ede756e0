"""Errors in OpenTSDB's form: ``{"error": {"code", "message", "details"}}``.

https://opentsdb.net/docs/build/html/api_http/index.html#errors
"""

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import BASIC_CHALLENGE, Headers, choose_http_status, make_headers
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError, ThrottledError, UnauthenticatedError

JSON = "application/json; charset=UTF-8"
RETRY_MS = 5_000
"""The default wait, in ms, before a sender's retry."""
NO_NAME = "name"
"""The kind of NotFoundError for an unknown metric: status 400 in a query, 404 in a lookup."""


class PutError(InvalidRequestError):
    """Some data points of a put were rejected, and the request did not ask for details."""


Parts = tuple[int, str, str, Headers]
"""Status, message, details and headers."""


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Return the answer for an error."""
    status, message, details, headers = _parts(call, error)
    body: dict[str, object] = {"code": status, "message": message}
    if details:
        body["details"] = details
    return Answer(status, msgspec.json.encode({"error": body}), headers, JSON)


def _parts(call: Call, error: JobmeterError) -> Parts:
    if isinstance(error, NotFoundError):
        return _describe_not_found(call, error)
    if isinstance(error, ThrottledError):
        return 429, "Please throttle", error.message, make_headers(error)
    if isinstance(error, PutError):
        return 400, error.message, 'Append "details" to the put request to see which', ()
    status = choose_http_status(error)
    if status == 500:
        return 500, "Internal Server Error", "An internal error occurred", ()
    headers = BASIC_CHALLENGE if status == 401 else make_headers(error, RETRY_MS)
    return status, error.message, _details(error), headers


def _details(error: JobmeterError) -> str:
    if isinstance(error, UnauthenticatedError):
        return error.reason
    return f"field: {error.field}" if isinstance(error, InvalidRequestError) and error.field else ""


def _describe_not_found(call: Call, error: NotFoundError) -> Parts:
    if error.kind == "path":
        return 404, "Endpoint not found", "The requested endpoint was not found", ()
    if error.kind == "method":
        details = f"The HTTP method [{call.method[:20]}] is not permitted for this endpoint"
        return 405, "Method not allowed", details, make_headers(error)
    if error.kind == NO_NAME:
        status = 404 if "/search/" in call.raw_path else 400
        message = "Unable to resolve one or more UIDs" if status == 404 else error.message
        return status, message, error.message, ()
    return 404, error.message, "", ()
