import contextlib
import math
import struct
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.prometheus import label, part, request_1, request_2, sample, series_1, snappy, varint

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.memory import reserve_unlimited
from jobmeter.model.special import STALE
from jobmeter.wire.remote_write.decode import decode_1, decode_2
from jobmeter.wire.remote_write.snappy import unpack
from jobmeter.wire.remote_write.symbols import Symbols

STALE_NAN = struct.unpack("<d", struct.pack("<Q", STALE))[0]

texts = st.text(max_size=20)
times = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**42), st.just(0))
values = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.just(0.0), st.just(-0.0))
requests = st.lists(
    st.tuples(
        st.lists(st.tuples(texts, texts), max_size=5),
        st.lists(st.tuples(values, times), max_size=6),
    ),
    max_size=8,
)


def rows(written):
    """Return labels, bits of the value and time of every sample, in order."""
    bits = written.value.view(np.uint64).tolist()
    return [
        (written.labels(index), one, time)
        for index, one, time in zip(written.index.tolist(), bits, written.time.tolist(), strict=True)
    ]


def decoded_by_the_library(request):
    return [
        (list(labels), struct.unpack("<Q", struct.pack("<d", value))[0], time)
        for labels, samples in request
        for value, time in samples
    ]


@given(requests)
def test_a_request_of_either_version_is_read_as_it_was_written(request):
    assert rows(decode_1(request_1(request))) == decoded_by_the_library(request)
    assert rows(decode_2(request_2(request))) == decoded_by_the_library(request)


@given(requests)
def test_the_same_labels_have_the_same_key_in_every_request(request):
    for write, decode in ((request_1, decode_1), (request_2, partial(decode_2, symbol_cache=Symbols()))):
        first, again = decode(write(request)), decode(write([(labels, []) for labels, _ in reversed(request)]))
        assert list(first.keys) == list(again.keys)[::-1]
        by_key: dict[bytes, object] = {}
        for place, key in enumerate(first.keys):
            assert by_key.setdefault(key, first.labels(place)) == first.labels(place)
        assert len(by_key) == len({tuple(labels) for labels, _ in request})


def long_varint(number, length):
    """Encode a varint with any number of bytes. At most ten bytes are legal."""
    return bytes([*((number >> 7 * place & 127) | 128 for place in range(length - 1)), number >> 7 * (length - 1)])


@st.composite
def odd_fields(draw):
    """Draw a series unlike Prometheus' (any order of fields, unknown fields, padded lengths), and its meaning."""
    labels, samples, out = [], [], []

    def field(number, content):
        head = varint(number << 3 | 2)
        size = len(content)
        return head + (long_varint(size, draw(st.integers(3, 5))) if draw(st.booleans()) else varint(size)) + content

    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["label", "sample", "turned", "unknown", "number", "fixed"]))
        if kind == "label":
            pair = (draw(texts), draw(texts))
            labels.append(pair)
            out.append(field(1, label(*pair)))
        elif kind == "sample":
            value, time = draw(values), draw(times)
            samples.append((value, time))
            out.append(field(2, sample(value, time)))
        elif kind == "turned":  # the time before the value, and a start beside them
            value, time = draw(values), draw(times)
            samples.append((value, time))
            content = b"\x10" + varint(time % 2**64) + b"\x18\x07" + b"\x09" + struct.pack("<d", value)
            out.append(field(2, content))
        elif kind == "unknown":
            out.append(field(draw(st.integers(7, 3000)), draw(st.binary(max_size=20))))
        elif kind == "number":
            out.append(varint(9 << 3) + varint(draw(st.integers(0, 2**64 - 1))))
        else:
            out.append(varint(9 << 3 | 1) + bytes(8) + varint(10 << 3 | 5) + bytes(4))
    return b"".join(out), (labels, samples)


@given(st.lists(odd_fields(), max_size=4))
def test_every_legal_encoding_is_read(series):
    body = b"".join(b"\x18\x05" + part(1, one) for one, _ in series)
    assert rows(decode_1(body)) == decoded_by_the_library([meant for _, meant in series])


def test_references_that_are_not_packed_or_in_parts_are_read():
    symbols = b"".join(part(4, text) for text in (b"", b"__name__", b"up", b"a", b"b"))
    unpacked = b"".join(b"\x08" + varint(ref) for ref in (1, 2, 3, 4))
    parts = part(1, varint(1) + varint(2)) + part(1, varint(3) + varint(4))
    body = symbols + b"".join(part(5, refs + part(2, sample(1.5, 7))) for refs in (unpacked, parts))
    assert rows(decode_2(body)) == decoded_by_the_library([([("__name__", "up"), ("a", "b")], [(1.5, 7)])] * 2)


def test_many_samples_of_a_series_are_read():
    samples = [(float(at % 3), 1_795_237_605_000 + at) for at in range(1000)]
    request = [([("__name__", f"m{at}")], samples) for at in range(3)]
    assert rows(decode_1(request_1(request))) == decoded_by_the_library(request)


def test_stale_markers_and_nonfinite_values_are_decoded_with_all_their_bits():
    series = [(STALE_NAN, 1), (math.nan, 2), (math.inf, 3), (-math.inf, 4), (2.0, 5)]
    request = [([("__name__", "up")], series)]
    assert rows(decode_1(request_1(request))) == decoded_by_the_library(request)
    assert rows(decode_2(request_2(request))) == decoded_by_the_library(request)


def test_histograms_are_counted_and_exemplars_and_metadata_passed_over():
    name = part(1, label("__name__", "up"))
    one = part(1, name + part(2, sample(1.0, 5)) + part(3, b"\x12\x00") + part(4, b"") + part(4, b""))
    written = decode_1(one + part(3, b"\x08\x01"))
    assert (len(written.value), written.histograms) == (1, 2)
    two = part(4, b"") + part(5, part(3, b"") + part(4, b"") + part(4, b"") + part(5, b"\x08\x01"))
    assert decode_2(two).histograms == 1


def number_at(data, at, end):
    value = 0
    for place in range(10):
        if at >= end:
            break
        value |= (data[at] & 127) << 7 * place
        at += 1
        if data[at - 1] < 128 and value < 2**64:
            return value, at
    raise ValueError


def parts_of(data, at, end):
    while at < end:
        tag, at = number_at(data, at, end)
        start = at
        if tag & 7 == 2:
            size, start = number_at(data, at, end)
            at = start + size
        elif tag & 7 == 0:
            _, at = number_at(data, at, end)
        else:
            at += {1: 8, 5: 4}.get(tag & 7, 2**70)
        if at > end or not 8 <= tag < 2**32:
            raise ValueError
        yield tag, start, at


def sample_at(data, begin, stop):
    value, time = 0.0, 0
    for tag, at, _ in parts_of(data, begin, stop):
        if tag == 9:
            value = struct.unpack_from("<d", data, at)[0]
        elif tag == 16:
            time = number_at(data, at, stop)[0]
    return value, time - 2**64 if time >= 2**63 else time


def slowly(data):
    """Decode the samples of a message of 1.0 field by field from the specification.

    Raises ValueError for another body.
    """
    series = [(start, end) for tag, start, end in parts_of(data, 0, len(data)) if tag == 10]
    fields = [field for start, end in series for field in parts_of(data, start, end)]
    samples = [sample_at(data, begin, stop) for tag, begin, stop in fields if tag == 18]
    return [(struct.pack("<d", value), time) for value, time in samples if math.isfinite(value)]


def compare(body):
    try:
        expected = slowly(body)
    except ValueError:
        with pytest.raises(InvalidRequestError) as refusal:
            decode_1(body)
        assert refusal.value.field == "body"
        return
    written = decode_1(body)
    assert [
        (struct.pack("<d", value), time) for value, time in zip(written.value, written.time, strict=True)
    ] == expected
    for place in range(len(written.keys)):
        with contextlib.suppress(InvalidRequestError):
            written.labels(place)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_as_a_slow_reader_does(body):
    compare(body)


@given(requests, st.data())
def test_damaged_requests_are_read_or_refused_as_a_slow_reader_does(request, data):
    body = bytearray(request_1(request) or b"\x0a\x00")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    compare(bytes(body[: data.draw(st.integers(1, len(body)))]))


@given(requests, st.data())
def test_damaged_requests_of_the_second_version_end_in_a_refusal_or_in_columns(request, data):
    body = bytearray(request_2(request) or b"\x22\x00")
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        written = decode_2(bytes(body))
        for place in range(len(written.keys)):
            written.labels(place)
    except InvalidRequestError as error:
        refused = error.field
    else:
        refused = "body"
        assert len(written.value) == len(written.time) == len(written.index)
        assert np.isfinite(written.value).all()
    assert refused in {"body", "labels"}


def test_a_reference_beyond_the_symbols_is_refused():
    with pytest.raises(InvalidRequestError, match="symbol 7 of 1"):
        decode_2(part(4, b"") + part(5, part(1, b"\x07\x07")))


def test_a_single_reference_is_no_label():
    written = decode_2(part(4, b"") + part(5, part(1, b"\x00")))
    with pytest.raises(InvalidRequestError, match="pairs"):
        written.labels(0)


def test_a_label_that_is_not_utf_8_is_refused_alone():
    written = decode_1(part(1, part(1, part(1, b"\xff"))) + part(1, series_1([("a", "b")], [])))
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        written.labels(0)
    assert written.labels(1) == [("a", "b")]


def test_very_many_parts_are_refused():
    with pytest.raises(LimitExceededError):
        decode_1(b"\x0a\x00" * 1_000_001)


def test_a_series_of_very_many_fields_is_read_in_time():
    body = part(1, b"\x12\x00" * 300_000)
    assert len(decode_1(body).time) == 300_000


@given(st.binary(max_size=2000))
def test_a_snappy_block_is_unpacked(data):
    assert unpack(snappy(data), 2000, reserve_unlimited) == data


@given(st.binary(max_size=200))
def test_what_is_no_snappy_block_is_refused(data):
    with contextlib.suppress(InvalidRequestError):
        assert len(unpack(data, 10_000, reserve_unlimited)) <= 10_000


def test_a_block_that_says_too_much_takes_no_memory():
    with pytest.raises(LimitExceededError, match="1000"):
        unpack(snappy(bytes(1001)), 1000, reserve_unlimited)
    with pytest.raises(InvalidRequestError, match="too short"):
        unpack(varint(2**30) + b"\x00\x00", 2**31, reserve_unlimited)


def test_numbers_of_symbols_are_never_used_twice(monkeypatch):
    monkeypatch.setattr("jobmeter.wire.remote_write.symbols._MOST", 1)
    symbols = Symbols()
    first = symbols.find_numbers([b"a", b"b"]).tolist()
    assert not set(first) & set(symbols.find_numbers([b"b", b"a"]).tolist())
