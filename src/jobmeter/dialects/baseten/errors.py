"""Our errors as Baseten's code, message and status.

``{"code", "message"}`` is the form that its clients read (``truss`` prints ``message``); the body of a 429 is its own,
https://docs.baseten.co/reference/management-api/rate-limits. VALIDATION_ERROR is the only code known from the vendor;
SPEC.md lists the others.
"""

from typing import Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.baseten.names import FIELDS
from jobmeter.errors import (
    ConflictError,
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


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001, PLR0911 - one line a kind
    """Render the error as an answer, a JSON object for every status."""
    match error:
        case ThrottledError():
            return _throttled(error)
        case UnauthenticatedError():
            return _problem(401, "AUTHENTICATION_ERROR", f"The API key is not valid: {error.message}.")
        case InvalidRequestError():
            return _invalid(error)
        case NotFoundError():
            return _not_found(error)
        case ForbiddenError():
            return _problem(403, "PERMISSION_DENIED", error.message)
        case ConflictError():
            return _problem(409, "CONFLICT", error.message)
        case UnavailableError():
            return _unavailable(error)
        case QueryTimeoutError():
            return _problem(504, "TIMEOUT", error.message)
        case _:
            return _problem(500, "INTERNAL_ERROR", "The request failed because of an internal error.")


def _problem(status: int, code: str, message: str, *headers: tuple[str, str]) -> Answer:
    return _answer(status, {"code": code, "message": message}, *headers)


def _answer(status: int, body: dict[str, Any], *headers: tuple[str, str]) -> Answer:
    return Answer(status, msgspec.json.encode(body), headers)


def _invalid(error: InvalidRequestError) -> Answer:
    field = FIELDS.get(error.field, error.field)
    message = error.message if not field or field in error.message else f"{field}: {error.message}"
    too_large = isinstance(error, LimitExceededError) and error.field == "body"
    return _problem(413 if too_large else 400, "VALIDATION_ERROR", message)


def _not_found(error: NotFoundError) -> Answer:
    if error.kind == "method":
        return _problem(405, "METHOD_NOT_ALLOWED", error.message, ("Allow", error.name))
    return _problem(404, "NOT_FOUND", error.message)


def _throttled(error: ThrottledError) -> Answer:
    seconds = _seconds(error.retry_after_ms)
    body = {"error": "Rate limit exceeded. Please try again later.", "retry_after": seconds}
    return _answer(429, body, ("Retry-After", str(seconds)))


def _unavailable(error: UnavailableError) -> Answer:
    wait = error.retry_after_ms
    headers = () if wait is None else (("Retry-After", str(_seconds(wait))),)
    return _problem(503, "SERVICE_UNAVAILABLE", error.message, *headers)


def _seconds(wait_ms: int) -> int:
    return max(1, -(-wait_ms // 1000))
