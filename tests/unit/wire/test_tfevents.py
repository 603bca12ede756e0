"""Tests of TensorBoard's event files: files of an independent writer are read, whole or in pieces, and damage is found.

The writer here follows the format's description and computes the checksum bit by bit. Two check values come from RFC
3720.
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.wire.tfevents import MOST_RECORD, EventFileReader, EventValues, compute_masked_crc


def crc(data):
    """Compute CRC-32C by polynomial division, as RFC 3720 defines it."""
    register = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            carry = (register ^ byte >> bit) & 1
            register >>= 1
            if carry:
                register ^= 0x82F63B78
    return register ^ 0xFFFFFFFF


def masked(data):
    value = crc(data)
    return (((value >> 15) | (value << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32


def varint(value):
    found = b""
    value %= 2**64
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def part(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def simple(tag, value):
    return part(1, part(1, tag.encode()) + b"\x15" + struct.pack("<f", value))


def tensor(tag, value, form=1):
    kind = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}[form]
    content = b"\x08" + varint(form) + part(2, b"") + part(4, struct.pack(kind, value))
    return part(1, part(1, tag.encode()) + part(8, content))


def event(time, step, *values):
    return b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + part(5, b"".join(values))


START = record(b"\x09" + struct.pack("<d", 1.0) + part(3, b"brain.Event:2"))
FLOATS = st.floats(width=32, allow_nan=False)
EVENTS = st.lists(
    st.tuples(
        st.floats(0, 1e10), st.integers(-(2**63), 2**63 - 1), st.dictionaries(st.text(min_size=1), FLOATS, min_size=1)
    ),
    max_size=8,
)


@pytest.mark.parametrize(("data", "value"), [(b"\0" * 32, 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)])
def test_the_checksum_is_that_of_the_rfc(data, value):
    assert crc(data) == value
    assert compute_masked_crc(data) == masked(data)


@given(EVENTS, st.lists(st.integers(1, 40)), st.sampled_from([simple, tensor]))
def test_what_was_written_is_read_in_any_pieces(events, sizes, form):
    data = START + b"".join(
        record(event(time, step, *(form(tag, value) for tag, value in values.items()))) for time, step, values in events
    )
    reader = EventFileReader()
    found: list[EventValues] = []
    for size in [*sizes, len(data)]:
        found += reader.feed(data[:size])
        data = data[size:]
    assert found == [EventValues(time, step, values) for time, step, values in events]
    assert not reader.damaged


@given(EVENTS, st.data())
def test_a_changed_byte_never_gives_other_values(events, data):
    whole = b"".join(record(event(time, step, *map(simple, values, values.values()))) for time, step, values in events)
    if not whole:
        return
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    found = list(EventFileReader().feed(changed))
    wanted = [EventValues(time, step, values) for time, step, values in events]
    assert found == wanted[: len(found)]
    assert len(found) < len(wanted)


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_make_it_fail(data, framed):
    list(EventFileReader().feed(record(data) if framed else data))


@pytest.mark.parametrize(("form", "value"), [(2, 0.1), (3, -7), (9, 2**40)])
def test_tensors_of_other_types(form, value):
    (found,) = EventFileReader().feed(record(event(1.0, 2, tensor("x", value, form))))
    assert found.values == {"x": value}


def test_tensors_with_dimensions_texts_and_long_records_are_left_out():
    shaped = b"\x08\x01" + part(2, part(2, b"\x08\x02")) + part(4, struct.pack("<2f", 1, 2))
    text = b"\x08\x07" + part(4, b"hello")
    odd = [part(1, part(1, b"t") + part(8, content)) for content in (shaped, text)]
    data = record(event(1.0, 1, *odd)) + record(event(1.0, 2, part(1, b"\0" * MOST_RECORD)))
    reader = EventFileReader()
    found = [one for at in range(0, len(data), 999) for one in reader.feed(data[at : at + 999])]
    found += reader.feed(record(event(1.0, 3, simple("x", 1.0))))
    assert found == [EventValues(1.0, 3, {"x": 1.0})]


def test_unpacked_and_packed_numbers_are_read():
    unpacked = b"\x08\x01" + b"\x2d" + struct.pack("<f", 1.5)
    packed = b"\x08\x02" + part(6, struct.pack("<d", 2.5))
    values = [part(1, part(1, tag) + part(8, content)) for tag, content in ((b"a", unpacked), (b"b", packed))]
    (found,) = EventFileReader().feed(record(event(1.0, 1, *values)))
    assert found.values == {"a": 1.5, "b": 2.5}
