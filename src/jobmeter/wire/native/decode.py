"""The native wire format, read: the bytes of a request body to sample batches, records and log lines.

See ``docs/reference/wire-format.md``. Everything is checked before it is believed: a length before memory is taken for
it, the checksum before the payload is unpacked, the size while it is unpacked. Whatever is wrong is InvalidRequestError
(LimitExceededError for what is merely too large) that names the part: ``body`` ``frame`` ``series`` ``time`` ``value``
``records`` ``lines`` or the descriptor's own field.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import numpy as np
import zstandard

from jobmeter.errors import InvalidRequestError, LimitExceededError, NotAtOnceError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.memory import Take, unlimited
from jobmeter.model.record import Records, check_records, invalid_record
from jobmeter.model.roster import listed
from jobmeter.model.series import DEFAULT_PROJECT, MAX_LABELS, Series, at_place, check_series
from jobmeter.settings import Limits
from jobmeter.wire.json_shape import shape_of
from jobmeter.wire.native.logs import decode_lines
from jobmeter.wire.native.newer import decode_known
from jobmeter.wire.native.sections import SECTIONS, Section

MAGIC = b"JM"
VERSION = 1
SAMPLES, RECORDS, LOGS = 1, 2, 3
NONE, ZLIB, ZSTD = 0, 1, 2
MAX_SENT = 64 * 2**20
MAX_UNPACKED = 256 * 2**20

_HEADER = struct.Struct("<2sBBB3sIII")
_COUNTS = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_SHORT = struct.Struct("<H")
_FIELDS = 8  # metric, project, cluster, node, device, job, replica, attempt
_MAX_DESCRIPTOR = 64 * 1024
_CACHED_SERIES = 262_144
_CACHED_BYTES = 512
"""Longest descriptor in the caches, which count entries: long ones are few, or are somebody's attempt on the memory."""
_CACHED_METRICS, _CACHED_PLACES = 4_096, 65_536
_ANY_METRIC = _SHORT.pack(1) + b"m"
_MOMENT = 256 * 1024
"""Bytes of a frame that are unpacked in a moment."""


_RECORD_DEPTH, _LINE_DEPTH = 2, 4
"""How deep in the JSON of a frame its records and lines begin."""
_COLUMNS = 3.5
"""How many times the payload of samples is in memory: as it came, in columns, and in those joined with others."""


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What a body holds, in the order of its frames. ``unknown`` names what was left out of records and lines."""

    batches: list[SampleBatch]
    records: list[Records]
    lines: list[LogLine]
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Frame:
    kind: int
    payload: bytes


def decode(
    body: bytes,
    project: str = DEFAULT_PROJECT,
    limits: Limits | None = None,
    take: Take = unlimited,
    *,
    known: bool = False,
) -> Decoded:
    """The frames of a whole body; ``project`` is what an empty project of a descriptor or of a stream means.

    Times and values are taken as they are: what they may be is for ``jobmeter.ingest`` to say. ``take`` is told the
    bytes that are about to be needed, frame by frame, and may raise. ``known``: only what takes a moment, samples of
    lists of series that came before, for which nothing is taken; NotAtOnceError for anything else.
    """
    allowed = limits or Limits()
    if len(body) > allowed.body_bytes:
        raise LimitExceededError(f"a body may have {allowed.body_bytes} bytes, this one has {len(body)}", "body")
    if not body:
        raise InvalidRequestError("the body is empty: at least one frame is needed", "body")
    decoded = Decoded([], [], [])
    series, records_left = 0, allowed.request_records
    for frame in _frames(body, allowed, unlimited if known else take, known=known):
        if frame.kind == RECORDS:
            shape = shape_of(frame.payload)
            shape.check(_RECORD_DEPTH, records_left, "records")
            records_left -= shape.opened[_RECORD_DEPTH]
            take(shape.recorded_bytes)
            records, unknown = _records(frame.payload)
            decoded.records.append(records)
            decoded.unknown.extend(unknown)
            continue
        if frame.kind == LOGS:
            shape = shape_of(frame.payload)
            shape.check(_LINE_DEPTH, allowed.request_lines - len(decoded.lines), "lines")
            take(shape.read_bytes)
            lines, unknown = decode_lines(frame.payload, project, allowed.request_lines - len(decoded.lines))
            decoded.lines.extend(lines)
            decoded.unknown.extend(unknown)
            continue
        batch = _samples(frame.payload, project, allowed.request_series - series, known=known)
        series += len(batch.series)
        decoded.batches.append(batch)
    return decoded


def _frames(body: bytes, limits: Limits, take: Take, *, known: bool) -> Iterator[_Frame]:
    at, unpacked = 0, 0
    while at < len(body):
        if len(body) - at < _HEADER.size:
            raise InvalidRequestError(f"the body ends inside the header of the frame at byte {at}", "body")
        magic, version, kind, codec, zero, sent, size, checksum = _HEADER.unpack_from(body, at)
        _check_header(magic, version, kind, codec, zero)
        _check_sizes(sent, size, limits.decoded_bytes - unpacked)
        if known and (kind != SAMPLES or size > _MOMENT):
            raise NotAtOnceError
        at += _HEADER.size
        if sent > len(body) - at:
            raise InvalidRequestError(
                f"the body ends {sent - (len(body) - at)} bytes before the frame that it holds", "body"
            )
        packed = body[at : at + sent]
        if zlib.crc32(packed) != checksum:
            raise InvalidRequestError(f"the checksum of the frame at byte {at - _HEADER.size} does not hold", "frame")
        at += sent
        unpacked += size
        # The payload, and the columns that samples are read into and joined in.
        take(size if kind != SAMPLES else int(_COLUMNS * size))
        yield _Frame(kind, _unpack(packed, codec, size))


def _check_header(magic: bytes, version: int, kind: int, codec: int, zero: bytes) -> None:
    if magic != MAGIC:
        raise InvalidRequestError("a frame must begin with JM", "frame")
    if version != VERSION:
        raise InvalidRequestError(f"frame version {version} is unknown: this server reads version {VERSION}", "frame")
    if kind not in (SAMPLES, RECORDS, LOGS):
        raise InvalidRequestError(f"frame kind {kind} is unknown: 1 is samples, 2 is records, 3 is logs", "frame")
    if codec not in (NONE, ZLIB, ZSTD):
        raise InvalidRequestError(f"codec {codec} is unknown: 0 is none, 1 is zlib, 2 is Zstandard", "frame")
    if any(zero):
        raise InvalidRequestError("bytes 5 to 7 of a frame's header must be zero", "frame")


def _check_sizes(sent: int, size: int, left: int) -> None:
    if sent > MAX_SENT:
        raise LimitExceededError(f"a frame may have {MAX_SENT} bytes as sent, this one says {sent}", "frame")
    if size > min(MAX_UNPACKED, left):
        raise LimitExceededError(
            f"the frames of a body may have {left} more bytes after decompression, this one says {size}", "frame"
        )
    if sent == 0 or size == 0:
        raise InvalidRequestError("a frame must not be empty", "frame")


def _unpack(packed: bytes, codec: int, size: int) -> bytes:
    if codec == NONE:
        payload = packed
    elif codec == ZLIB:
        payload = _unpack_zlib(packed, size)
    else:
        payload = _unpack_zstd(packed, size)
    if len(payload) != size:
        raise InvalidRequestError(f"a frame says that it holds {size} bytes, it holds {len(payload)}", "frame")
    return payload


def _unpack_zlib(packed: bytes, size: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        # One byte more than declared is enough to see that there is more.
        payload = unpacker.decompress(packed, size + 1)
    except zlib.error as error:
        raise InvalidRequestError(f"a frame's zlib data is damaged: {error}", "frame") from error
    if len(payload) <= size and not unpacker.eof:
        raise InvalidRequestError("a frame's zlib data ends too early", "frame")
    if unpacker.unused_data:
        raise InvalidRequestError("a frame has bytes after its zlib data", "frame")
    return payload


def _unpack_zstd(packed: bytes, size: int) -> bytes:
    try:
        # The library takes memory for the size that the data itself declares, so that one is looked at first.
        declared = zstandard.frame_content_size(packed)
        if declared not in (-1, size):
            raise InvalidRequestError(f"a frame says that it holds {size} bytes, its data says {declared}", "frame")
        unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
        return unpacker.decompress(packed, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidRequestError(f"a frame's Zstandard data is damaged: {error}", "frame") from error


def _records(payload: bytes) -> tuple[Records, tuple[str, ...]]:
    try:
        records, unknown = decode_known(payload, Records)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_record(error) from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a frame of records is not UTF-8", "records") from error
    return check_records(records), unknown


def _samples(payload: bytes, project: str, series_left: int, *, known: bool) -> SampleBatch:
    if len(payload) < _COUNTS.size:
        raise InvalidRequestError("a frame of samples is shorter than its two counts", "frame")
    series_count, sample_count = _COUNTS.unpack_from(payload)
    if series_count > series_left:
        raise LimitExceededError(
            f"a request may name {series_left} more series here, this frame says {series_count}", "series"
        )
    # A descriptor takes at least its length and eight empty texts; a count takes 4 bytes, a sample 16.
    columns = 4 * series_count + 16 * sample_count
    if _COUNTS.size + series_count * (_LENGTH.size + _FIELDS * _SHORT.size) + columns > len(payload):
        raise InvalidRequestError(
            f"a frame of {len(payload)} bytes cannot hold {series_count} series and {sample_count} samples", "frame"
        )
    at = len(payload) - columns
    section = _section(payload, at, series_count, project, known=known)
    counts = np.frombuffer(payload, "<u4", series_count, at)
    if int(counts.sum(dtype=np.uint64)) != sample_count:
        raise InvalidRequestError(f"the counts of the series do not add up to {sample_count}", "series")
    at += 4 * series_count
    times = np.frombuffer(payload, "<i8", sample_count, at).astype(np.int64)
    values = np.frombuffer(payload, "<f8", sample_count, at + 8 * sample_count).astype(np.float64)
    places = np.arange(series_count, dtype=np.uint32) if section.places is None else section.places
    return listed(section.series, np.repeat(places, counts), times, values)


def _section(payload: bytes, end: int, count: int, project: str, *, known: bool) -> Section:
    """The series of a frame, whose descriptors reach to ``end``."""
    data = payload[: _LENGTH.size] + payload[_COUNTS.size : end]
    found = SECTIONS.find(project, data)
    if found is not None:
        return found
    if known:
        raise NotAtOnceError
    series, at = _descriptors(payload, count, project)
    if at != end:
        raise InvalidRequestError(
            f"{len(payload) - end} bytes must follow the series of a frame, {len(payload) - at} do", "frame"
        )
    return SECTIONS.keep(project, data, series)


def _descriptors(payload: bytes, count: int, project: str) -> tuple[list[Series], int]:
    at = _COUNTS.size
    series: list[Series] = []
    for _ in range(count):
        if len(payload) - at < _LENGTH.size:
            raise InvalidRequestError("a frame ends inside its series", "series")
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        if length > min(len(payload) - at, _MAX_DESCRIPTOR):
            raise InvalidRequestError(f"the descriptor of a series says {length} bytes, which is too long", "series")
        series.append(descriptor(project, payload[at : at + length]))
        at += length
    return series, at


def descriptor(project: str, data: bytes) -> Series:
    """The series that a descriptor names; an empty project is ``project``. The same short bytes are read once."""
    return _cached(project, data) if len(data) <= _CACHED_BYTES else _series(project, data)


@lru_cache(maxsize=_CACHED_SERIES)
def _cached(project: str, data: bytes) -> Series:
    end = _SHORT.size + int.from_bytes(data[: _SHORT.size], "little")
    try:
        # Many metrics are of one place: what follows the metric is read and checked once.
        return at_place(_metric(data[_SHORT.size : end]), _place(project, data[end:]))
    except (InvalidRequestError, UnicodeDecodeError):
        return _series(project, data)  # which says what is wrong with the whole


@lru_cache(maxsize=_CACHED_METRICS)
def _metric(text: bytes) -> str:
    return check_series(Series(text.decode())).metric


@lru_cache(maxsize=_CACHED_PLACES)
def _place(project: str, rest: bytes) -> Series:
    """The series of some metric whose descriptor goes on like that."""
    return _series(project, _ANY_METRIC + rest)


def _series(project: str, data: bytes) -> Series:
    texts = _texts(data)
    if len(texts) < _FIELDS or len(texts) % 2 or len(texts) > _FIELDS + 2 * MAX_LABELS:
        raise InvalidRequestError(
            f"a series is described by {_FIELDS} texts and up to {MAX_LABELS} pairs for labels, not {len(texts)} texts",
            "series",
        )
    metric, named, cluster, node, device, job, replica, attempt = texts[:_FIELDS]
    # isdigit alone lets through the digits of other scripts.
    if attempt and not (attempt.isascii() and attempt.isdigit() and len(attempt) <= 10):
        raise InvalidRequestError(f"attempt {attempt[:32]!r} is not a whole number", "attempt")
    labels = tuple(zip(texts[_FIELDS::2], texts[_FIELDS + 1 :: 2], strict=True))
    return check_series(
        Series(metric, named or project, cluster, node, device, job, replica, int(attempt or 0), labels)
    )


def _texts(data: bytes) -> list[str]:
    texts: list[str] = []
    at = 0
    while at < len(data):
        if len(data) - at < _SHORT.size:
            raise InvalidRequestError("the descriptor of a series ends inside a length", "series")
        (length,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        if length > len(data) - at:
            raise InvalidRequestError("the descriptor of a series ends inside a text", "series")
        try:
            texts.append(data[at : at + length].decode())
        except UnicodeDecodeError as error:
            raise InvalidRequestError("the descriptor of a series is not UTF-8", "series") from error
        at += length
    return texts
