"""Tests of the benchmark's request bodies, read by the server's own decoder or by the specification alone."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from benchmarks import native, protobuf
from benchmarks.data import job_names, random_values
from cramjam import snappy

from jobmeter.wire.native.decode import decode

NOW = 1_795_300_000_000


@pytest.mark.parametrize("packed", [False, True])
def test_a_patched_frame_holds_the_new_times_and_values(packed):
    names = job_names("gpu.power", "train-1", 3, 8)
    template = native.NativeTemplate(names, packed=packed)
    for turn in range(3):
        values = np.round(np.random.default_rng(turn).random(len(names)) * 100, 2)
        (batch,) = decode(template.patch(NOW + turn, values)).batches
        assert [(one.metric, one.job, one.replica, one.node, one.device) for one in batch.series] == [
            (one.metric, one.job, one.replica, one.node, one.device) for one in names
        ]
        assert set(batch.time.tolist()) == {NOW + turn}
        assert batch.value.tolist() == values.tolist()


def test_an_earlier_frame_stays_as_it_was():
    template = native.NativeTemplate(job_names("gpu.power", "job", 1, 2))
    first = template.patch(NOW, np.array([1.0, 2.0]))
    template.patch(NOW + 1, np.array([3.0, 4.0]))
    assert decode(first).batches[0].value.tolist() == [1.0, 2.0]


def test_bulk_frames_hold_all_samples():
    data = random_values(NOW, 0.5, "job", 1)
    read = [batch for body in native.bodies(data) for batch in decode(body).batches]
    assert np.concatenate([batch.value for batch in read]).tolist() == data.value.ravel().tolist()
    assert np.concatenate([batch.time for batch in read]).tolist() == data.time.tolist() * 128


@pytest.mark.parametrize("labels", [2, 30])
def test_a_patched_remote_write_holds_the_new_times_and_values(labels):
    # Thirty labels make the length of a series exceed one byte.
    series = [{"__name__": "m", **{f"l{at:02}": f"{one}" * (one + 1) for at in range(labels)}} for one in range(7)]
    template = protobuf.RemoteTemplate(series)
    for turn in range(3):
        values = np.round(np.random.default_rng(turn).random(7) * 100, 2)
        written = list(write_request(template.patch(NOW + turn * 10_000, values)))
        assert written == [
            (names, [(NOW + turn * 10_000, value)]) for names, value in zip(series, values.tolist(), strict=True)
        ]


def test_remote_write_of_everything_is_in_the_order_of_time():
    data = random_values(NOW, 0.5, "job", 1)
    bodies = [list(write_request(body)) for body in protobuf.bodies(data, samples_per_series=50)]
    assert [len(body) for body in bodies] == [128, 128, 128]
    for at, names in enumerate(data.names()):
        assert {body[at][0]["replica"] for body in bodies} == {names.replica}
        points = [point for body in bodies for point in body[at][1]]
        assert points == list(zip(data.time.tolist(), data.value[at].tolist(), strict=True))


def write_request(body: bytes) -> Iterator[tuple[dict[str, str], list[tuple[int, float]]]]:
    """Parse the series of a WriteRequest 1.0. See https://prometheus.io/docs/specs/prw/remote_write_spec/."""
    for number, series in messages(bytes(snappy.decompress_raw(body))):
        assert number == 1
        names, points = {}, []
        for part, data in messages(series):
            inner = dict(messages(data))
            if part == 1:
                names[inner[1].decode()] = inner[2].decode()
            else:
                points.append((inner[2], struct.unpack("<d", inner[1])[0]))
        yield names, points


def messages(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message by number: bytes, eight bytes, or a whole number."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
        else:
            size, at = (8, at) if tag & 7 == 1 else varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
