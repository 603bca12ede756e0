"""Encoder of frames of the native protocol (docs/reference/wire-format.md), as fast as copying an array."""

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Data, Names

_SAMPLES, _PLAIN, _ZLIB = 1, 0, 1
_BODY_SAMPLES = 500_000


class NativeTemplate:
    """Frame with one sample of each series, encoded once. ``patch`` replaces the time and the values.

    With ``packed`` the frame is compressed with zlib, as agents do. Not thread-safe.
    """

    def __init__(self, series: Sequence[Names], *, packed: bool = False) -> None:
        count = len(series)
        head = struct.pack("<II", count, count) + b"".join(map(_descriptor, series)) + np.ones(count, "<u4").tobytes()
        self._packed = packed
        self._payload = bytearray(head + bytes(16 * count))
        self._time = np.frombuffer(self._payload, "<i8", count, len(head))
        self._value = np.frombuffer(self._payload, "<f8", count, len(head) + 8 * count)

    def patch(self, time_ms: int, values: NDArray[np.float64]) -> bytes:
        """Return the frame with a sample of every series at ``time_ms``."""
        self._time[:] = time_ms
        self._value[:] = values
        return _frame(bytes(self._payload), packed=self._packed)


def bodies(data: Data) -> list[bytes]:
    """Return bodies with all samples. Each body has all samples of some series."""
    return bodies_of(data.names(), data.time, data.value)


def bodies_of(names: Sequence[Names], time: NDArray[np.int64], value: NDArray[np.float64]) -> list[bytes]:
    """Return bodies with ``value[s, t]`` of the series ``s`` at ``time[t]`` (ms).

    Each body has all samples of some series.
    """
    count = len(time)
    per_body = max(1, _BODY_SAMPLES // count)
    stamps = time.astype("<i8").tobytes()
    result = []
    for first in range(0, len(names), per_body):
        chosen = names[first : first + per_body]
        payload = (
            struct.pack("<II", len(chosen), len(chosen) * count)
            + b"".join(map(_descriptor, chosen))
            + np.full(len(chosen), count, "<u4").tobytes()
            + stamps * len(chosen)
            + value[first : first + per_body].astype("<f8").tobytes()
        )
        result.append(_frame(payload, packed=False))
    return result


def _frame(payload: bytes, *, packed: bool) -> bytes:
    sent = zlib.compress(payload, 1) if packed else payload
    codec = _ZLIB if packed else _PLAIN
    return struct.pack("<2sBBB3xIII", b"JM", 1, _SAMPLES, codec, len(sent), len(payload), zlib.crc32(sent)) + sent


def _descriptor(names: Names) -> bytes:
    texts = [names.metric, "", "", names.node, names.device, names.job, names.replica, "0"]
    strings = b"".join(struct.pack("<H", len(text.encode())) + text.encode() for text in texts)
    return struct.pack("<I", len(strings)) + strings
