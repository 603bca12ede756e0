"""Decodes the native wire format: the bytes of a request body to sample batches, records and log lines.

See ``docs/reference/wire-format.md``. Every part is checked before use: a length before memory is allocated for it, the
checksum before the payload is unpacked, the size while it is unpacked. Errors are InvalidRequestError
(LimitExceededError for content that is merely too large). They name the part: ``body``, ``frame``, ``series``,
``time``, ``value``, ``records``, ``lines`` or the field of a descriptor.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import zstandard

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.kernel import samples as kernel
from jobmeter.kernel.samples import ScannedSamples
from jobmeter.model.batch import SampleBatch, Uint32s
from jobmeter.model.log_batch import LogBatch
from jobmeter.model.memory import Take, reserve_unlimited
from jobmeter.model.record import Records, check_records, make_record_error
from jobmeter.model.series import DEFAULT_PROJECT, MAX_LABELS, Series, check_series, make_at_place
from jobmeter.model.series_table import SeriesTable
from jobmeter.settings import Limits
from jobmeter.wire.json_shape import count_json
from jobmeter.wire.native.frame import HEADER, MAGIC, MAX_PLAIN, MAX_SENT, VERSION, Codec, FrameKind
from jobmeter.wire.native.lenient_json import decode_lenient
from jobmeter.wire.native.log_columns import decode_lines
from jobmeter.wire.native.series_lists import ListDigester, ListedSeries, SeriesListCache

SAMPLES, RECORDS, LOGS = map(int, FrameKind)
NONE, ZLIB, ZSTD = map(int, Codec)

_COUNTS = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_SHORT = struct.Struct("<H")
_FIELDS = 8  # metric, project, cluster, node, device, job, replica, attempt
_MAX_DESCRIPTOR = 64 * 1024
SMALL_BYTES = 256 * 1024
"""Largest frame in bytes that the event loop unpacks itself, and most bytes of a small body's columns."""
_CHECKED = 5 * 1024
"""Most bytes for which ``zlib`` hashes without releasing the GIL."""


_RECORD_DEPTH, _LINE_DEPTH = 2, 4
"""JSON depths at which the records and the lines of a frame begin."""
_COLUMNS = 3.5
"""Copies of a samples payload in memory: as received, in columns, and joined with other batches."""


class Decoded(msgspec.Struct, frozen=True, eq=False):
    """The content of a body, in the order of its frames. ``unknown`` names fields and words that were ignored."""

    batches: list[SampleBatch]
    records: list[Records]
    line_batches: list[LogBatch]
    unknown: list[str] = msgspec.field(default_factory=list)

    @property
    def lines(self) -> LogBatch:
        """The lines of all frames, in their order."""
        return LogBatch.concatenate(self.line_batches)


class FrameColumns(msgspec.Struct, array_like=True, frozen=True):
    """Samples of a frame without its list of series, for another process that has the list.

    ``digest`` identifies the list's bytes, ``series`` is the list's length. ``counts`` uint32[series] are the samples
    of each series; empty if each has one. ``time`` int64[n], ``value`` float64[n], ``span`` and ``extremes`` as in
    ``SampleBatch``.
    """

    digest: bytes
    series: int
    counts: bytes
    time: bytes
    value: bytes
    span: tuple[int, int] | None
    extremes: tuple[float, float] | None


class _Head(NamedTuple):
    """The header of a frame; its payload begins at ``at``."""

    at: int
    kind: int
    codec: int
    sent: int
    size: int
    checksum: int


class _Layout(NamedTuple):
    """A payload of samples: counts of series and samples, and the end and the bytes of the descriptors."""

    series: int
    samples: int
    end: int
    key: memoryview


def decode(
    body: bytes,
    project: str = DEFAULT_PROJECT,
    limits: Limits | None = None,
    take: Take = reserve_unlimited,
    cache: SeriesListCache | None = None,
) -> Decoded:
    """Decode all frames of a body; ``project`` replaces an empty project of a descriptor or a stream.

    ``jobmeter.ingest`` validates times and values, not this function. ``take`` is called with the bytes that each frame
    is about to need, and may raise. ``cache`` has the lists of series of earlier bodies.
    """
    allowed = limits or Limits()
    cache = SeriesListCache(SeriesTable()) if cache is None else cache
    decoded = Decoded([], [], [])
    series_left, records_left = allowed.request_series, allowed.request_records
    lines_left = allowed.request_lines
    for head in _heads(body, allowed):
        payload = _payload(body, head, take)
        if head.kind == SAMPLES:
            layout = _layout(payload, series_left)
            digest = cache.digester.digest(layout.key)
            found = cache.get(project, digest, layout.series)
            if found is None:
                found = cache.put(project, digest, _series_of(payload, layout, project))
            series_left -= layout.series
            counts = np.frombuffer(payload, "<u4", layout.series, layout.end)
            decoded.batches.append(_make_batch(found, counts, _columns(payload, layout)))
        elif head.kind == RECORDS:
            shape = count_json(payload)
            shape.check(_RECORD_DEPTH, records_left, "records")
            records_left -= shape.opened[_RECORD_DEPTH]
            take(shape.recorded_bytes)
            records, unknown = _records(payload)
            decoded.records.append(records)
            decoded.unknown.extend(unknown)
        else:
            shape = count_json(payload)
            shape.check(_LINE_DEPTH, lines_left, "lines")
            take(shape.read_bytes)
            lines, unknown = decode_lines(payload, project, lines_left)
            lines_left -= len(lines)
            decoded.line_batches.append(lines)
            decoded.unknown.extend(unknown)
    return decoded


def read_columns(
    body: bytes, limits: Limits, digester: ListDigester, most_bytes: int = SMALL_BYTES
) -> list[FrameColumns] | None:
    """Read a body of a few samples without its lists of series; None for any other body.

    ``digester`` has the key of the process that has the lists. ``most_bytes`` bounds the columns of all frames. Raises
    as ``decode`` for invalid content.
    """
    frames: list[FrameColumns] = []
    series_left, bytes_left = limits.request_series, most_bytes
    for head in _heads(body, limits):
        if head.kind != SAMPLES or head.size > SMALL_BYTES:
            return None
        payload = _payload(body, head)
        layout = _layout(payload, series_left)
        series_left -= layout.series
        bytes_left -= len(payload) - layout.end
        if bytes_left < 0:
            return None
        columns = _columns(payload, layout)
        counts = b"" if columns.single else payload[layout.end : layout.end + 4 * layout.series]
        time, value = columns.time.tobytes(), columns.value.tobytes()
        digest = digester.digest(layout.key)
        frames.append(FrameColumns(digest, layout.series, counts, time, value, columns.span, columns.extremes))
    return frames


def resolve_columns(frames: Sequence[FrameColumns], project: str, cache: SeriesListCache) -> list[SampleBatch] | None:
    """Join columns with their lists of series; None if the cache lacks a list. ``project`` as for ``decode``."""
    batches: list[SampleBatch] = []
    for frame in frames:
        found = cache.get(project, frame.digest, frame.series)
        if found is None:
            return None
        counts = np.frombuffer(frame.counts, np.uint32)
        time, value = np.frombuffer(frame.time, np.int64), np.frombuffer(frame.value, np.float64)
        columns = ScannedSamples(time, value, frame.span, frame.extremes, single=not frame.counts)
        batches.append(_make_batch(found, counts, columns))
    return batches


def _heads(body: bytes, limits: Limits) -> Iterator[_Head]:
    """Yield the headers of the frames, each checked before it is yielded."""
    if len(body) > limits.body_bytes:
        raise LimitExceededError(f"a body may have at most {limits.body_bytes} bytes, this one has {len(body)}", "body")
    if not body:
        raise InvalidRequestError("the body is empty: at least one frame is needed", "body")
    at, left = 0, limits.decoded_bytes
    while at < len(body):
        if len(body) - at < HEADER.size:
            raise InvalidRequestError(f"the body ends inside the header of the frame at byte {at}", "body")
        magic, version, kind, codec, zero, sent, size, checksum = HEADER.unpack_from(body, at)
        _check_header(magic, version, kind, codec, zero)
        _check_sizes(sent, size, left)
        at += HEADER.size
        if sent > len(body) - at:
            raise InvalidRequestError(
                f"the body ends {sent - (len(body) - at)} bytes before the frame that it holds", "body"
            )
        yield _Head(at, kind, codec, sent, size, checksum)
        at += sent
        left -= size


def _payload(body: bytes, head: _Head, take: Take | None = None) -> bytes:
    packed = body[head.at : head.at + head.sent]
    if _checksum(packed) != head.checksum:
        raise InvalidRequestError(f"the checksum of the frame at byte {head.at - HEADER.size} is wrong", "frame")
    if take is not None:
        # The payload, its columns, and the columns joined with other batches.
        take(head.size if head.kind != SAMPLES else int(_COLUMNS * head.size))
    return _unpack(packed, head.codec, head.size)


def _checksum(data: bytes) -> int:
    """Return the CRC-32.

    Small payloads are hashed in pieces so small that ``zlib`` keeps the GIL: waiting for the GIL can take much longer
    than the hash.
    """
    if len(data) > SMALL_BYTES:
        return zlib.crc32(data)
    check, view = 0, memoryview(data)
    for at in range(0, len(data), _CHECKED):
        check = zlib.crc32(view[at : at + _CHECKED], check)
    return check


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
        raise LimitExceededError(f"a frame may have at most {MAX_SENT} bytes as sent, not {sent}", "frame")
    if size > min(MAX_PLAIN, left):
        raise LimitExceededError(
            f"the frames of a body may have at most {left} more bytes after decompression, not {size}", "frame"
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
        raise InvalidRequestError(f"a frame declares {size} bytes, it has {len(payload)}", "frame")
    return payload


def _unpack_zlib(packed: bytes, size: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        # One byte more than declared is enough to detect that there is more.
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
        # The library allocates the size that the data itself declares, so that size is checked first.
        declared = zstandard.frame_content_size(packed)
        if declared not in (-1, size):
            raise InvalidRequestError(f"a frame declares {size} bytes, its data {declared}", "frame")
        unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
        return unpacker.decompress(packed, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidRequestError(f"a frame's Zstandard data is damaged: {error}", "frame") from error


def _records(payload: bytes) -> tuple[Records, tuple[str, ...]]:
    try:
        records, unknown = decode_lenient(payload, Records)
    except (msgspec.DecodeError, RecursionError) as error:
        raise make_record_error(error) from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a frame of records is not UTF-8", "records") from error
    return check_records(records), unknown


def _layout(payload: bytes, series_left: int) -> _Layout:
    if len(payload) < _COUNTS.size:
        raise InvalidRequestError("a frame of samples is shorter than its two counts", "frame")
    series_count, sample_count = _COUNTS.unpack_from(payload)
    if series_count > series_left:
        raise LimitExceededError(
            f"a request may name at most {series_left} more series here, this frame declares {series_count}", "series"
        )
    # A descriptor takes at least its length and eight empty texts; a count takes 4 bytes, a sample 16.
    columns = 4 * series_count + 16 * sample_count
    if _COUNTS.size + series_count * (_LENGTH.size + _FIELDS * _SHORT.size) + columns > len(payload):
        raise InvalidRequestError(
            f"a frame of {len(payload)} bytes cannot hold {series_count} series and {sample_count} samples", "frame"
        )
    end = len(payload) - columns
    return _Layout(series_count, sample_count, end, memoryview(payload)[_COUNTS.size : end])


def _columns(payload: bytes, layout: _Layout) -> ScannedSamples:
    columns = kernel.copy_columns(payload, layout.end, layout.series, layout.samples)
    if columns is None:
        raise InvalidRequestError(f"the counts of the series do not add up to {layout.samples}", "series")
    return columns


def _make_batch(found: ListedSeries, counts: Uint32s, columns: ScannedSamples) -> SampleBatch:
    """Build a batch; ``counts`` are the samples of each series, and matter if ``columns`` are not single."""
    index, ordered = found.places, None
    if not columns.single:
        index = np.repeat(index, counts)
    elif found.once and len(columns.time):
        ordered = True
    keys, span = found.series.keys, columns.span
    return SampleBatch(found.series, index, columns.time, columns.value, keys, span, ordered, columns.extremes)


def _series_of(payload: bytes, layout: _Layout, project: str) -> list[Series]:
    """Return the series that the descriptors of a frame name."""
    series, at = _descriptors(payload, layout.series, project)
    if at != layout.end:
        raise InvalidRequestError(
            f"{len(payload) - layout.end} bytes must follow the series of a frame, {len(payload) - at} do", "frame"
        )
    return series


def _descriptors(payload: bytes, count: int, project: str) -> tuple[list[Series], int]:
    at = _COUNTS.size
    series: list[Series] = []
    places: dict[bytes, Series] = {}
    metrics: dict[bytes, str] = {}
    for _ in range(count):
        if len(payload) - at < _LENGTH.size:
            raise InvalidRequestError("a frame ends inside its series", "series")
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        if length > min(len(payload) - at, _MAX_DESCRIPTOR):
            raise InvalidRequestError(
                f"the descriptor of a series declares {length} bytes, which is too long", "series"
            )
        data = payload[at : at + length]
        at += length
        # Many metrics share the rest of the descriptor: the part behind the metric is read and checked once.
        end = _SHORT.size + int.from_bytes(data[: _SHORT.size], "little")
        metric, place = metrics.get(data[:end]), places.get(data[end:])
        one = _series(project, data) if metric is None or place is None else make_at_place(metric, place)
        metrics[data[:end]], places[data[end:]] = one.metric, one
        series.append(one)
    return series, at


def _series(project: str, data: bytes) -> Series:
    texts = _texts(data)
    if len(texts) < _FIELDS or len(texts) % 2 or len(texts) > _FIELDS + 2 * MAX_LABELS:
        raise InvalidRequestError(
            f"a series is described by {_FIELDS} texts and up to {MAX_LABELS} pairs for labels, not {len(texts)} texts",
            "series",
        )
    metric, named, cluster, node, device, job, replica, attempt = texts[:_FIELDS]
    # isdigit alone accepts the digits of other scripts.
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
