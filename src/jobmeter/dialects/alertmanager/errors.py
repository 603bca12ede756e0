"""Errors as Alertmanager sends them: the message as a JSON text."""

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, http_status
from jobmeter.errors import JobmeterError, NotFoundError, ThrottledError, UnauthenticatedError, UnavailableError

_RETRY_SECONDS = 5


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Return the answer for an error."""
    status = http_status(error)
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, NotFoundError) and error.kind == "method":
        return Answer(405, msgspec.json.encode(error.message), (("Allow", error.name),))
    if isinstance(error, UnauthenticatedError):
        headers = (("WWW-Authenticate", 'Basic realm="jobmeter"'),)
    elif isinstance(error, ThrottledError | UnavailableError):
        wait = error.retry_after_ms
        headers = (("Retry-After", str(_RETRY_SECONDS if wait is None else -(-wait // 1000))),)
    return Answer(status, msgspec.json.encode(error.message if status != 500 else "internal error"), headers)
