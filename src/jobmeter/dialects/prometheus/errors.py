"""Errors: JSON in the query API; one line of plain text in remote write, as Prometheus' own receiver sends it.

A sender retries after 429 or 5xx, and drops the data after other 4xx.
"""

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import BASIC_CHALLENGE, Headers, choose_http_status, make_headers, retry_seconds
from jobmeter.errors import InvalidRequestError, JobmeterError, LimitExceededError, QueryTimeoutError
from jobmeter.promql.values import QueryError

TEXT = "text/plain; charset=utf-8"
ENCODING, TYPE = "Content-Encoding", "Content-Type"
"""Fields of InvalidRequestError for an unsupported form of the body: 415."""
_WRITE = "/write"
_PARAMETERS = frozenset({"query", "step"})
"""Parameters that can be too large themselves; any other limit is exceeded while the query is computed."""

_RETRY_MS = 5_000
_KINDS = {
    400: "bad_data",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "bad_data",
    415: "bad_data",
    422: "execution",
    429: "too_many_requests",
    500: "internal",
    503: "unavailable",
}
"""``errorType`` by status: https://prometheus.io/docs/prometheus/latest/querying/api/#format-overview."""


def make_text(status: int, message: str, headers: Headers = ()) -> Answer:
    """Return an answer of one line."""
    return Answer(status, message.encode() + b"\n", headers, TEXT)


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Return the answer for an error."""
    status, headers = _status(error)
    message = error.message if status != 500 else "internal error"
    if call.raw_path.endswith(_WRITE):
        return make_text(status, message, headers)
    if isinstance(error, LimitExceededError) and error.field != "body":
        status = 400 if error.field in _PARAMETERS else 422
    kind = "timeout" if isinstance(error, QueryTimeoutError) else _KINDS.get(status, "internal")
    body = {"status": "error", "errorType": kind, "error": message}
    return Answer(status, msgspec.json.encode(body), headers)


def _status(error: JobmeterError) -> tuple[int, Headers]:
    if isinstance(error, InvalidRequestError) and error.field in {ENCODING, TYPE}:
        return 415, ()
    if isinstance(error, QueryError):
        return 422, ()
    if isinstance(error, QueryTimeoutError):
        return 503, (("Retry-After", str(retry_seconds(_RETRY_MS))),)
    status = choose_http_status(error)
    return status, BASIC_CHALLENGE if status == 401 else make_headers(error, _RETRY_MS)
