"""Prometheus' streamed answers of remote read: frames of series whose samples are in XOR chunks.

https://prometheus.io/docs/specs/prw/remote_read_api/ has the messages;
https://github.com/prometheus/prometheus/blob/main/tsdb/docs/format/chunks.md the bits of a chunk. A chunk has at most
120 samples. Each value states its window of bits; the format also allows to repeat the window of the value before.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.wire.protobuf import BYTES, encode_varint, iterate_fields, make_damage_error, read_varint

MOST_QUERIES = 50
MOST_MATCHERS = 100
_KINDS = ("=", "!=", "=~", "!~")
_SIX_BYTES = (1 << 35, 1 << 42)
"""Bounds of the times (ms) whose varint has six bytes: 1971 to 2109."""
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
    for tag, begin, at, end in iterate_fields(data, 0, len(data)):
        if tag == _QUERY:
            queries.append(_query(data, at, end))
            if len(queries) > MOST_QUERIES:
                raise LimitExceededError(f"a request may have at most {MOST_QUERIES} queries", "query")
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
    for tag, begin, content, stop in iterate_fields(data, at, end):
        if tag in times:
            times[tag] = _number(data, begin, stop)
        elif tag == _MATCHER:
            matchers.append(_matcher(data, content, stop))
    if len(matchers) > MOST_MATCHERS:
        raise LimitExceededError(f"a query may have at most {MOST_MATCHERS} matchers, not {len(matchers)}", "query")
    return ReadQuery(times[_START], times[_END], tuple(matchers))


def _matcher(data: bytes, at: int, end: int) -> tuple[str, str, str]:
    kind, texts = 0, {_NAME: "", _VALUE: ""}
    for tag, begin, content, stop in iterate_fields(data, at, end):
        if tag == _KIND:
            kind = _number(data, begin, stop)
        elif tag in texts:
            try:
                texts[tag] = data[content:stop].decode()
            except UnicodeDecodeError:
                raise make_damage_error("a matcher is not text") from None
    if not 0 <= kind < len(_KINDS):
        raise InvalidRequestError(f"a matcher has the unknown type {kind}", "query")
    return texts[_NAME], _KINDS[kind], texts[_VALUE]


def _number(data: bytes, begin: int, end: int) -> int:
    """Return a signed number of 64 bits; its tag is one byte."""
    value, _ = read_varint(data, begin + 1, end)
    return value - 2**64 if value >= 2**63 else value


def encode_number(number: int, value: int) -> bytes:
    """Return a field with a number; empty for 0."""
    return encode_varint(number << 3) + encode_varint(value) if value else b""


def encode_message(number: int, data: bytes) -> bytes:
    """Return a field with bytes."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(data)) + data


def encode_series(labels: Sequence[tuple[str, str]], times: Int64s, values: Float64s) -> bytes:
    """Return a ``TimeSeries``."""
    return encode_labels(labels) + _encode_samples(times, values)


def encode_labels(labels: Sequence[tuple[str, str]]) -> bytes:
    """Return labels as the first field of a series."""
    pairs = (encode_message(1, name.encode()) + encode_message(2, value.encode()) for name, value in labels)
    return b"".join(encode_message(1, pair) for pair in pairs)


def _encode_samples(times: Int64s, values: Float64s) -> bytes:
    if len(times) and _SIX_BYTES[0] <= times.min() and times.max() < _SIX_BYTES[1]:
        rows = np.empty(len(times), _SAMPLE)
        rows["head"], rows["value"], rows["tag"] = _HEAD, values, _TIME_TAG
        shifted = times[:, None] >> np.arange(0, 42, 7)
        rows["time"] = (shifted & 0x7F) | np.array([0x80] * 5 + [0])
        return rows.tobytes()
    return b"".join(
        encode_message(2, b"\x09" + struct.pack("<d", value) + b"\x10" + encode_varint(time))
        for time, value in zip(times.tolist(), values.tolist(), strict=True)
    )


def encode(results: Sequence[Sequence[bytes]]) -> bytes:
    """Return a ``prometheus.ReadResponse`` of encoded series for each query, compressed."""
    body = b"".join(encode_message(1, b"".join(encode_message(1, one) for one in series)) for series in results)
    import pyarrow as pa  # noqa: PLC0415 - 30 MiB, for servers that nobody asks in this form

    return bytes(pa.compress(body, codec="snappy", asbytes=True))


CHUNK_SAMPLES = 120
_FRAME_CHUNKS = 16
"""Chunks of a frame: the checksum of frames takes a step for each byte of the longest frame."""
_PART_SAMPLES = 100 * CHUNK_SAMPLES
"""Samples that are encoded at a time: each of their bits takes some 30 bytes of memory."""
_XOR = 1
_WORD = 0xFFFFFFFF
_CASTAGNOLI = 0x82F63B78
_DELTAS = ((14, 0b10, 2), (17, 0b110, 3), (20, 0b1110, 4))
"""Lengths of the change of an interval in bits, each with its prefix and the bits of the prefix; else 64 bits."""
Uint64s = NDArray[np.uint64]
LabelledSamples = tuple[Sequence[tuple[str, str]], Int64s, Float64s]
"""Labels, times in ms and values of a series."""


def encode_frames(query: int, series: Sequence[LabelledSamples]) -> bytes:
    """Return the frames of series of a query. ``query`` is the position of the query in the request."""
    bodies = [encode_message(1, labels + b"".join(some)) + encode_number(2, query) for labels, some in _frames(series)]
    checks = _checksums(bodies)
    return b"".join(
        encode_varint(len(body)) + struct.pack(">I", check) + body for body, check in zip(bodies, checks, strict=True)
    )


def _frames(series: Sequence[LabelledSamples]) -> Iterator[tuple[bytes, list[bytes]]]:
    for labels, times, values in series:
        pairs = encode_labels(labels)
        chunks = encode_chunks(times, values)
        parts = [
            encode_message(
                2,
                encode_number(1, int(times[at]))
                + encode_number(2, int(times[min(at + CHUNK_SAMPLES, len(times)) - 1]))
                + encode_number(3, _XOR)
                + encode_message(4, chunk),
            )
            for at, chunk in zip(range(0, len(times), CHUNK_SAMPLES), chunks, strict=True)
        ]
        for at in range(0, len(parts), _FRAME_CHUNKS):
            yield pairs, parts[at : at + _FRAME_CHUNKS]


def encode_chunks(times: Int64s, values: Float64s) -> list[bytes]:
    """Return the samples of a series, int64[n] ms ascending and float64[n], in chunks."""
    parts = [slice(at, at + _PART_SAMPLES) for at in range(0, len(times), _PART_SAMPLES)]
    return [chunk for part in parts for chunk in _encode_part(times[part], values[part])]


def _encode_part(times: Int64s, values: Float64s) -> list[bytes]:
    place = np.arange(len(times)) % CHUNK_SAMPLES
    starts = np.flatnonzero(place == 0)
    numbers, lengths = _fields(times, np.ascontiguousarray(values).view(np.uint64), place)
    # The bits of a chunk end with a whole byte: zeros behind its last sample fill it.
    sizes = np.add.reduceat(lengths.sum(axis=1), starts)
    lasts = np.append(starts[1:], len(times)) - 1
    lengths[lasts, -1] = -sizes % 8
    ends = np.cumsum((sizes + 7) // 8)
    packed = np.packbits(_bits(numbers.ravel(), lengths.ravel())).tobytes()
    chunks = []
    for first, last, begin, end in zip(
        starts.tolist(), lasts.tolist(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True
    ):
        head = struct.pack(">H", last - first + 1) + encode_varint(_zigzag(int(times[first])))
        head += struct.pack(">d", values[first])
        if last > first:
            head += encode_varint(int(times[first + 1] - times[first]))
        chunks.append(head + packed[begin:end])
    return chunks


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _fields(times: Int64s, raw: Uint64s, place: NDArray[Any]) -> tuple[Uint64s, Int64s]:
    """Return numbers and their bits, [n, 5]: the interval's change, the value's change, and room for zeros.

    The first sample of a chunk and the time of the second are in the head of the chunk.
    """
    numbers, lengths = np.zeros((len(times), 5), np.uint64), np.zeros((len(times), 5), np.int64)
    interval = np.diff(times, prepend=times[:1])
    change = np.diff(interval, prepend=interval[:1])
    chosen = place > 1
    prefix, prefix_bits, payload_bits = (np.full(len(times), one, np.int64) for one in (0b1111, 4, 64))
    for bits, mark, mark_bits in reversed(_DELTAS):
        fits = (change >= 1 - (1 << (bits - 1))) & (change <= 1 << (bits - 1))
        prefix[fits], prefix_bits[fits], payload_bits[fits] = mark, mark_bits, bits
    same = change == 0
    prefix[same], prefix_bits[same], payload_bits[same] = 0, 1, 0
    numbers[:, 0], numbers[:, 1] = prefix, change.view(np.uint64)
    lengths[:, 0], lengths[:, 1] = np.where(chosen, prefix_bits, 0), np.where(chosen, payload_bits, 0)
    changed = np.zeros(len(raw), np.uint64)
    changed[1:] = raw[1:] ^ raw[:-1]
    leading = np.minimum(64 - _bit_length(changed), 31)
    trailing = np.where(changed > 0, _bit_length(changed & (~changed + np.uint64(1))) - 1, 0)
    width = 64 - leading - trailing
    numbers[:, 2] = np.where(changed > 0, 0b11 << 11 | leading << 6 | width & 63, 0)
    numbers[:, 3] = changed >> trailing.astype(np.uint64)
    lengths[:, 2] = np.where(place == 0, 0, np.where(changed > 0, 13, 1))
    lengths[:, 3] = np.where((place == 0) | (changed == 0), 0, width)
    return numbers, lengths


def _bit_length(numbers: Uint64s) -> Int64s:
    high, low = (numbers >> np.uint64(32)).astype(np.float64), (numbers & np.uint64(_WORD)).astype(np.float64)
    found: Int64s = np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1]).astype(np.int64)
    return found


def _bits(numbers: Uint64s, lengths: Int64s) -> NDArray[np.uint8]:
    """Return the lowest bits of each number, the most significant bit first."""
    ends = np.cumsum(lengths)
    shift = np.repeat(ends, lengths) - 1 - np.arange(int(ends[-1]))
    wanted = (np.repeat(numbers, lengths) >> shift.astype(np.uint64)) & np.uint64(1)
    found: NDArray[np.uint8] = wanted.astype(np.uint8)
    return found


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_CASTAGNOLI), table >> 1).astype(np.uint32)
    return table


_TABLE = _crc_table()


def _checksums(messages: Sequence[bytes]) -> list[int]:
    """Return the CRC-32C of messages of four bytes or more, computed side by side."""
    if not messages:
        return []
    longest = max(map(len, messages))
    rows = np.zeros((longest, len(messages)), np.uint8)
    for column, message in enumerate(messages):
        # Leading zeros do not change the checksum. The first four bytes have its initial value.
        rows[longest - len(message) :, column] = np.frombuffer(message, np.uint8)
        rows[longest - len(message) : longest - len(message) + 4, column] ^= 0xFF
    check = np.zeros(len(messages), np.uint32)
    for row in rows:
        check = _TABLE[(check ^ row) & 0xFF] ^ check >> 8
    found: list[int] = (check ^ np.uint32(_WORD)).tolist()
    return found
