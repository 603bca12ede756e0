"""The native wire format written down once more, from its description alone: what the tests send."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

FRAMES = "application/vnd.jobmeter.frames"
_NAMES = ("metric", "project", "cluster", "node", "device", "job", "replica", "attempt")


def samples(series: Sequence[tuple[Mapping[str, str], Sequence[tuple[int, float]]]]) -> bytes:
    """A frame of samples: names of each series, and its (time in ms, value) pairs."""
    points = [point for _, own in series for point in own]
    payload = struct.pack("<II", len(series), len(points))
    for names, _ in series:
        parts = [names.get(name, "0" if name == "attempt" else "") for name in _NAMES]
        text = b"".join(struct.pack("<H", len(part.encode())) + part.encode() for part in parts)
        payload += struct.pack("<I", len(text)) + text
    payload += struct.pack(f"<{len(series)}I", *(len(own) for _, own in series))
    payload += struct.pack(f"<{len(points)}q", *(time for time, _ in points))
    payload += struct.pack(f"<{len(points)}d", *(value for _, value in points))
    return frame(1, payload)


def records(body: Any) -> bytes:
    """A frame of job and node records."""
    return frame(2, json.dumps(body).encode())


def frame(kind: int, payload: bytes) -> bytes:
    sent = zlib.compress(payload)
    head = struct.pack("<2sBBB3xIII", b"JM", 1, kind, 1, len(sent), len(payload), zlib.crc32(sent))
    return head + sent
