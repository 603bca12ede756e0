"""The journal's records: the bytes that one sync to disk makes durable.

A record is a head, a body and a foot. Numbers are little-endian, and every part begins at a multiple of eight bytes.
The foot repeats the head, so that damage to either costs nothing. Both have their own checksum, so that the number of
lost rows is known if the body is damaged.

| head, foot | |
|---|---|
| 4 bytes | ``JMJ4`` begins a head, ``4JMJ`` a foot |
| u32 | sections in the body |
| u64 | salt of the segment, which is also in the name of its file |
| u64 | byte of the segment where the record begins |
| u64 | rows of the segment before the record |
| u64 | bytes of the body |
| u32 | rows of the record |
| u32 | copies in the body |
| u32 | CRC-32 of the body |
| u32 | CRC-32 of the fields above |

The body has one section for each group of rows, then the copies.

| section | |
|---|---|
| u32, u32 | runs ``k``, rows ``n`` |
| u16, u16, u16, u16 | days that raw samples, minutes, hours are stored; form: 1 keys, 2 single, 4 together, 8 series |
| u64 | number of the list of series |
| u64[k], u64[k] | with ``keys``: job key and series id of each run, which are the list of that number |
| i64[n], f64[n] | time in milliseconds and value of each row; with ``together`` one time for all of them |
| u32[k] | rows of each run, then zeros up to a multiple of eight bytes; with ``single`` nothing: each has one |
| u64, bytes | with ``series``: their length, and descriptors; then zeros likewise |

Descriptors are rows of the table ``series`` as JSON lines, in one Zstandard frame. A copy has descriptors of an earlier
record, and their length before them.

A record needs others in two ways: a section may only name its list of series, and an earlier record may have the
descriptors of its series. So keys and descriptors are repeated until two copies lie ``APART_BYTES`` apart: damage to
one record, or to a few adjacent blocks of a disk, leaves all other records readable. In a segment that continues to
need its keys, these are repeated further times at growing distances. A list is defined in its own segment and nowhere
else; each segment has all descriptors that the engine may lack.

The salt is a random number. Values that a sender chose to look like a record lack it.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from jobmeter.model.batch import Float64s, Int64s, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.rows import SampleRuns

Piece = bytes | memoryview
HEAD_MAGIC, FOOT_MAGIC = b"JMJ4", b"4JMJ"
_HEAD = struct.Struct("<4sIQQQQIII")
_CHECK = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_SECTION = struct.Struct("<IIHHHHQ")
_TIME = struct.Struct("<q")
_IDS, _TIMES, _VALUES, _COUNTS = (np.dtype(kind) for kind in ("<u8", "<i8", "<f8", "<u4"))
_KEYS, _SINGLE, _TOGETHER, _DESCRIPTORS = 1, 2, 4, 8
HEAD_BYTES = _HEAD.size + _CHECK.size
LEAST_ROW_BYTES = 8
"""Fewest bytes of a row."""
APART_BYTES = 2**16
"""Distance between two copies of keys or descriptors: more than damage at one place of a disk usually covers."""
_RARER = 4
"""Factor of the distance from the first copy of keys to the last one at which another copy is written."""
_LEVEL = 1
"""Compression level: the quickest."""


class RecordHead(NamedTuple):
    """The fields of a head or a foot.

    ``at`` and ``size`` are bytes: the start of the record, and the length of its body. ``before`` and ``rows`` are
    rows. ``check`` is the checksum of the body.
    """

    sections: int
    salt: int
    at: int
    before: int
    size: int
    rows: int
    copies: int
    check: int

    def pack(self, magic: bytes) -> bytes:
        """Return the bytes of a head or a foot."""
        content = _HEAD.pack(magic, *self)
        return content + _CHECK.pack(crc32(content))

    @property
    def end(self) -> int:
        """End of the foot, in bytes of the segment."""
        return self.at + self.size + 2 * HEAD_BYTES

    @property
    def rows_until(self) -> int:
        """Rows of the segment up to the end of the record."""
        return self.before + self.rows


class RecordPosition(NamedTuple):
    """End of a segment, in bytes and in rows."""

    at: int = 0
    rows: int = 0


class _List(msgspec.Struct, eq=False):
    """A list of series in a segment.

    ``first``: the end, in bytes, of the first record with its keys. ``reach``: the distance behind it up to which the
    keys were repeated. ``last``: the start of the last record with its keys.
    """

    keys: SeriesKeys
    number: int
    first: int
    reach: int
    last: int = -1


class _Copy(msgspec.Struct, eq=False):
    """Compressed descriptors to be repeated.

    ``total``: the end of their first record, in bytes of all segments. ``first``: the end of the first record of this
    segment that has them, None without one.
    """

    descriptors: bytes
    total: int
    first: int | None


class RecordWriter:
    """Makes the records of one segment after another. For one thread at a time.

    Each ``encode`` is followed by ``written``, or by ``begin`` if the record did not reach the disk: then no later
    record may refer to its segment.
    """

    def __init__(self, apart: int = APART_BYTES) -> None:
        """``apart``: see ``APART_BYTES``."""
        self.position = RecordPosition()
        self._apart = apart
        self._salt = 0
        self._lists: dict[int, _List] = {}  # by the identity of the keys
        self._before = 0  # bytes of the segments before this one
        self._flushed = 0  # byte of all segments up to which the engine has the descriptors
        self._copies: list[_Copy] = []  # to be repeated by the next record
        self._repeated: list[_Copy] = []  # repeated often enough in this segment
        self._fresh: list[bytes] = []  # descriptors that this record has first
        self._new: list[_List] = []  # lists that this record has first

    def begin(self, salt: int) -> None:
        """Start a segment."""
        self._before += self.position.at
        self.position, self._salt = RecordPosition(), salt
        self._lists = {}
        # Each segment has all descriptors that the engine may lack: another segment may be lost as a whole.
        self._copies = [_Copy(one.descriptors, one.total, None) for one in self._repeated + self._copies]
        self._repeated = []

    def encode(self, groups: Sequence[SampleRuns]) -> list[Piece]:
        """Return one record of some groups of rows, in pieces. Large pieces are views of the rows' memory."""
        self._fresh, self._new = [], []
        self._copies = [one for one in self._copies if one.total > self._flushed]
        pieces = [piece for rows in groups for piece in self._section(rows)]
        for copy in self._copies:
            pieces += _add_length(copy.descriptors)
        check = 0
        for piece in pieces:
            check = crc32(piece, check)
        rows, size = sum(map(len, groups)), sum(map(len, pieces))
        head = RecordHead(len(groups), self._salt, *self.position, size, rows, len(self._copies), check)
        return [head.pack(HEAD_MAGIC), *pieces, head.pack(FOOT_MAGIC)]

    def confirm(self, end: RecordPosition) -> None:
        """Note that the record is on disk, and its end."""
        at, copies = self.position.at, self._copies
        self.position, self._copies = end, []
        for copy in copies:
            done = copy.first is not None and at - copy.first >= self._apart
            (self._repeated if done else self._copies).append(copy)
            copy.first = end.at if copy.first is None else copy.first
        self._copies += [_Copy(descriptors, self.total, end.at) for descriptors in self._fresh]
        for known in self._new:
            known.first = end.at

    @property
    def total(self) -> int:
        """Bytes of all segments so far."""
        return self._before + self.position.at

    def note_flushed(self, total: int) -> None:
        """Stop repeating descriptors up to that ``total``: the engine has them. May be called from any thread."""
        self._flushed = total

    def _section(self, rows: SampleRuns) -> Iterator[Piece]:
        runs, retention = len(rows.count), rows.retention
        first, last = rows.span
        together = first == last
        single = runs == len(rows)
        number, with_keys = self._number(rows.keys)
        described = b"" if rows.descriptors is None else _compress(rows.descriptors)
        form = _KEYS * with_keys | _SINGLE * single | _TOGETHER * together | _DESCRIPTORS * bool(described)
        days = retention.raw_days, retention.minute_days, retention.hour_days
        yield _SECTION.pack(runs, len(rows), *days, form, number)
        if with_keys:
            yield _memory(rows.job, _IDS)
            yield _memory(rows.series, _IDS)
        yield _TIME.pack(first) if together else _memory(rows.time, _TIMES)
        yield _memory(rows.value, _VALUES)
        if not single:
            yield _pad(rows.count.astype(_COUNTS).tobytes())
        if described:
            self._fresh.append(described)
            yield from _add_length(described)

    def _number(self, keys: SeriesKeys) -> tuple[int, bool]:
        """Return the number of a list, and True if this section needs its keys."""
        at = self.position.at
        known = self._lists.get(id(keys))
        if known is None:
            known = self._lists[id(keys)] = _List(keys, len(self._lists) + 1, at, self._apart // _RARER)
            self._new.append(known)
        if known.last == at:
            return known.number, False  # an earlier section of this record has them
        distance = at - known.first
        if distance >= self._apart:
            if distance < _RARER * known.reach:
                return known.number, False
            known.reach = distance
        known.last = at
        return known.number, True


class RecordSection(msgspec.Struct, frozen=True, eq=False):
    """A section as it was written. ``keys`` None: the section only names its list."""

    number: int
    keys: SeriesKeys | None
    count: Int64s
    time: Int64s
    value: Float64s
    retention: Retention
    descriptors: bytes


class Body(NamedTuple):
    """The sections of a record, and the descriptors of earlier ones, compressed."""

    sections: Sequence[RecordSection]
    copies: Sequence[bytes]


def read_head(segment: bytes, at: int, salt: int) -> RecordHead | None:
    """Return the head or foot at a position; None if it is damaged, or of another segment."""
    if len(segment) - at < HEAD_BYTES:
        return None
    if _CHECK.unpack_from(segment, at + _HEAD.size)[0] != crc32(segment[at : at + _HEAD.size]):
        return None
    head = RecordHead(*_HEAD.unpack_from(segment, at)[1:])
    return head if head.salt == salt else None


def read_body(body: bytes, head: RecordHead) -> Body:
    """Return the content of a body whose checksum is right."""
    at, sections, copies = 0, list[RecordSection](), list[bytes]()
    for _ in range(head.sections):
        section, at = _read_section(body, at)
        sections.append(section)
    for _ in range(head.copies):
        copy, at = _read_with_length(body, at)
        copies.append(copy)
    return Body(sections, copies)


def decompress(descriptors: bytes) -> Descriptors:
    """Return the descriptors of a section or a copy."""
    return Descriptors.parse(zstandard.ZstdDecompressor().decompress(descriptors))


def _read_section(body: bytes, at: int) -> tuple[RecordSection, int]:
    runs, rows, raw, minute, hour, form, number = _SECTION.unpack_from(body, at)
    at += _SECTION.size
    keys = None
    if form & _KEYS:
        job, series = (np.frombuffer(body, _IDS, runs, begin) for begin in (at, at + _IDS.itemsize * runs))
        keys = SeriesKeys(job, series)
        at += job.nbytes + series.nbytes
    time = np.frombuffer(body, _TIMES, 1 if form & _TOGETHER else rows, at)
    at += time.nbytes
    value = np.frombuffer(body, _VALUES, rows, at)
    at += value.nbytes
    count = np.ones(runs, np.int64)
    if not form & _SINGLE:
        count = np.frombuffer(body, _COUNTS, runs, at).astype(np.int64)
        at += _COUNTS.itemsize * (runs + runs % 2)
    descriptors, at = _read_with_length(body, at) if form & _DESCRIPTORS else (b"", at)
    retention = Retention(raw_days=raw, minute_days=minute, hour_days=hour)
    every = np.full(rows, time[0]) if form & _TOGETHER else time
    return RecordSection(number, keys, count, every, value, retention, descriptors), at


def _read_with_length(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _NUMBER.unpack_from(body, at)
    at += _NUMBER.size
    return body[at : at + length], at + length + -length % 8


def _add_length(content: bytes) -> tuple[bytes, bytes]:
    return _NUMBER.pack(len(content)), _pad(content)


def _compress(descriptors: Descriptors) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(b"\n".join(descriptors.lines))


def _pad(content: bytes) -> bytes:
    return content + bytes(-len(content) % 8)


def _memory(array: NDArray[Any], kind: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(array, kind).data.cast("B")
