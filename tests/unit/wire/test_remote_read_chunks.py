"""Tests of frames of XOR chunks, read by a decoder written from the description of the format."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.wire.protobuf import iterate_fields, read_varint
from jobmeter.wire.remote_read import CHUNK_SAMPLES, decode, encode_chunks, encode_frames


class Bits:
    """Bits of a chunk, the highest of each byte first."""

    def __init__(self, data: bytes) -> None:
        self._text = "".join(f"{byte:08b}" for byte in data)
        self._at = 0

    def take(self, count: int) -> int:
        found = self._text[self._at : self._at + count]
        assert len(found) == count, "the chunk ends too early"
        self._at += count
        return int(found, 2) if count else 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(8)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value


def signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number > 1 << (bits - 1) or (bits == 64 and number >> 63) else number


def samples(chunk: bytes) -> list[tuple[int, int]]:
    """Return the times and the bits of the values."""
    bits = Bits(chunk)
    found: list[tuple[int, int]] = []
    count = bits.take(16)
    interval = leading = trailing = 0
    for number in range(count):
        if number == 0:
            zigzag = bits.varint()
            found.append(((zigzag >> 1) ^ -(zigzag & 1), bits.take(64)))
            continue
        time, value = found[-1]
        if number == 1:
            interval = bits.varint()
        elif bits.take(1):
            size = next((size for size in (14, 17, 20) if not bits.take(1)), 64)
            interval += signed(bits.take(size), size)
        if bits.take(1):
            if bits.take(1):
                leading, width = bits.take(5), bits.take(6) or 64
                trailing = 64 - leading - width
            value ^= bits.take(64 - leading - trailing) << trailing
        found.append((time + interval, value))
    return found


INTERVALS = st.one_of(
    st.just(15_000),
    st.integers(1, 100),
    st.integers(14_950, 15_050),
    st.sampled_from(
        [15_000 + sign * (1 << bits) + off for bits in (13, 16, 19) for sign in (1, 0) for off in (-1, 0, 1)]
    ),
    st.integers(1, 10**11),
)
VALUES = st.one_of(st.floats(width=64), st.integers(-5, 5).map(float), st.just(0.5))


@given(start=st.integers(0, 2 * 10**12), rows=st.lists(st.tuples(INTERVALS, VALUES), max_size=400))
def test_chunks_have_the_samples(start, rows):
    times = start + np.cumsum(np.array([interval for interval, _ in rows], np.int64))
    values = np.array([value for _, value in rows], np.float64)
    chunks = encode_chunks(times, values)
    assert len(chunks) == -(-len(rows) // CHUNK_SAMPLES)
    read = [one for chunk in chunks for one in samples(chunk)]
    assert read == list(zip(times.tolist(), values.view(np.uint64).tolist(), strict=True))


def test_a_long_series_takes_little_memory_and_has_its_samples():
    count = 240_001
    times = 1_700_000_000_000 + np.arange(count, dtype=np.int64) * 1_000
    values = np.random.default_rng(7).normal(size=count)
    tracemalloc.start()
    try:
        chunks = encode_chunks(times, values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6, "400 bytes a sample"
    assert len(chunks) == -(-count // CHUNK_SAMPLES)
    wanted = list(zip(times.tolist(), values.view(np.uint64).tolist(), strict=True))
    for place in (0, 99, 100, 101, 199, 200, len(chunks) - 1):
        first = place * CHUNK_SAMPLES
        assert samples(chunks[place]) == wanted[first : first + CHUNK_SAMPLES]


def checksum(data: bytes) -> int:
    """Compute the CRC-32C bit by bit."""
    check = 0xFFFFFFFF
    for byte in data:
        check ^= byte
        for _ in range(8):
            check = check >> 1 ^ (0x82F63B78 if check & 1 else 0)
    return check ^ 0xFFFFFFFF


def test_the_checksum_is_the_published_one():
    assert checksum(b"123456789") == 0xE3069283


@given(counts=st.lists(st.integers(1, 3_000), min_size=1, max_size=5), query=st.integers(0, 3))
def test_frames_have_series_chunks_and_checksums(counts, query):
    series = []
    for number, count in enumerate(counts):
        times = 1_700_000_000_000 + np.arange(count, dtype=np.int64) * 15_000
        series.append((((("__name__", "m"), ("n", str(number)))), times, np.arange(count) / 7))
    data, at = encode_frames(query, series), 0
    found: dict[bytes, int] = {}
    while at < len(data):
        size, at = read_varint(data, at, len(data))
        body = data[at + 4 : at + 4 + size]
        assert struct.unpack(">I", data[at : at + 4])[0] == checksum(body)
        at += 4 + size
        parts = {tag: (begin, content, stop) for tag, begin, content, stop in iterate_fields(body, 0, size)}
        assert (read_varint(body, parts[0x10][0] + 1, size)[0] if 0x10 in parts else 0) == query
        _, content, stop = parts[0x0A]
        inner = [(tag, body[one:two]) for tag, _, one, two in iterate_fields(body, content, stop)]
        labels = b"".join(text for tag, text in inner if tag == 0x0A)
        for chunk in (text for tag, text in inner if tag == 0x12):
            (data_of,) = (chunk[one:two] for tag, _, one, two in iterate_fields(chunk, 0, len(chunk)) if tag == 0x22)
            found[labels] = found.get(labels, 0) + len(samples(data_of))
    assert sorted(found.values()) == sorted(counts)
    assert len(found) == len(counts)


@pytest.mark.parametrize(
    ("forms", "streamed"),
    [
        (b"", False),
        (b"\x10\x00", False),
        (b"\x10\x01\x10\x00", True),
        (b"\x12\x02\x00\x01", False),
        (b"\x12\x01\x01", True),
    ],
)
def test_the_client_chooses_the_form(forms, streamed):
    assert decode(forms).streamed is streamed


def test_a_client_without_a_supported_form_is_refused():
    with pytest.raises(InvalidRequestError):
        decode(b"\x10\x05")
