"""Errors as Alertmanager sends them: the message as a JSON text."""

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import BASIC_CHALLENGE, headers_of, http_status
from jobmeter.errors import JobmeterError

_RETRY_MS = 5_000


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Return the answer for an error."""
    status = http_status(error)
    headers = BASIC_CHALLENGE if status == 401 else headers_of(error, _RETRY_MS)
    return Answer(status, msgspec.json.encode(error.message if status != 500 else "internal error"), headers)
