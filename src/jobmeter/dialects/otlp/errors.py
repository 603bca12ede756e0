"""Errors as ``google.rpc.Status``, in the encoding of the request; over gRPC the same codes.

A sender retries after 429 or 503, over gRPC after RetryInfo or UNAVAILABLE, and drops the data after other errors:
https://opentelemetry.io/docs/specs/otlp/#failures
"""

from enum import IntEnum

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import Headers, choose_http_status, make_headers, retry_seconds
from jobmeter.dialects.otlp.forms import ENCODING, JSON, PROTOBUF, TYPE, UNPACKED, parse_encoding, parse_media
from jobmeter.errors import (
    InvalidRequestError,
    JobmeterError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)
from jobmeter.wire.otlp.answers import encode_status

RETRY_MS = 5_000
"""The default wait, in ms, before a retry."""


class Code(IntEnum):
    """Codes of gRPC, https://grpc.io/docs/guides/status-codes/."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.NOT_FOUND,
    409: Code.ALREADY_EXISTS,
    413: Code.RESOURCE_EXHAUSTED,
    429: Code.RESOURCE_EXHAUSTED,
    500: Code.INTERNAL,
    503: Code.UNAVAILABLE,
}


def find_kind(error: JobmeterError) -> tuple[int, Code]:
    """Return the HTTP status and the gRPC code of an error."""
    status = 503 if isinstance(error, QueryTimeoutError) else choose_http_status(error)
    return status, _CODES[status]


def make_message(error: JobmeterError) -> str:
    """Return the message for the sender; without details for a bug."""
    return "internal error" if find_kind(error)[1] is Code.INTERNAL else error.message


def retry_ms_of(error: JobmeterError) -> int | None:
    """Return the wait before a retry, in ms; None for a request that would be rejected again."""
    if isinstance(error, ThrottledError | UnavailableError):
        return RETRY_MS if error.retry_after_ms is None else error.retry_after_ms
    return RETRY_MS if isinstance(error, QueryTimeoutError) else None


def render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Return the answer for an error."""
    json = parse_media(call) != PROTOBUF
    http, code = find_kind(error)
    headers: Headers = make_headers(error)
    if isinstance(error, InvalidRequestError) and _is_of_other_form(call, error):
        http = 415
    elif isinstance(error, UnauthenticatedError):
        headers = (("WWW-Authenticate", 'Bearer realm="jobmeter"'),)
    retry_ms = retry_ms_of(error)
    if retry_ms is not None:
        headers = (("Retry-After", str(retry_seconds(retry_ms))),)
    return Answer(
        http, encode_status(code, make_message(error), retry_ms, json=json), headers, JSON if json else PROTOBUF
    )


def _is_of_other_form(call: Call, error: InvalidRequestError) -> bool:
    # A damaged gzip body has the same field as an unknown encoding, but its encoding is supported.
    return error.field == TYPE or (error.field == ENCODING and parse_encoding(call) not in UNPACKED)
