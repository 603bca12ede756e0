"""Prometheus' streamed answers of remote read: frames of series whose samples are in XOR chunks.

https://prometheus.io/docs/specs/prw/remote_read_api/ has the messages;
https://github.com/prometheus/prometheus/blob/main/tsdb/docs/format/chunks.md the bits of a chunk. A chunk has at most
120 samples. Each value states its window of bits; the format also allows to repeat the window of the value before.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Float64s, Int64s
from jobmeter.wire.protobuf import encode_varint
from jobmeter.wire.remote_read import encode_labels, message_part, number_part

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
    bodies = [message_part(1, labels + b"".join(some)) + number_part(2, query) for labels, some in _frames(series)]
    checks = _checksums(bodies)
    return b"".join(
        encode_varint(len(body)) + struct.pack(">I", check) + body for body, check in zip(bodies, checks, strict=True)
    )


def _frames(
    series: Sequence[LabelledSamples],
) -> Iterator[tuple[bytes, list[bytes]]]:
    for labels, times, values in series:
        pairs = encode_labels(labels)
        chunks = encode_chunks(times, values)
        parts = [
            message_part(
                2,
                number_part(1, int(times[at]))
                + number_part(2, int(times[min(at + CHUNK_SAMPLES, len(times)) - 1]))
                + number_part(3, _XOR)
                + message_part(4, chunk),
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
