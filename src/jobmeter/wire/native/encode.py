"""Encodes samples and records as frames for agents and ``jobmeter run``, with the standard library and msgspec only."""

import math
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.record import Records
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.wire.native.frame import Codec, Frame, FrameKind, write_frame

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")


def make_samples_frame(samples: Iterable[Sample]) -> bytes:
    """Return one frame with these samples, grouped by series in the order in which the series first appear."""
    return write_frame(FrameKind.SAMPLES, encode_samples(samples))


def make_records_frame(records: Records) -> bytes:
    """Return one frame with these records."""
    return write_frame(FrameKind.RECORDS, msgspec.json.encode(records))


def encode_samples(samples: Iterable[Sample]) -> bytes:
    """Return the payload of a samples frame.

    Raises InvalidRequestError for a value that is not finite or a name too long for its length field: the format can
    hold neither.
    """
    grouped: dict[Series, tuple[list[int], list[float]]] = {}
    for series, time_ms, value in samples:
        if not math.isfinite(value):
            raise InvalidRequestError(f"a sample of {series.metric} is not finite: {value}", "value")
        columns = grouped.get(series)
        if columns is None:
            grouped[series] = [time_ms], [value]
        else:
            columns[0].append(time_ms)
            columns[1].append(value)
    counts = [len(times) for times, _ in grouped.values()]
    texts = map(encode_descriptor, grouped)
    return b"".join(
        (
            struct.pack("<II", len(counts), sum(counts)),
            *(part for text in texts for part in (_U32.pack(len(text)), text)),
            struct.pack(f"<{len(counts)}I", *counts),
            _to_little_endian(array("q", chain.from_iterable(times for times, _ in grouped.values()))),
            _to_little_endian(array("d", chain.from_iterable(values for _, values in grouped.values()))),
        )
    )


def count_samples(frame: Frame) -> int:
    """Return the number of samples of a frame that Jobmeter wrote, without decoding it.

    0 for records, and for the codecs of other senders.
    """
    if frame.kind is not FrameKind.SAMPLES or frame.codec is Codec.ZSTD:
        return 0
    payload = bytes(frame.payload[: 2**16])
    head = zlib.decompressobj().decompress(payload, 8) if frame.codec is Codec.ZLIB else payload[:8]
    return int(_U32.unpack_from(head, 4)[0]) if len(head) == 8 else 0


@lru_cache(maxsize=16_384)
def encode_descriptor(series: Series) -> bytes:
    """Return the descriptor of a series: its names, each after its length."""
    names = [
        series.metric,
        series.project,
        series.cluster,
        series.node,
        series.device,
        series.job,
        series.replica,
        str(series.attempt),
    ]
    names += [part for label in series.labels for part in label]
    return b"".join(_string(name) for name in names)


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 0xFFFF:
        raise InvalidRequestError(f"a name has {len(encoded)} bytes; the format allows at most 65535", "series")
    return _U16.pack(len(encoded)) + encoded


def _to_little_endian(column: "array[int] | array[float]") -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
