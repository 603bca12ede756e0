"""The two encodings of a body, the encoding of a call, and operations that accept both."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from msgspec import field

from jobmeter.access.call import Call
from jobmeter.dialects.base import read_as_json
from jobmeter.dialects.base.request import HEADER, Operations, Request
from jobmeter.errors import InvalidRequestError

PROTOBUF, JSON = "application/x-protobuf", "application/json"
ENCODING, TYPE = "Content-Encoding", "Content-Type"
"""Fields of InvalidRequestError for an unsupported form of the body, which gets status 415."""
UNPACKED = frozenset({"", "identity", "gzip", "x-gzip"})
"""Content encodings that the server decodes."""
BODY_BYTES = 32 * 2**20
"""Largest message in bytes, as sent, and after decompression if the transport decompresses it."""


def parse_media(call: Call) -> str:
    """Return Content-Type without its parameters, in lower case."""
    return call.get_header("content-type").partition(";")[0].strip().lower()


def parse_encoding(call: Call) -> str:
    """Return Content-Encoding in lower case."""
    return call.get_header("content-encoding").strip().lower()


def choose_body_encoding(call: Call) -> str:
    """Return ``PROTOBUF`` or ``JSON``. Raises InvalidRequestError for anything else."""
    media = parse_media(call)
    if media not in {PROTOBUF, JSON}:
        raise InvalidRequestError(f"{TYPE} {media[:80]!r} is not supported; {PROTOBUF} and {JSON} are", TYPE)
    return media


def make_estimate(copies: int) -> Callable[[Call], int]:
    """Return a function that estimates a message's memory: JSON's, or ``copies`` times a protocol buffer's bytes."""
    return lambda call: read_as_json(call) if parse_media(call) == JSON else copies * len(call.body)


operation = partial(Operations(), body_bytes=BODY_BYTES, decoded_bytes=BODY_BYTES)
"""Declares an operation that accepts a message in both encodings."""


class MessageRequest(Request, frozen=True, kw_only=True):
    """A request that brings a message."""

    content_type: Annotated[str, HEADER, f"`{PROTOBUF}` or `{JSON}`. Anything else is 415."] = field(
        name="Content-Type"
    )
    content_encoding: Annotated[str, HEADER, "`gzip` or none. Anything else is 415."] = field(
        default="", name="Content-Encoding"
    )
