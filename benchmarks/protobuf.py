"""Encoder of bodies of Prometheus remote write 1.0, as fast as copying an array."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from cramjam import snappy
from numpy.typing import NDArray

from benchmarks.data import Data, concatenated

HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_STAMP = 6
"""Bytes of a present time, in epoch ms, as a varint."""
_SAMPLE = 2 + 1 + 8 + 1 + _STAMP
"""Bytes of an encoded sample: tag and length, tag and value, tag and time."""


class RemoteTemplate:
    """Body with one sample of each series, encoded once. ``patch`` replaces the time and the values.

    Not thread-safe.
    """

    def __init__(self, series: Sequence[Mapping[str, str]]) -> None:
        sample = bytes([0x12, _SAMPLE - 2, 0x09]) + bytes(8) + b"\x10" + varint(1 << 41)
        text, starts = concatenated([field(1, labels(one) + sample) for one in series])
        ends = np.append(starts[1:], len(text))
        self._body = np.frombuffer(bytearray(text), np.uint8)
        self._value = (ends - _STAMP - 9)[:, None] + np.arange(8)
        self._time = (ends - _STAMP)[:, None] + np.arange(_STAMP)

    def patch(self, time_ms: int, values: NDArray[np.float64]) -> bytes:
        """Return the compressed body with a sample of every series at ``time_ms``."""
        self._body[self._value] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
        self._body[self._time] = np.frombuffer(varint(time_ms), np.uint8)
        return bytes(snappy.compress_raw(self._body.tobytes()))


def bodies(data: Data, samples_per_series: int = 200) -> Iterator[bytes]:
    """Yield bodies with all samples in the order of time. Each body has samples of every series."""
    heads = [labels(names.labels) for names in data.names()]
    for start in range(0, len(data.time), samples_per_series):
        stamps = data.time[start : start + samples_per_series]
        points = np.empty((len(stamps), _SAMPLE), np.uint8)
        points[:, :3] = (0x12, _SAMPLE - 2, 0x09)
        points[:, 11] = 0x10
        points[:, 12:] = [list(varint(stamp)) for stamp in stamps.tolist()]
        parts = []
        for series, head in enumerate(heads):
            values = np.ascontiguousarray(data.value[series, start : start + len(stamps)], "<f8")
            points[:, 3:11] = values.view(np.uint8).reshape(-1, 8)
            parts.append(field(1, head + points.tobytes()))
        yield bytes(snappy.compress_raw(b"".join(parts)))


def labels(names: Mapping[str, str]) -> bytes:
    """Encode the labels of a series in the order of ``names``."""
    return b"".join(field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in names.items())


def varint(value: int) -> bytes:
    """Encode an integer of at least 0 as a varint: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    """Encode a length-delimited field."""
    return bytes([number << 3 | 2]) + varint(len(data)) + data
