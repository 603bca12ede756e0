"""Reads attributes from protocol buffers.

The text of a value that is not a string follows
https://opentelemetry.io/docs/specs/otel/common/#anyvalue-representation-for-non-otlp-protocols
"""

import base64
import math
import struct

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.wire.protobuf import encode_varint, iterate_fields, read_varint

MOST_ATTRIBUTES = 128
"""Most attributes of one resource, scope or data point; SDKs have the same limit."""
MOST_DEEP = 8
"""Most levels of lists and maps in an attribute."""
_DOUBLE = struct.Struct("<d")
_KEY, _VALUE = 0x0A, 0x12
_STRING, _BOOL, _INT, _FLOAT, _ARRAY, _MAP, _BYTES = 0x0A, 0x10, 0x18, 0x21, 0x2A, 0x32, 0x3A

Value = str | bool | int | float | list[object] | dict[str, object] | None


def encode_part(tag: int, content: bytes) -> bytes:
    """Encode a field of bytes with its tag (below 128)."""
    size = len(content)
    return (bytes((tag, size)) if size < 128 else bytes((tag,)) + encode_varint(size)) + content


def parse_attributes(raw: bytes, tag: int) -> dict[str, str]:
    """Return the attributes in the fields ``tag`` of a message, as texts. Attributes without a value are left out.

    Raises InvalidRequestError (field ``labels``, or ``body`` for an invalid message).
    """
    found: dict[str, str] = {}
    for one, _, at, end in iterate_fields(raw, 0, len(raw)):
        if one != tag:
            continue
        key, value = parse_pair(raw, at, end, 0)
        if key in found:
            raise InvalidRequestError(f"attribute {key[:64]!r} appears twice", "labels")
        if len(found) == MOST_ATTRIBUTES:
            raise InvalidRequestError(f"more than {MOST_ATTRIBUTES} attributes", "labels")
        found[key] = convert_text(value)
    return {key: text for key, text in found.items() if text}


def convert_text(value: Value) -> str:
    """Convert a value to text: a string stays, a missing value is empty, any other value is JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 - that is NaN
    return msgspec.json.encode(value).decode()


def decode_text(raw: bytes, field: str) -> str:
    """Decode a text. Raises InvalidRequestError that names ``field``."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a text is not UTF-8", field) from error


def parse_pair(data: bytes, at: int, end: int, deep: int = 0) -> tuple[str, Value]:
    """Return the key and the value of a KeyValue. Raises InvalidRequestError (field ``labels``)."""
    key, value = b"", (0, 0)
    for tag, _, content, stop in iterate_fields(data, at, end):
        if tag == _KEY:
            key = data[content:stop]
        elif tag == _VALUE:
            value = content, stop
    return decode_text(key, "labels"), read_any_value(data, *value, deep)


def read_any_value(data: bytes, at: int, end: int, deep: int = 0) -> Value:
    """Return the value of an AnyValue. Raises InvalidRequestError (field ``labels``)."""
    if deep > MOST_DEEP:
        raise InvalidRequestError(f"an attribute is nested deeper than {MOST_DEEP} levels", "labels")
    value: Value = None
    for tag, _, content, stop in iterate_fields(data, at, end):
        if tag == _STRING:
            value = decode_text(data[content:stop], "labels")
        elif tag in {_BOOL, _INT}:
            value = _read_integer(data, tag, content, stop)
        elif tag == _FLOAT:
            (value,) = _DOUBLE.unpack_from(data, content)
        elif tag == _BYTES:
            value = base64.b64encode(data[content:stop]).decode()
        elif tag == _ARRAY:
            inner = iterate_fields(data, content, stop)
            value = [read_any_value(data, begin, until, deep + 1) for one, _, begin, until in inner if one == _KEY]
        elif tag == _MAP:
            inner = iterate_fields(data, content, stop)
            value = dict(parse_pair(data, begin, until, deep + 1) for one, _, begin, until in inner if one == _KEY)
    return value


def _read_integer(data: bytes, tag: int, at: int, end: int) -> int | bool:
    whole, _ = read_varint(data, at, end)
    if tag == _BOOL:
        return whole != 0
    return whole - 2**64 if whole >= 2**63 else whole
