"""Reader of docs/reference/wire-format.md without code of the package: the oracle of encoders."""

import struct
import zlib

from jobmeter.model.sample import Sample
from jobmeter.model.series import Series


def read_body(body):
    """Return [(kind, samples or JSON bytes)] of a whole body. Raises an error for trailing or wrong bytes."""
    frames, at = [], 0
    while at < len(body):
        assert body[at : at + 2] == b"JM"
        version, kind, codec = body[at + 2], body[at + 3], body[at + 4]
        assert version == 1
        assert body[at + 5 : at + 8] == b"\0\0\0"
        sent, plain, crc = struct.unpack("<III", body[at + 8 : at + 20])
        payload = body[at + 20 : at + 20 + sent]
        assert len(payload) == sent
        assert zlib.crc32(payload) == crc
        if codec == 1:
            payload = zlib.decompress(payload)
        else:
            assert codec == 0
        assert len(payload) == plain
        frames.append((kind, _samples(payload) if kind == 1 else payload))
        at += 20 + sent
    return frames


def _samples(payload):
    series_count, sample_count = struct.unpack("<II", payload[:8])
    at, all_series = 8, []
    for _ in range(series_count):
        (length,) = struct.unpack("<I", payload[at : at + 4])
        all_series.append(_series(payload[at + 4 : at + 4 + length]))
        at += 4 + length
    counts = struct.unpack(f"<{series_count}I", payload[at : at + 4 * series_count])
    at += 4 * series_count
    assert sum(counts) == sample_count
    times = struct.unpack(f"<{sample_count}q", payload[at : at + 8 * sample_count])
    at += 8 * sample_count
    values = struct.unpack(f"<{sample_count}d", payload[at : at + 8 * sample_count])
    assert at + 8 * sample_count == len(payload)
    owners = [series for series, count in zip(all_series, counts, strict=True) for _ in range(count)]
    return [Sample(*row) for row in zip(owners, times, values, strict=True)]


def _series(text):
    names, at = [], 0
    while at < len(text):
        (length,) = struct.unpack("<H", text[at : at + 2])
        names.append(text[at + 2 : at + 2 + length].decode())
        at += 2 + length
    metric, project, cluster, node, device, job, replica, attempt, *rest = names
    labels = tuple(zip(rest[::2], rest[1::2], strict=True))
    assert list(labels) == sorted(labels)
    return Series(metric, project, cluster, node, device, job, replica, int(attempt), labels)
