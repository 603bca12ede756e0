"""Parts of every dialect's error answer: the status, the common headers, and the name of the wrong field."""

from collections.abc import Mapping

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

Headers = tuple[tuple[str, str], ...]
BASIC_CHALLENGE: Headers = (("WWW-Authenticate", 'Basic realm="jobmeter"'),)
"""The header that makes clients send their user and password."""
_STATUS: tuple[tuple[type[JobmeterError], int], ...] = (
    (InvalidRequestError, 400),
    (UnauthenticatedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (ThrottledError, 429),
    (UnavailableError, 503),
    (QueryTimeoutError, 504),
)


def choose_http_status(error: JobmeterError, *, over_limit: int = 413) -> int:
    """Return the usual status for one of our errors; 500 for a bug.

    ``over_limit`` is the status for a part of the request that is too large; a whole body that is too large gets 413.
    """
    if isinstance(error, LimitExceededError):
        return 413 if error.field == "body" else over_limit
    if isinstance(error, NotFoundError) and error.kind == "method":
        return 405
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def make_headers(error: JobmeterError, default_retry_ms: int | None = None) -> Headers:
    """Return ``Allow`` for a wrong method, ``Retry-After`` in whole seconds (at least 1), or no header.

    ``default_retry_ms`` is the wait for an unavailable server that names none.
    """
    if isinstance(error, NotFoundError) and error.kind == "method":
        return (("Allow", error.name),)
    if isinstance(error, ThrottledError | UnavailableError):
        wait_ms = default_retry_ms if error.retry_after_ms is None else error.retry_after_ms
        return () if wait_ms is None else (("Retry-After", str(retry_seconds(wait_ms))),)
    return ()


def retry_seconds(wait_ms: int) -> int:
    """Return the wait before a retry in whole seconds, at least 1."""
    return max(1, -(-wait_ms // 1000))


def name_field(error: InvalidRequestError, fields: Mapping[str, str]) -> str:
    """Return the message, with the vendor's name of the field before it unless the message contains the name."""
    field = fields.get(error.field, error.field)
    return error.message if not field or field in error.message else f"{field}: {error.message}"
