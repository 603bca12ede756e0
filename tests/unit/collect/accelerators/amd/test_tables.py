"""Tests of ``gpu_metrics`` tables packed from the layouts: each version, truncated, without values, damaged."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.accelerators.amd.tables import LAYOUTS, UnknownTableError, Value, parse_table

VERSIONS = sorted(LAYOUTS)
ENERGY = 0x0123_4567_89AB


def header(form, content, size):
    return struct.pack("<HBB", size, form, content)


def pack(version, places, fill=b"\xff"):
    """Return a table with values at offsets of the kernel's header, (offset, type, value); the rest is ``fill``."""
    form, content, size = version
    data = bytearray(fill * size)
    data[:4] = header(form, content, size)
    for offset, kind, value in places:
        struct.pack_into(f"<{kind}", data, offset, value)
    return bytes(data)


PACKED = {
    (1, 0, 80): [
        (18, "H", 61),
        (20, "H", 70),
        (34, "H", 215),
        (28, "H", 93),
        (30, "H", 40),
        (54, "H", 1500),
        (58, "H", 2600),
    ],
    (1, 3, 120): [
        (6, "H", 61),
        (8, "H", 70),
        (22, "H", 215),
        (16, "H", 93),
        (18, "H", 40),
        (54, "H", 1500),
        (58, "H", 2600),
    ],
    (1, 4, 288): [
        (4, "H", 61),
        (6, "H", 70),
        (10, "H", 215),
        (12, "H", 93),
        (14, "H", 40),
        (240, "H", 1500),
        (280, "H", 2600),
    ],
    (1, 5, 360): [
        (4, "H", 61),
        (6, "H", 70),
        (10, "H", 215),
        (12, "H", 93),
        (14, "H", 40),
        (312, "H", 1500),
        (352, "H", 2600),
    ],
    (1, 6, 384): [
        (4, "H", 61),
        (6, "H", 70),
        (10, "H", 215),
        (12, "H", 93),
        (14, "H", 40),
        (336, "H", 1500),
        (376, "H", 2600),
    ],
    (1, 6, 1664): [
        (4, "H", 61),
        (6, "H", 70),
        (10, "H", 215),
        (12, "H", 93),
        (14, "H", 40),
        (264, "H", 1500),
        (304, "H", 2600),
    ],
    (1, 7, 2208): [
        (4, "H", 61),
        (6, "H", 70),
        (10, "H", 215),
        (12, "H", 93),
        (14, "H", 40),
        (296, "H", 1500),
        (336, "H", 2600),
    ],
}
PACKED |= {(1, 1, 96): PACKED[1, 3, 120], (1, 2, 104): PACKED[1, 3, 120], (1, 8, 3872): PACKED[1, 7, 2208]}


@pytest.mark.parametrize("version", sorted(PACKED))
def test_the_common_values_of_a_version(version):
    assert parse_table(pack(version, PACKED[version])) == {
        Value.HOTSPOT: [61],
        Value.MEMORY_TEMPERATURE: [70],
        Value.POWER: [215],
        Value.BUSY: [93],
        Value.MEMORY_BUSY: [40],
        Value.CLOCK: [1500],
        Value.MEMORY_CLOCK: [2600],
    }


@pytest.mark.parametrize(
    ("version", "offset"),
    [
        ((1, 1, 96), 24),
        ((1, 2, 104), 24),
        ((1, 3, 120), 24),
        ((1, 4, 288), 24),
        ((1, 5, 360), 88),
        ((1, 6, 384), 88),
        ((1, 6, 1664), 16),
        ((1, 7, 2208), 24),
        ((1, 8, 3872), 24),
    ],
)
def test_the_energy_of_a_version(version, offset):
    assert parse_table(pack(version, [(offset, "Q", ENERGY)])) == {Value.ENERGY: [ENERGY]}


@pytest.mark.parametrize(
    ("version", "read", "written", "readings"),
    [
        ((1, 4, 288), 104, 168, None),
        ((1, 5, 360), 176, 240, None),
        ((1, 6, 384), 200, 264, 104),
        ((1, 6, 1664), 128, 192, 32),
        ((1, 7, 2208), 136, 200, 40),
        ((1, 8, 3872), 136, 200, 40),
    ],
)
def test_links_and_limits_of_a_version(version, read, written, readings):
    places = [(read + 8, "Q", 5), (read + 56, "Q", 6), (written, "Q", 7)]
    if readings is not None:
        places += [(readings + 4 * at, "I", 100 + at) for at in range(6)]
    found = parse_table(pack(version, places))
    assert (found[Value.XGMI_READ], found[Value.XGMI_WRITE]) == ([5, 6], [7])
    limits = [found.get(name) for name in (Value.READINGS, Value.PROCHOT, Value.PACKAGE_POWER, Value.MEMORY_HEAT)]
    assert limits == ([None] * 4 if readings is None else [[100], [101], [102], [105]])


@pytest.mark.parametrize(
    ("version", "offset"),
    [((1, 4, 288), 240), ((1, 5, 360), 312), ((1, 6, 384), 336), ((1, 6, 1664), 264), ((1, 7, 2208), 296)],
)
def test_each_of_eight_dies_has_its_clock(version, offset):
    clocks = list(range(1_000, 1_008))
    found = parse_table(pack(version, [(offset + 2 * at, "H", clock) for at, clock in enumerate(clocks)]))
    assert found == {Value.CLOCK: clocks}


def test_integrated_chips_give_what_is_the_same_on_all_of_them():
    assert parse_table(pack((2, 2, 128), [(4, "H", 5500), (76, "H", 1900)])) == {Value.CLOCK: [1900]}
    assert parse_table(pack((2, 4, 168), [(4, "H", 5525)])) == {Value.HOTSPOT: [pytest.approx(55.25)]}
    assert parse_table(pack((3, 0, 264), [(112, "I", 28_500)])) == {Value.POWER: [pytest.approx(28.5)]}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_that_is_not_given_is_absent_and_a_zero_is_a_value(version):
    assert parse_table(pack(version, [])) == {}
    zeros = parse_table(pack(version, [], fill=b"\0"))
    assert zeros.keys() == LAYOUTS[version].keys()
    assert {number for numbers in zeros.values() for number in numbers} == {0}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_that_is_cut_short_gives_nothing(version):
    whole = pack(version, [], fill=b"\0")
    for length in (*range(6), len(whole) // 2, len(whole) - 1):
        with pytest.raises(UnknownTableError):
            parse_table(whole[:length])


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 65_535), st.binary(max_size=400))
def test_any_other_version_or_length_is_unknown(form, content, size, rest):
    if (form, content, size) not in LAYOUTS and (form, content) != (1, 9):
        with pytest.raises(UnknownTableError):
            parse_table(header(form, content, size) + rest)


KINDS = "bBhHiIqQ"


def described(*attributes):
    """Return a table that describes itself: (id, type, numbers) of each value."""
    body = struct.pack("<i", len(attributes))
    for number, kind, values in attributes:
        code = 7 << 24 | KINDS.index(kind) << 20 | number << 10 | len(values)
        body += struct.pack("<Q", code) + struct.pack(f"<{len(values)}{kind}", *values)
    return header(1, 9, 4 + len(body)) + body


def test_a_table_that_describes_itself():
    table = described(
        (0, "H", [61]),
        (1, "h", [-5]),
        (3, "I", [750]),
        (7, "Q", [ENERGY]),
        (500, "b", [1, 2, 3]),
        (29, "Q", [5, 2**64 - 1]),
    )
    assert parse_table(table) == {
        Value.HOTSPOT: [61],
        Value.MEMORY_TEMPERATURE: [-5],
        Value.POWER: [750],
        Value.ENERGY: [ENERGY],
        Value.XGMI_READ: [5],
    }
    assert parse_table(described()) == {}


@given(st.data())
def test_a_damaged_table_that_describes_itself_raises_nothing_else(data):
    kinds = st.sampled_from("BHIQ")
    one = st.tuples(st.integers(0, 1023), kinds, st.lists(st.integers(0, 254), min_size=1, max_size=8))
    whole = bytearray(described(*data.draw(st.lists(one, max_size=6))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(4, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        found = parse_table(cut)
    except UnknownTableError:
        return
    assert all(numbers for numbers in found.values())
