"""Segments of the journal in the form of earlier programs: still read, and never written.

A record is a head, then one section for each group of rows. Numbers are little-endian, and every section
begins at a multiple of eight bytes. Keys of a repeated list of series are in one record; further sections
name the list. A list is defined from its record to the end of its segment, and nowhere else.

| head | |
|---|---|
| 4 bytes | ``JMJ3`` |
| u32 | sections |
| u64 | bytes of all sections |
| u32 | CRC-32 of these bytes |
| u32 | CRC-32 of the head so far |

| section | |
|---|---|
| u32, u32 | runs ``k``, rows ``n`` |
| u16, u16, u16, u16 | days that raw samples, minutes, hours are stored; form: 1 keys, 2 single, 4 together, 8 series |
| u64 | number of the list |
| u64[k], u64[k] | with ``keys``: job key and series id of each run, which define the list of that number |
| i64[n], f64[n] | time in milliseconds and value of each row; with ``together`` one time for all of them |
| u32[k] | rows of each run, then zeros up to a multiple of eight bytes; with ``single`` nothing: each has one |
| u64, bytes | with ``series``: their length, and rows of the table ``series`` as JSON, then zeros likewise |

``JMJ2`` has no descriptors; sections of ``JMJ1`` have 0 as the form and no number, and have keys, all times and all
counts.
"""

import re
import struct
from collections.abc import Iterator
from zlib import crc32

import numpy as np

from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.record import LEAST_ROW_BYTES
from jobmeter.store.clickhouse.rows import SampleRuns
from jobmeter.store.clickhouse.segment_content import Loss, SegmentContent

_OLD_MAGIC = b"JMJ1"
_HEAD = struct.Struct("<4sIQI")
_CHECK = struct.Struct("<I")
_SECTION = struct.Struct("<IIHHHH")
_NUMBER = struct.Struct("<Q")
_KEYS, _SINGLE, _TOGETHER, _DESCRIPTORS = 1, 2, 4, 8
_OLD = _KEYS
"""The form of a section before there were forms."""
_HEAD_BYTES = _HEAD.size + _CHECK.size
_ANY_MAGIC = re.compile(b"JMJ[123]")


def scan(segment: bytes) -> SegmentContent:
    """Return the readable content of a damaged segment.

    Behind a damaged record, the sections that name its lists are lost too. The number of rows in a damaged record is
    unknown: the loss is an upper bound.
    """
    groups: list[SampleRuns] = []
    lists: dict[int, SeriesKeys] = {}
    damaged, lost, good, at, behind = 0, 0, 0, 0, 0
    while (head := _ANY_MAGIC.search(segment, at)) is not None:
        at = head.start()
        size = _length(segment, at)
        if size is None:
            at += 1
        elif at + size > len(segment):
            break
        else:
            # A record with a wrong checksum is skipped as a whole: bytes inside it are not taken for a record.
            record = segment[at : at + size]
            at += size
            if _is_whole(record):
                damaged += at - size - good
                for rows in _sections(record, lists):
                    if isinstance(rows, SampleRuns):
                        groups.append(rows)
                    else:
                        lost += rows
                good = at
            elif not _may_have_grown(record, segment[at:]):
                behind = at
    damaged += max(behind - good, 0)
    loss = Loss(lost + damaged // LEAST_ROW_BYTES, at_most=damaged > 0)
    return SegmentContent(groups, (), loss, damaged, len(segment) - max(good, behind))


def _may_have_grown(record: bytes, rest: bytes) -> bool:
    """Return True if a file may have grown before all its content reached the disk."""
    return record.endswith(bytes(8)) or (bool(rest) and not rest.strip(b"\0"))


def _length(segment: bytes, at: int) -> int | None:
    """Return the length of the record whose head is at a position; None without a head there."""
    if len(segment) - at < _HEAD_BYTES:
        return None
    _, _, size, _ = _HEAD.unpack_from(segment, at)
    if _CHECK.unpack_from(segment, at + _HEAD.size)[0] != crc32(segment[at : at + _HEAD.size]):
        return None
    return _HEAD_BYTES + int(size)


def _is_whole(record: bytes) -> bool:
    check: int = _HEAD.unpack_from(record)[3]
    return crc32(memoryview(record)[_HEAD_BYTES:]) == check


def _sections(record: bytes, lists: dict[int, SeriesKeys]) -> Iterator[SampleRuns | int]:
    """Yield the rows of each section; the number of rows if its list is missing."""
    magic, sections, _, _ = _HEAD.unpack_from(record)
    at = _HEAD_BYTES
    for _ in range(sections):
        runs, rows, raw, minute, hour, form = _SECTION.unpack_from(record, at)
        at += _SECTION.size
        number = 0
        if magic == _OLD_MAGIC:
            form = _OLD
        else:
            (number,) = _NUMBER.unpack_from(record, at)
            at += _NUMBER.size
        if form & _KEYS:
            pair = (np.frombuffer(record, "<u8", runs, at), np.frombuffer(record, "<u8", runs, at + 8 * runs))
            lists[number] = SeriesKeys(*pair)
            at += 16 * runs
        time, at = _times(record, at, rows, together=bool(form & _TOGETHER))
        value = np.frombuffer(record, "<f8", rows, at)
        at += 8 * rows
        count = np.ones(runs, np.int64)
        if not form & _SINGLE:
            count = np.frombuffer(record, "<u4", runs, at).astype(np.int64)
            at += -(-4 * runs // 8) * 8
        descriptors, at = _descriptors(record, at) if form & _DESCRIPTORS else (None, at)
        retention = Retention(raw_days=raw, minute_days=minute, hour_days=hour)
        keys = lists.get(number)
        there = keys is not None and len(keys) == runs
        yield SampleRuns(keys, count, time, value, retention, None, descriptors) if keys is not None and there else rows


def _descriptors(record: bytes, at: int) -> tuple[Descriptors, int]:
    """Return the descriptors at a position, and their end."""
    (length,) = _NUMBER.unpack_from(record, at)
    at += _NUMBER.size
    return Descriptors.parse(record[at : at + length]), at - (-length // 8) * 8


def _times(record: bytes, at: int, rows: int, *, together: bool) -> tuple[Int64s, int]:
    """Return the times of the rows at a position, and their end."""
    stored = np.frombuffer(record, "<i8", 1 if together else rows, at)
    return (np.full(rows, stored[0]) if together else stored), at + stored.nbytes
