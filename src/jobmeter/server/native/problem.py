"""Errors in the form of our own API: one envelope for every status."""

from collections.abc import Mapping

import msgspec

from jobmeter.dialects.base import Answer
from jobmeter.errors import (
    ConflictError,
    DamagedDataError,
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)

RETRY_SECONDS = 5
"""Seconds until a retry after the store or the registry failed, if the error gives none."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error: a code from a closed set, a sentence, and the part of the request at fault."""

    code: str
    message: str
    field: str = ""


class ProblemBody(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: Problem
    request_id: str


STATUS = {
    "invalid_request": 400,
    "limit_exceeded": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "throttled": 429,
    "internal": 500,
    "damaged": 500,
    "unavailable": 503,
    "timeout": 504,
}
"""Status of every code. A body that is too large has ``limit_exceeded`` with status 413."""


_CODES: Mapping[type[JobmeterError], str] = {
    LimitExceededError: "limit_exceeded",
    InvalidRequestError: "invalid_request",
    UnauthenticatedError: "unauthenticated",
    ForbiddenError: "forbidden",
    NotFoundError: "not_found",
    ConflictError: "conflict",
    ThrottledError: "throttled",
    UnavailableError: "unavailable",
    QueryTimeoutError: "timeout",
    DamagedDataError: "damaged",
}
"""Code of each error class. The first class that an error belongs to decides."""


def render(request_id: str, error: JobmeterError) -> Answer:
    """Build the answer for an error; a bare JobmeterError is a bug and reveals no details."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "internal")
    headers: tuple[tuple[str, str], ...]
    match error:
        case UnauthenticatedError():
            headers = (("WWW-Authenticate", "Bearer"),)
        case NotFoundError(kind="method"):
            code, headers = "method_not_allowed", (("Allow", error.name),)
        case ThrottledError():
            headers = (_retry_after(error.retry_after_ms),)
        case UnavailableError():
            headers = (_retry_after(error.retry_after_ms or RETRY_SECONDS * 1000),)
        case _:
            headers = ()
    field = error.field if isinstance(error, InvalidRequestError) else ""
    status = 413 if code == "limit_exceeded" and field == "body" else STATUS[code]
    message = error.message if code != "internal" else "internal error; the server's log has the request id"
    body = msgspec.json.encode(ProblemBody(Problem(code, message, field), request_id))
    return Answer(status, body, headers)


def _retry_after(wait_ms: int) -> tuple[str, str]:
    return "Retry-After", str(max(1, -(-wait_ms // 1000)))
