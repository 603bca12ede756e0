"""The journal's records: what one sync to disk makes durable, as bytes.

A record is a head, then one section for each group of rows. Numbers are little-endian, and every section
begins at a multiple of eight bytes. Keys of a list of series that is sent repeatedly are written once: further
sections name the list. A list is defined from its record to the end of its segment, and nowhere else.

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
| u64[k], u64[k] | with ``keys``: job key and series id of each run, which are the list of that number from now on |
| i64[n], f64[n] | time in milliseconds and value of each row; with ``together`` one time for all of them |
| u32[k] | rows of each run, then zeros up to a multiple of eight bytes; with ``single`` nothing: each has one |
| u64, bytes | with ``series``: their length, and rows of the table ``series`` as JSON, then zeros likewise |

Records of earlier programs are read too: ``JMJ2`` has no descriptors; sections of ``JMJ1`` have 0 as the form and no
number, and have keys, all times and all counts.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.rows import Rows

Piece = bytes | memoryview
MAGIC, OLD_MAGIC = b"JMJ3", b"JMJ1"
_HEAD = struct.Struct("<4sIQI")
_CHECK = struct.Struct("<I")
_SECTION = struct.Struct("<IIHHHH")
_NUMBER = struct.Struct("<Q")
_NUMBERED = struct.Struct("<IIHHHHQ")
"""Both of them."""
_TIME = struct.Struct("<q")
_IDS, _TIMES, _VALUES, _COUNTS = (np.dtype(kind) for kind in ("<u8", "<i8", "<f8", "<u4"))
_KEYS, _SINGLE, _TOGETHER, _DESCRIPTORS = 1, 2, 4, 8
_OLD = _KEYS
"""The form of a section before there were forms."""
HEAD_BYTES = _HEAD.size + _CHECK.size
_ANY_MAGIC = re.compile(b"JMJ[123]")
AGAIN_BYTES = 2 * 2**20
"""A list is written again when so much lies between: a damaged record takes no more than that with it."""


class SegmentContent(msgspec.Struct, frozen=True):
    """The content of a segment.

    ``groups``: the rows of its whole records, in order. ``damaged`` bytes lie before a whole record and are none:
    something else than this program wrote there, or the disk lost it; or they name a list that was lost so; or they
    have a record's full length and not its content. ``torn`` bytes lie behind all of these: a write that was cut off
    and that nobody got an acknowledgement for, or, which looks the same, an end that the disk lost.
    """

    groups: list[Rows]
    damaged: int
    torn: int


class SeriesListTable:
    """The lists of series defined in a segment so far, for its writer."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[SeriesKeys, int, int]] = {}  # by identity; the list, its number, where it is
        self._last = 0

    def number(self, keys: SeriesKeys, at: int) -> tuple[int, bool]:
        """The number of a list for a record at a place of the segment, and whether the record must define the list."""
        written = self._written.get(id(keys))
        if written is not None and at - written[2] < AGAIN_BYTES:
            return written[1], False
        self._last += 1
        self._written[id(keys)] = keys, self._last, at
        return self._last, True


def encode(groups: Sequence[Rows], lists: SeriesListTable, at: int = 0) -> list[Piece]:
    """One record of some groups of rows, in pieces, for a place of the segment that has these lists.

    Where the record does not get there the lists are of no use any more. Large pieces are the memory of the rows.
    """
    parts = [part for rows in groups for part in _section(rows, *lists.number(rows.keys, at))]
    check = 0
    for part in parts:
        check = crc32(part, check)
    head = _HEAD.pack(MAGIC, len(groups), sum(map(len, parts)), check)
    return [head + _CHECK.pack(crc32(head)), *parts]


def scan(segment: bytes) -> SegmentContent:
    """What is left of a segment, whatever happened to it."""
    groups: list[Rows] = []
    lists: dict[int, SeriesKeys] = {}
    damaged, good, at, behind = 0, 0, 0, 0
    while (head := _ANY_MAGIC.search(segment, at)) is not None:
        at = head.start()
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
                for length, rows in _sections(record, lists):
                    if rows is None:
                        damaged += length
                    else:
                        groups.append(rows)
                good = at
            elif not _grown(record, segment[at:]):
                behind = at
    unreadable = max(behind - good, 0)
    return SegmentContent(groups, damaged + unreadable, len(segment) - good - unreadable)


def _section(rows: Rows, number: int, written: bool) -> list[Piece]:
    runs, retention = len(rows.count), rows.retention
    first, last = rows.span
    together = first == last
    single = runs == len(rows)
    lines = b"" if rows.descriptors is None else b"\n".join(rows.descriptors.lines)
    form = _KEYS * written | _SINGLE * single | _TOGETHER * together | _DESCRIPTORS * bool(lines)
    days = retention.raw_days, retention.minute_days, retention.hour_days
    pieces: list[Piece] = [_NUMBERED.pack(runs, len(rows), *days, form, number)]
    if written:
        pieces += [_memory(rows.job, _IDS), _memory(rows.series, _IDS)]
    pieces += [_TIME.pack(first) if together else _memory(rows.time, _TIMES), _memory(rows.value, _VALUES)]
    if not single:
        pieces.append(_padded(rows.count.astype(_COUNTS).tobytes()))
    if lines:
        pieces.append(_NUMBER.pack(len(lines)) + _padded(lines))
    return pieces


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 8)


def _memory(array: NDArray[Any], kind: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(array, kind).data.cast("B")


def _grown(record: bytes, rest: bytes) -> bool:
    """Whether a file may have grown, and the power failed before all that was written into it came to the disk."""
    return record.endswith(bytes(8)) or (bool(rest) and not rest.strip(b"\0"))


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


def _sections(record: bytes, lists: dict[int, SeriesKeys]) -> Iterator[tuple[int, Rows | None]]:
    """The bytes and the rows of each section; None for rows of a list that is not there."""
    magic, sections, _, _ = _HEAD.unpack_from(record)
    at = HEAD_BYTES
    for _ in range(sections):
        begin = at
        runs, rows, raw, minute, hour, form = _SECTION.unpack_from(record, at)
        at += _SECTION.size
        number = 0
        if magic == OLD_MAGIC:
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
        yield (
            at - begin,
            (Rows(keys, count, time, value, retention, None, descriptors) if keys is not None and there else None),
        )


def _descriptors(record: bytes, at: int) -> tuple[Descriptors, int]:
    """The descriptors that begin at a place, and where they end."""
    (length,) = _NUMBER.unpack_from(record, at)
    at += _NUMBER.size
    return Descriptors.parsed(record[at : at + length]), at - (-length // 8) * 8


def _times(record: bytes, at: int, rows: int, *, together: bool) -> tuple[Int64s, int]:
    """The times of the rows that begin at a place, and where they end."""
    stored = np.frombuffer(record, "<i8", 1 if together else rows, at)
    return (np.full(rows, stored[0]) if together else stored), at + stored.nbytes
