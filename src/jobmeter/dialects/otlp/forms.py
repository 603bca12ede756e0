"""The two encodings of a body, the encoding of a call, and operations that accept both."""

from collections.abc import Callable

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, read_as_json
from jobmeter.errors import InvalidRequestError

PROTOBUF, JSON = "application/x-protobuf", "application/json"
ENCODING, TYPE = "Content-Encoding", "Content-Type"
"""Fields of InvalidRequestError for an unsupported form of the body: 415."""
UNPACKED = frozenset({"", "identity", "gzip", "x-gzip"})
"""Content encodings that the server decodes."""
BODY_BYTES = 32 * 2**20
"""Largest message, as sent, and after decompression if the transport decompresses it."""


def media_of(call: Call) -> str:
    """Return Content-Type without its parameters, in lower case."""
    return call.header("content-type").partition(";")[0].strip().lower()


def encoding_of(call: Call) -> str:
    """Return Content-Encoding in lower case."""
    return call.header("content-encoding").strip().lower()


def encoding_of_body(call: Call) -> str:
    """Return ``PROTOBUF`` or ``JSON``. Raises InvalidRequestError for anything else."""
    media = media_of(call)
    if media not in {PROTOBUF, JSON}:
        raise InvalidRequestError(f"{TYPE} {media[:80]!r} is not supported; {PROTOBUF} and {JSON} are", TYPE)
    return media


def operation(
    name: str,
    path: str,
    answer: Callable[[Call, Context], Steps],
    message: str,
    text: str,
    *,
    action: str = "traces:write",
    in_memory: int = 24,
) -> Operation:
    """Make an operation that accepts such a message.

    ``in_memory``: most copies of a message in protocol buffers in memory, decoded data included.
    """
    return Operation(
        name=name,
        action=action,
        method="POST",
        path=path,
        answer=answer,
        parameters=(
            Parameter("Content-Type", "header", f"`{PROTOBUF}` or `{JSON}`. Anything else is 415.", required=True),
            Parameter("Content-Encoding", "header", "`gzip` or none. Anything else is 415."),
            Parameter("body", "body", f"An `{message}`.", required=True),
        ),
        text=text,
        body_bytes=BODY_BYTES,
        decoded_bytes=BODY_BYTES,
        read_bytes=lambda call: read_as_json(call) if media_of(call) == JSON else in_memory * len(call.body),
    )
