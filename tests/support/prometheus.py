"""Encodes remote write requests straight from the published schemas, with Snappy compression."""

import struct
from collections.abc import Sequence

import cramjam

Labels = Sequence[tuple[str, str]]
Samples = Sequence[tuple[float, int]]
"""Values and their times."""


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def part(number: int, content: bytes) -> bytes:
    """Encode a bytes field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def sample(value: float, time: int) -> bytes:
    """Encode a Sample like Go, which omits zero values."""
    bits = struct.pack("<d", value)
    body = b"\x09" + bits if bits != bytes(8) else b""
    return body + (b"\x10" + varint(time % 2**64) if time else b"")


def label(name: str, value: str) -> bytes:
    return part(1, name.encode()) + part(2, value.encode())


def series_1(labels: Labels, samples: Samples) -> bytes:
    return b"".join(part(1, label(*one)) for one in labels) + b"".join(part(2, sample(*one)) for one in samples)


def request_1(series: Sequence[tuple[Labels, Samples]]) -> bytes:
    return b"".join(part(1, series_1(*one)) for one in series)


def request_2(series: Sequence[tuple[Labels, Samples]]) -> bytes:
    symbols = {"": 0}
    rows = []
    for labels, samples in series:
        refs = [symbols.setdefault(text, len(symbols)) for pair in labels for text in pair]
        rows.append(part(1, b"".join(map(varint, refs))) + b"".join(part(2, sample(*one)) for one in samples))
    return b"".join(part(4, text.encode()) for text in symbols) + b"".join(part(5, row) for row in rows)


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


HEADERS_1 = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
HEADERS_2 = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    "X-Prometheus-Remote-Write-Version": "2.0.0",
}
