"""Prometheus' remote read: the request's queries, and answers with samples.

https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/ and ``prompb/remote.proto``.
"""

import struct
from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.wire.protobuf import BYTES, encode_varint, fields, make_damage_error, varint

MOST_QUERIES = 50
MOST_MATCHERS = 100
_KINDS = ("=", "!=", "=~", "!~")
_SIX_BYTES = (1 << 35, 1 << 42)
"""Times whose varint has six bytes: those from 1971 to 2109."""
_QUERY, _START, _END, _MATCHER = 0x0A, 0x08, 0x10, 0x1A
_FORM, _FORMS = 0x10, 0x12
"""Fields of the accepted forms of an answer, one by one and packed."""
_SAMPLES, _CHUNKS = 0, 1
_KIND, _NAME, _VALUE = 0x08, 0x12, 0x1A
_SAMPLE = np.dtype([("head", "u1", 3), ("value", "<f8"), ("tag", "u1"), ("time", "u1", 6)])
_HEAD = (0x12, 0x10, 0x09)
_TIME_TAG = 0x10


class ReadQuery(msgspec.Struct, frozen=True):
    """A query: matchers as (label, comparison, value), and its range in ms, both ends included."""

    start_ms: int
    end_ms: int
    matchers: tuple[tuple[str, str, str], ...]


class ReadRequest(msgspec.Struct, frozen=True):
    """Queries. ``streamed``: the client prefers frames of chunks to one message with samples."""

    queries: list[ReadQuery]
    streamed: bool


def decode(data: bytes) -> ReadRequest:
    """Decode a ``prometheus.ReadRequest``. Raises InvalidRequestError."""
    queries: list[ReadQuery] = []
    forms: list[int] = []
    for tag, begin, at, end in fields(data, 0, len(data)):
        if tag == _QUERY:
            queries.append(_query(data, at, end))
            if len(queries) > MOST_QUERIES:
                raise LimitExceededError(f"a request may have {MOST_QUERIES} queries", "query")
        elif tag == _FORM:
            forms.append(_number(data, begin, end))
        elif tag == _FORMS:
            forms += data[at:end]
    known = [form for form in forms if form in {_SAMPLES, _CHUNKS}]
    if forms and not known:
        raise InvalidRequestError("the client accepts neither samples nor XOR chunks in a stream", "query")
    return ReadRequest(queries, streamed=known[:1] == [_CHUNKS])


def _query(data: bytes, at: int, end: int) -> ReadQuery:
    times = {_START: 0, _END: 0}
    matchers = []
    for tag, begin, content, stop in fields(data, at, end):
        if tag in times:
            times[tag] = _number(data, begin, stop)
        elif tag == _MATCHER:
            matchers.append(_matcher(data, content, stop))
    if len(matchers) > MOST_MATCHERS:
        raise LimitExceededError(f"a query may have {MOST_MATCHERS} matchers, this one has {len(matchers)}", "query")
    return ReadQuery(times[_START], times[_END], tuple(matchers))


def _matcher(data: bytes, at: int, end: int) -> tuple[str, str, str]:
    kind, texts = 0, {_NAME: "", _VALUE: ""}
    for tag, begin, content, stop in fields(data, at, end):
        if tag == _KIND:
            kind = _number(data, begin, stop)
        elif tag in texts:
            try:
                texts[tag] = data[content:stop].decode()
            except UnicodeDecodeError:
                raise make_damage_error("a matcher is no text") from None
    if not 0 <= kind < len(_KINDS):
        raise InvalidRequestError(f"a matcher has the unknown type {kind}", "query")
    return texts[_NAME], _KINDS[kind], texts[_VALUE]


def _number(data: bytes, begin: int, end: int) -> int:
    """Return a signed number of 64 bits; its tag is one byte."""
    value, _ = varint(data, begin + 1, end)
    return value - 2**64 if value >= 2**63 else value


def number_part(number: int, value: int) -> bytes:
    """Return a field with a number; one of 0 is left out."""
    return encode_varint(number << 3) + encode_varint(value) if value else b""


def message_part(number: int, data: bytes) -> bytes:
    """Return a field with bytes."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(data)) + data


def encode_series(labels: Sequence[tuple[str, str]], times: Int64s, values: Float64s) -> bytes:
    """Return a ``TimeSeries``."""
    return encode_labels(labels) + _encode_samples(times, values)


def encode_labels(labels: Sequence[tuple[str, str]]) -> bytes:
    """Return labels as the first field of a series."""
    pairs = (message_part(1, name.encode()) + message_part(2, value.encode()) for name, value in labels)
    return b"".join(message_part(1, pair) for pair in pairs)


def _encode_samples(times: Int64s, values: Float64s) -> bytes:
    if len(times) and _SIX_BYTES[0] <= times.min() and times.max() < _SIX_BYTES[1]:
        rows = np.empty(len(times), _SAMPLE)
        rows["head"], rows["value"], rows["tag"] = _HEAD, values, _TIME_TAG
        shifted = times[:, None] >> np.arange(0, 42, 7)
        rows["time"] = (shifted & 0x7F) | np.array([0x80] * 5 + [0])
        return rows.tobytes()
    return b"".join(
        message_part(2, b"\x09" + struct.pack("<d", value) + b"\x10" + encode_varint(time))
        for time, value in zip(times.tolist(), values.tolist(), strict=True)
    )


def encode(results: Sequence[Sequence[bytes]]) -> bytes:
    """Return a ``prometheus.ReadResponse`` of encoded series for each query, compressed."""
    body = b"".join(message_part(1, b"".join(message_part(1, one) for one in series)) for series in results)
    import pyarrow as pa  # noqa: PLC0415 - 30 MiB, for servers that nobody asks in this form

    return bytes(pa.compress(body, codec="snappy", asbytes=True))
