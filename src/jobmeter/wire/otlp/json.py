"""Converts OTLP messages in JSON to protocol buffers, so that each message has one reader; then metrics to columns.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: field names are in lowerCamelCase, 64-bit numbers are
texts or numbers, enumerations are numbers, ids are hexadecimal digits, bytes are base64.
"""

import struct
from binascii import unhexlify
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.wire.otlp import protobuf
from jobmeter.wire.otlp.shapes import Shapes
from jobmeter.wire.otlp.values import MOST_DEEP, encode_part
from jobmeter.wire.otlp.written import WrittenTelemetry
from jobmeter.wire.protobuf import encode_varint

S = TypeVar("S")
P = TypeVar("P")
Write = Callable[[Any], bytes]
"""Encodes a value that is not None as a field with its tag."""
_NO_ID = b"\xff"
"""Bytes that are too short for an id, so that every reader rejects them."""
_ARRAY, _MAP, _KEY, _ITEM, _VALUE = 0x2A, 0x32, 0x0A, 0x0A, 0x12
_SIGNED = struct.Struct("<q")
_MOST_BYTES = 64 * 2**20
MOST_OBJECTS = 2_000_000


def make_text_encoder(tag: int) -> Write:
    """Return a function that encodes a text; an empty text is absent."""
    return lambda value: encode_part(tag, value.encode()) if value else b""


def make_varint_encoder(tag: int) -> Write:
    """Return a function that encodes a whole number or a truth value; 0 is absent."""
    head = bytes((tag,))
    return lambda value: head + encode_varint(value % 2**64) if value else b""


def make_fixed_encoder(tag: int, form: str) -> Write:
    """Return a function that encodes a number of fixed length, in a ``form`` of ``struct``."""
    head, pack = bytes((tag,)), struct.Struct(f"<{form}").pack
    return lambda value: head + pack(value)


def make_bits32_encoder(tag: int) -> Write:
    """Return a function that encodes the lowest 32 bits of a number, in fixed length."""
    head = encode_varint(tag)
    return lambda value: head + struct.pack("<I", value % 2**32)


def make_packed_encoder(tag: int, form: str) -> Write:
    """Return a function that encodes numbers of fixed length, packed."""
    return lambda values: encode_part(tag, struct.pack(f"<{len(values)}{form}", *values))


def make_identifier_encoder(tag: int) -> Write:
    """Return a function that encodes an id; zeros are absent, invalid digits become an id that every reader rejects."""

    def write(digits: str) -> bytes:
        try:
            return encode_part(tag, unhexlify(digits)) if digits.strip("0") else b""
        except ValueError:
            return encode_part(tag, _NO_ID)

    return write


def make_message_encoder(tag: int) -> Write:
    """Return a function that encodes a message."""
    return lambda sent: encode_part(tag, encode(sent))


def make_messages_encoder(tag: int) -> Write:
    """Return a function that encodes messages, each as a field."""
    return lambda sent: b"".join([encode_part(tag, encode(one)) for one in sent])


def make_pairs_encoder(tag: int) -> Write:
    """Return a function that encodes attributes, each as a field."""
    return lambda sent: b"".join([encode_part(tag, _pair(one, 0)) for one in sent])


def make_any_value_encoder(tag: int) -> Write:
    """Return a function that encodes an AnyValue."""
    return lambda sent: encode_part(tag, _encode_any(sent, 0))


class OtlpMessage(msgspec.Struct, rename="camel", gc=False):
    """A message. Its annotated fields are written in their order, each with the function of its annotation.

    Unknown fields are ignored; ``null`` counts as absent.
    """


class AnyValue(OtlpMessage):
    """The value of an attribute. One field is set."""

    array_value: "Values | None" = None
    kvlist_value: "KeyValues | None" = None
    bytes_value: Annotated[bytes | None, lambda value: encode_part(0x3A, value)] = None
    double_value: Annotated[float | None, make_fixed_encoder(0x21, "d")] = None
    bool_value: Annotated[bool | None, lambda value: bytes((0x10, value))] = None
    int_value: Annotated[int | None, lambda value: b"\x18" + encode_varint(_bits(value))] = None
    string_value: Annotated[str | None, lambda value: encode_part(0x0A, value.encode())] = None


class Values(OtlpMessage):
    """A list of values."""

    values: list[AnyValue] | None = None


class OtlpKeyValue(OtlpMessage):
    """An attribute."""

    key: str | None = None
    value: AnyValue | None = None


class KeyValues(OtlpMessage):
    """A map of values."""

    values: list[OtlpKeyValue] | None = None


class OtlpResource(OtlpMessage):
    """A resource."""

    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x0A)] = None


class OtlpScope(OtlpMessage):
    """An instrumentation scope."""

    name: Annotated[str | None, make_text_encoder(0x0A)] = None
    version: Annotated[str | None, make_text_encoder(0x12)] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x1A)] = None


class _NumberPoint(OtlpMessage):
    # In the usual form of protocol buffers, which is read quickest.
    time_unix_nano: Annotated[int | None, make_fixed_encoder(0x19, "Q")] = None
    as_double: Annotated[float | None, make_fixed_encoder(0x21, "d")] = None
    as_int: Annotated[int | None, make_fixed_encoder(0x31, "q")] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x3A)] = None
    flags: Annotated[int | None, make_varint_encoder(0x40)] = None


class _HistogramPoint(OtlpMessage):
    time_unix_nano: Annotated[int | None, make_fixed_encoder(0x19, "Q")] = None
    count: Annotated[int | None, make_fixed_encoder(0x21, "Q")] = None
    sum: Annotated[float | None, make_fixed_encoder(0x29, "d")] = None
    bucket_counts: Annotated[list[int] | None, make_packed_encoder(0x32, "Q")] = None
    explicit_bounds: Annotated[list[float] | None, make_packed_encoder(0x3A, "d")] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x4A)] = None
    flags: Annotated[int | None, make_varint_encoder(0x50)] = None


class _Quantile(OtlpMessage):
    quantile: Annotated[float | None, make_fixed_encoder(0x09, "d")] = None
    value: Annotated[float | None, make_fixed_encoder(0x11, "d")] = None


class _SummaryPoint(OtlpMessage):
    time_unix_nano: Annotated[int | None, make_fixed_encoder(0x19, "Q")] = None
    count: Annotated[int | None, make_fixed_encoder(0x21, "Q")] = None
    sum: Annotated[float | None, make_fixed_encoder(0x29, "d")] = None
    quantile_values: Annotated[list[_Quantile] | None, make_messages_encoder(0x32)] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x3A)] = None
    flags: Annotated[int | None, make_varint_encoder(0x40)] = None


class _Points(OtlpMessage, Generic[P]):
    data_points: Annotated[list[P] | None, make_messages_encoder(0x0A)] = None
    aggregation_temporality: Annotated[int | None, make_varint_encoder(0x10)] = None
    is_monotonic: Annotated[bool | None, make_varint_encoder(0x18)] = None


class _Metric(OtlpMessage):
    name: Annotated[str | None, make_text_encoder(0x0A)] = None
    unit: Annotated[str | None, make_text_encoder(0x1A)] = None
    gauge: Annotated[_Points[_NumberPoint] | None, make_message_encoder(0x2A)] = None
    sum: Annotated[_Points[_NumberPoint] | None, make_message_encoder(0x3A)] = None
    histogram: Annotated[_Points[_HistogramPoint] | None, make_message_encoder(0x4A)] = None
    exponential_histogram: Annotated[_Points[OtlpMessage] | None, make_message_encoder(0x52)] = None
    summary: Annotated[_Points[_SummaryPoint] | None, make_message_encoder(0x5A)] = None


class _ScopeMetrics(OtlpMessage):
    scope: Annotated[OtlpScope | None, make_message_encoder(0x0A)] = None
    metrics: Annotated[list[_Metric] | None, make_messages_encoder(0x12)] = None


class _ResourceMetrics(OtlpMessage):
    resource: Annotated[OtlpResource | None, make_message_encoder(0x0A)] = None
    scope_metrics: Annotated[list[_ScopeMetrics] | None, make_messages_encoder(0x12)] = None


class _Request(OtlpMessage):
    resource_metrics: Annotated[list[_ResourceMetrics] | None, make_messages_encoder(0x0A)] = None


def decode(data: bytes, shapes: Shapes | None = None) -> WrittenTelemetry:
    """Return the columns of a request of metrics. Raises as ``jobmeter.wire.otlp.protobuf.decode``."""
    # The decoded objects take much more memory than the text.
    if len(data) > _MOST_BYTES or data.count(b"{") > MOST_OBJECTS:
        raise LimitExceededError(f"a request has at most {_MOST_BYTES} bytes and {MOST_OBJECTS} JSON objects", "body")
    return protobuf.decode(encode(read(data, _Request)), shapes)


def read(data: bytes | msgspec.Raw, shape: type[S]) -> S:
    """Parse a message in JSON. Raises InvalidRequestError (field ``body``)."""
    try:
        # Numbers may be texts ("1767225600000000000", "NaN"), as the JSON form of protocol buffers defines.
        return msgspec.json.decode(data, type=shape, strict=False)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not the message that Content-Type says: {error}", "body") from error


def encode(sent: OtlpMessage) -> bytes:
    """Encode a message in protocol buffers. Raises InvalidRequestError for a number that no field can hold."""
    parts = []
    for name, sent_as, write in _fields(type(sent)):
        value = getattr(sent, name)
        if value is not None:
            try:
                parts.append(write(value))
            except struct.error as error:
                what = f"{sent_as} has more than 64 bits, or a sign that it may not have"
                raise InvalidRequestError(what, "body") from error
    return b"".join(parts)


@cache
def _fields(shape: type[OtlpMessage]) -> list[tuple[str, str, Write]]:
    """Return the annotated fields: name, name in JSON, and the function that encodes the field."""
    hints = get_type_hints(shape, include_extras=True)
    names = zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)
    return [
        (name, sent_as, hints[name].__metadata__[0]) for name, sent_as in names if hasattr(hints[name], "__metadata__")
    ]


def _pair(pair: OtlpKeyValue, deep: int) -> bytes:
    return (encode_part(_KEY, pair.key.encode()) if pair.key else b"") + encode_part(
        _VALUE, _encode_any(pair.value, deep)
    )


def _encode_any(value: AnyValue | None, deep: int) -> bytes:
    """Encode the content of an AnyValue. Levels below ``MOST_DEEP`` are cut off: the reader rejects them anyway."""
    if value is None or deep > MOST_DEEP:
        return b""
    if value.array_value is not None:
        return encode_part(
            _ARRAY, b"".join([encode_part(_ITEM, _encode_any(one, deep + 1)) for one in value.array_value.values or ()])
        )
    if value.kvlist_value is not None:
        return encode_part(
            _MAP, b"".join([encode_part(_ITEM, _pair(one, deep + 1)) for one in value.kvlist_value.values or ()])
        )
    return encode(value)


def _bits(value: int) -> int:
    return int.from_bytes(_SIGNED.pack(value), "little")
