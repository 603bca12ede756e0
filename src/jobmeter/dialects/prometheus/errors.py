"""Errors in the form of Prometheus's own receiver: a status, and one line of plain text.

A sender retries after 429 or 5xx, and drops the data after other 4xx.
"""

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, http_status
from jobmeter.errors import (
    InvalidRequestError,
    JobmeterError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnavailableError,
)

TEXT = "text/plain; charset=utf-8"
ENCODING, TYPE = "Content-Encoding", "Content-Type"
"""Fields of InvalidRequestError for an unsupported form of the body: 415."""

Headers = tuple[tuple[str, str], ...]

_RETRY_SECONDS = 5


def text(status: int, message: str, headers: Headers = ()) -> Answer:
    """Return an answer of one line."""
    return Answer(status, message.encode() + b"\n", headers, TEXT)


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Return the answer for an error."""
    if isinstance(error, InvalidRequestError) and error.field in {ENCODING, TYPE}:
        return text(415, error.message)
    status = 503 if isinstance(error, QueryTimeoutError) else http_status(error)
    if isinstance(error, NotFoundError) and error.kind == "method":
        return text(405, error.message, (("Allow", error.name),))
    return text(status, error.message if status != 500 else "internal error", _headers(error, status))


def _headers(error: JobmeterError, status: int) -> Headers:
    if status == 401:
        return (("WWW-Authenticate", 'Basic realm="jobmeter"'),)
    if isinstance(error, ThrottledError | UnavailableError) and error.retry_after_ms is not None:
        return (("Retry-After", str(-(-error.retry_after_ms // 1000))),)
    return (("Retry-After", str(_RETRY_SECONDS)),) if status == 503 else ()
