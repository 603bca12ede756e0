"""Tests of the compiled scan of remote writes against the decoder in arrays, and at the end of its memory."""

import ctypes
import mmap
import struct
import sys
from functools import partial
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.prometheus import label, part, request_1, request_2, sample, varint

from jobmeter.errors import JobmeterError
from jobmeter.kernel import remote_write
from jobmeter.model.special import STALE
from jobmeter.wire.remote_write import decode
from jobmeter.wire.remote_write.symbols import Symbols

SYMBOLS = Symbols()

MOST = 1_000_000
texts = st.text(max_size=12)
numbers = st.one_of(st.floats(), st.just(0.0), st.just(struct.unpack("<d", struct.pack("<Q", STALE))[0]))
times = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**42))
requests = st.lists(
    st.tuples(
        st.lists(st.tuples(texts, texts), max_size=4),
        st.lists(st.tuples(numbers, times), max_size=4),
    ),
    max_size=6,
)
bodies = st.one_of(requests.map(request_1), requests.map(request_2))


@st.composite
def damaged(draw):
    """Return a request with changed, inserted, removed or truncated bytes."""
    body = bytearray(draw(bodies))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)


def outcome(read, data):
    """Return the complete result of a decoder, or its refusal."""
    try:
        written = read(data)
    except JobmeterError as error:
        return type(error), getattr(error, "field", ""), error.message
    columns = written.index.tolist(), written.time.tolist(), written.value.tobytes()
    labels = [labels_of(written, at) for at in range(len(written.keys))]
    return list(written.keys), labels, columns, written.histograms


def labels_of(written, at):
    try:
        return written.labels(at)
    except JobmeterError as error:
        return error.message


@settings(max_examples=300)
@given(st.one_of(damaged(), st.binary(max_size=80)))
@example(part(1, b"\x12\x00" * 200))
@example(part(1, part(2, b"\x10" + b"\x80" * 9 + b"\x02")))
@example(part(1, part(1, label("a", "b")) + part(2, sample(1.0, 2)) + part(1, label("c", "d"))))
@example(part(4, b"") * 3 + part(5, part(1, b"\x00\x01") + part(1, b"\x01\x02")))
@example(part(5, part(1, varint(2**32 - 1))) + part(4, b""))
def test_the_scan_and_plain_python_read_and_refuse_alike(data):
    assert outcome(decode.decode_1, data) == outcome(decode.decode_reference_1, data)
    assert outcome(partial(decode.decode_2, symbol_cache=SYMBOLS), data) == outcome(
        partial(decode.decode_reference_2, symbol_cache=SYMBOLS), data
    )


@given(requests)
def test_what_senders_write_is_read_by_the_scan(request):
    assert remote_write.scan_1(request_1(request), MOST) is not None
    assert remote_write.scan_2(request_2(request), MOST) is not None


class AtTheEnd:
    """Bytes that end where readable memory ends: reading one byte more kills the process."""

    def __init__(self, data: bytes) -> None:
        page = mmap.PAGESIZE
        room = -(-max(len(data), 1) // page) * page
        self._size = len(data)
        self._memory = mmap.mmap(-1, room + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._memory[room - len(data) : room] = data
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0)
        self._as_parameter_ = ctypes.c_char_p(start + room - len(data))

    def __len__(self) -> int:
        return self._size


@pytest.mark.skipif(sys.platform != "linux", reason="memory is protected in Linux's way")
@settings(max_examples=200)
@given(st.one_of(damaged(), st.binary(max_size=40)))
def test_nothing_is_read_behind_the_end(data):
    for scan in (remote_write.scan_1, remote_write.scan_2):
        beside, inside = scan(cast("bytes", AtTheEnd(data)), MOST), scan(data, MOST)
        assert (beside is None) == (inside is None)
        if beside is not None and inside is not None:
            assert beside.value.tobytes() == inside.value.tobytes()


@given(bodies, st.integers(0, 6))
def test_no_more_parts_are_read_than_allowed(data, most):
    for scan in (remote_write.scan_1, remote_write.scan_2):
        whole = scan(data, MOST)
        if whole is not None and scan(data, most) is not None:
            assert whole.series <= most


def test_a_request_of_very_small_parts_finds_room():
    scanned = remote_write.scan_1(part(1, b"\x12\x00" * 5_000) + b"\x0a\x00" * 5_000, MOST)
    assert scanned is not None
    assert (scanned.series, len(scanned.time), np.unique(scanned.index).tolist()) == (5_001, 5_000, [0])
    symbols = part(4, b"") * 3 + part(5, part(1, b"\x00" * 20_000))
    referring = remote_write.scan_2(symbols, MOST)
    assert referring is not None
    assert len(referring.refs) == 20_000
