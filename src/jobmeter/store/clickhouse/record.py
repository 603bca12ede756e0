"""The journal's records: what one sync to disk makes durable, as bytes.

A record is a head, then one section for each group of rows that it holds. Numbers are little-endian, and every section
begins at a multiple of eight bytes.

| head | |
|---|---|
| 4 bytes | ``JMJ1`` |
| u32 | sections |
| u64 | bytes of all sections |
| u32 | CRC-32 of these bytes |
| u32 | CRC-32 of the head so far |

| section | |
|---|---|
| u32, u32 | runs ``k``, rows ``n`` |
| u16, u16, u16, u16 | days that raw samples, minutes, hours are kept; 0 |
| u64[k], u64[k] | job key and series id of each run |
| i64[n], f64[n] | time in milliseconds and value of each row |
| u32[k] | rows of each run; then zeros up to a multiple of eight bytes |
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.rows import Rows

MAGIC = b"JMJ1"
_HEAD = struct.Struct("<4sIQI")
_CHECK = struct.Struct("<I")
_SECTION = struct.Struct("<IIHHHxx")
HEAD_BYTES = _HEAD.size + _CHECK.size


@dataclass(frozen=True, slots=True)
class Found:
    """What a segment holds.

    ``groups``: the rows of its whole records, in order. ``damaged`` bytes lie before a whole record and are none:
    something else than this program wrote there, or the disk lost it. ``torn`` bytes lie behind the last whole record:
    a write that was cut off and that nobody was told of.
    """

    groups: list[Rows]
    damaged: int
    torn: int


def encode(groups: Sequence[Rows]) -> bytes:
    """One record of some groups of rows."""
    parts: list[bytes] = []
    for rows in groups:
        count = rows.count.astype("<u4").tobytes()
        kept = rows.retention
        parts += [
            _SECTION.pack(len(rows.count), len(rows), kept.raw_days, kept.minute_days, kept.hour_days),
            rows.job.astype("<u8", copy=False).tobytes(),
            rows.series.astype("<u8", copy=False).tobytes(),
            rows.time.astype("<i8", copy=False).tobytes(),
            rows.value.astype("<f8", copy=False).tobytes(),
            count,
            bytes(-len(count) % 8),
        ]
    check = 0
    for part in parts:
        check = crc32(part, check)
    head = _HEAD.pack(MAGIC, len(groups), sum(map(len, parts)), check)
    return b"".join([head, _CHECK.pack(crc32(head)), *parts])


def decode(record: bytes) -> list[Rows]:
    """The groups of one whole record; their arrays are views into it."""
    _, sections, _, _ = _HEAD.unpack_from(record)
    return list(_sections(record, HEAD_BYTES, sections))


def scan(segment: bytes) -> Found:
    """What is left of a segment, whatever happened to it."""
    groups: list[Rows] = []
    damaged, good, at = 0, 0, 0
    while (at := segment.find(MAGIC, at)) >= 0:
        size = _length(segment, at)
        if size is None:
            at += 1
        elif at + size > len(segment):
            break
        else:
            # A record whose body is not what it was is passed over as a whole: nothing inside it is taken for one.
            record = segment[at : at + size]
            at += size
            if _whole(record):
                damaged += at - size - good
                groups += decode(record)
                good = at
    return Found(groups, damaged, len(segment) - good)


def _length(segment: bytes, at: int) -> int | None:
    """How long the record says that it is whose head is at a place; None when no head is there."""
    if len(segment) - at < HEAD_BYTES:
        return None
    _, _, size, _ = _HEAD.unpack_from(segment, at)
    if _CHECK.unpack_from(segment, at + _HEAD.size)[0] != crc32(segment[at : at + _HEAD.size]):
        return None
    return HEAD_BYTES + int(size)


def _whole(record: bytes) -> bool:
    check: int = _HEAD.unpack_from(record)[3]
    return crc32(memoryview(record)[HEAD_BYTES:]) == check


def _sections(record: bytes, at: int, sections: int) -> Iterator[Rows]:
    for _ in range(sections):
        runs, rows, raw, minute, hour = _SECTION.unpack_from(record, at)
        at += _SECTION.size
        job = np.frombuffer(record, "<u8", runs, at)
        series = np.frombuffer(record, "<u8", runs, at + 8 * runs)
        at += 16 * runs
        time = np.frombuffer(record, "<i8", rows, at)
        value = np.frombuffer(record, "<f8", rows, at + 8 * rows)
        at += 16 * rows
        count = np.frombuffer(record, "<u4", runs, at).astype(np.int64)
        at += -(-4 * runs // 8) * 8
        yield Rows(
            SeriesKeys(job, series), count, time, value, Retention(raw_days=raw, minute_days=minute, hour_days=hour)
        )
