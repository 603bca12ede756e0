"""Our errors in the form of our own API: one envelope for every refusal of any status."""

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
"""When to come back after the store or the registry could not work, where nobody knows better."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong: one of a closed set of codes, a sentence, and the part of the request that is meant."""

    code: str
    message: str
    field: str = ""


class ProblemBody(msgspec.Struct, frozen=True):
    """The body of every refusal."""

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
"""Every code with its status. A body that is too large is ``limit_exceeded`` with 413."""


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
"""The first that an error is counts."""


def render(request_id: str, error: JobmeterError) -> Answer:
    """The answer for an error; a bare JobmeterError is a bug and tells nothing."""
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
