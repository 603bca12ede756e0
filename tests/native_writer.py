"""The native wire format, written from its documentation and nothing else: what the decoder is tested against."""

import struct
import zlib
from collections.abc import Sequence

import zstandard

from jobmeter.model.series import Series


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<H", len(data)) + data


def descriptor(series: Series, project: str | None = None) -> bytes:
    named = series.project if project is None else project
    names = [series.metric, named, series.cluster, series.node, series.device, series.job, series.replica]
    names.append(str(series.attempt))
    for name, value in series.labels:
        names += [name, value]
    return b"".join(text(name) for name in names)


def samples(rows: Sequence[tuple[Series, Sequence[tuple[int, float]]]]) -> bytes:
    total = sum(len(points) for _, points in rows)
    payload = struct.pack("<II", len(rows), total)
    for series, _ in rows:
        described = descriptor(series)
        payload += struct.pack("<I", len(described)) + described
    for _, points in rows:
        payload += struct.pack("<I", len(points))
    for _, points in rows:
        payload += b"".join(struct.pack("<q", time) for time, _ in points)
    for _, points in rows:
        payload += b"".join(struct.pack("<d", value) for _, value in points)
    return payload


def frame(payload: bytes, kind: int = 1, codec: int = 0, **header: object) -> bytes:
    packed = payload
    if codec:
        packed = zlib.compress(payload) if codec == 1 else zstandard.ZstdCompressor().compress(payload)
    fields: dict[str, object] = {
        "magic": b"JM",
        "version": 1,
        "kind": kind,
        "codec": codec,
        "zero": b"\0\0\0",
        "sent": len(packed),
        "size": len(payload),
        "checksum": zlib.crc32(packed),
        **header,
    }
    return struct.pack("<2sBBB3sIII", *fields.values()) + packed
