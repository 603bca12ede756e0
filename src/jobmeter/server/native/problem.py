"""Our errors in the form of our own API: one envelope for every refusal of any status."""

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


def render(request_id: str, error: JobmeterError) -> Answer:
    """The answer for an error; a bare JobmeterError is a bug and tells nothing."""
    code, headers = _kind(error)
    field = error.field if isinstance(error, InvalidRequestError) else ""
    status = 413 if code == "limit_exceeded" and field == "body" else STATUS[code]
    message = error.message if code != "internal" else "internal error; the server's log has the request id"
    body = msgspec.json.encode(ProblemBody(Problem(code, message, field), request_id))
    return Answer(status, body, headers)


def _kind(error: JobmeterError) -> tuple[str, tuple[tuple[str, str], ...]]:  # noqa: C901, PLR0911 - one line a kind
    match error:
        case LimitExceededError():
            return "limit_exceeded", ()
        case InvalidRequestError():
            return "invalid_request", ()
        case UnauthenticatedError():
            return "unauthenticated", (("WWW-Authenticate", "Bearer"),)
        case ForbiddenError():
            return "forbidden", ()
        case NotFoundError(kind="method"):
            return "method_not_allowed", (("Allow", error.name),)
        case NotFoundError():
            return "not_found", ()
        case ConflictError():
            return "conflict", ()
        case ThrottledError():
            return "throttled", (("Retry-After", str(max(1, -(-error.retry_after_ms // 1000)))),)
        case UnavailableError():
            wait = error.retry_after_ms or RETRY_SECONDS * 1000
            return "unavailable", (("Retry-After", str(max(1, -(-wait // 1000)))),)
        case QueryTimeoutError():
            return "timeout", ()
        case DamagedDataError():
            return "damaged", ()
        case _:
            return "internal", ()
