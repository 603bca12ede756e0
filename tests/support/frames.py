"""Encodes the native wire format, written from its documentation alone: input and expected values of tests."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import zstandard

from jobmeter.model.series import Series

FRAMES = "application/vnd.jobmeter.frames"
_NAMES = ("metric", "project", "cluster", "node", "device", "job", "replica")

Points = Sequence[tuple[int, float]]
"""Time in ms and value."""
Row = tuple[Series, Points]
Named = tuple[Mapping[str, str], Points]
"""Names of a series, and its samples."""


def row(
    metric: str, points: Points, job: str = "job", replica: str = "worker-0", project: str = "", **names: Any
) -> Row:
    """Return a series and its samples. Without a project, the series belongs to the project of the key."""
    return Series(metric, project=project, job=job, replica=replica, **names), points


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<H", len(data)) + data


def descriptor(series: Series | Mapping[str, str], project: str | None = None) -> bytes:
    if isinstance(series, Series):
        names = {name: str(getattr(series, name)) for name in (*_NAMES, "attempt")}
        labels = series.labels
    else:
        names, labels = {"attempt": "0", **series}, ()
    if project is not None:
        names["project"] = project
    parts = [names.get(name, "") for name in (*_NAMES, "attempt")]
    return b"".join(map(text, [*parts, *(part for label in labels for part in label)]))


def payload(rows: Sequence[Row] | Sequence[Named]) -> bytes:
    """Encode the payload of a frame of samples."""
    points = [point for _, own in rows for point in own]
    out = struct.pack("<II", len(rows), len(points))
    for series, _ in rows:
        described = descriptor(series)
        out += struct.pack("<I", len(described)) + described
    out += struct.pack(f"<{len(rows)}I", *(len(own) for _, own in rows))
    out += struct.pack(f"<{len(points)}q", *(time for time, _ in points))
    return out + struct.pack(f"<{len(points)}d", *(value for _, value in points))


def samples(rows: Sequence[Row] | Sequence[Named]) -> bytes:
    """Encode a frame of samples."""
    return frame(payload(rows), codec=1)


def records(body: Any) -> bytes:
    """Encode a frame of job and node records."""
    return frame(json.dumps(body).encode(), kind=2, codec=1)


def frame(payload: bytes, kind: int = 1, codec: int = 0, **header: object) -> bytes:
    """Encode a frame. ``codec`` is 0 (uncompressed), 1 (zlib) or 2 (zstandard). ``header`` replaces header fields."""
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
