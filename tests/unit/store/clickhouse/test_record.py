"""Tests of the journal's records: exactly the written rows are read back, and lost rows are counted."""

import struct
import zlib

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.store.rows import GROUPS, LONG, days_of, listed, rows_of

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.record import HEAD_BYTES, RecordPosition, RecordWriter
from jobmeter.store.clickhouse.rows import SampleRuns, list_descriptors
from jobmeter.store.clickhouse.segment_content import scan

SALT = 0x1122334455667788
RECORDS = st.lists(GROUPS, min_size=1, max_size=4)
"""Groups of records, whose runs share a list wherever they are of the same series."""
AGAIN = st.lists(
    st.lists(st.tuples(st.integers(0, 2**41), st.integers(0, 2**41), st.booleans()), min_size=1, max_size=3),
    min_size=1,
    max_size=12,
)
"""Two fixed series in each group, at one time or at two."""
APART = st.sampled_from([1, 100, 300, 2**16])
"""Small distances between copies, so that records depend on others as large ones do."""


class Segment:
    """Segment as its writer makes it: its records, and the number of rows of each."""

    def __init__(self, apart=2**16):
        self.writer = RecordWriter(apart)
        self.writer.begin(SALT)
        self.parts: list[bytes] = []
        self.rows: list[int] = []

    def append(self, group):
        part = b"".join(self.writer.encode(group))
        self.parts.append(part)
        self.rows.append(sum(map(len, group)))
        at, rows = self.writer.position
        self.writer.confirm(RecordPosition(at + len(part), rows + self.rows[-1]))

    @property
    def content(self):
        return b"".join(self.parts)


def grouped(groups):
    return [rows_of(samples, retention) for samples, retention in groups]


def repeated(records):
    return [
        [([(5, first, 1.0), (2, first if same else second, -1.0)], LONG) for first, second, same in groups]
        for groups in records
    ]


MIXED = st.one_of(RECORDS, AGAIN.map(repeated))


def segment_of(records, apart=2**16):
    segment, keys = Segment(apart), dict[tuple[bytes, bytes], SeriesKeys]()
    for groups in records:
        segment.append(
            [
                replace(rows, keys=keys.setdefault((rows.job.tobytes(), rows.series.tobytes()), rows.keys))
                for rows in grouped(groups)
            ]
        )
    return segment


def found_rows(found):
    return listed(found.groups) if found.groups else []


@given(MIXED, APART, st.booleans())
def test_a_segment_gives_back_what_it_was_made_of(records, apart, known):
    segment = segment_of(records, apart)
    assert all(len(part) % 8 == 0 for part in segment.parts)
    rows = [one for groups in records for one in grouped(groups)]
    found = scan(segment.content, SALT, segment.writer.position if known else None)
    assert (found.lost, found.damaged, found.unfinished) == ((0, False), 0, 0)
    assert [len(part) for part in found.groups] == [len(part) for part in rows]
    assert [part.retention for part in found.groups] == [part.retention for part in rows]
    assert listed(found.groups) == listed(rows)


def test_records_are_laid_out_as_documented():
    first = rows_of([(7, 1000, 1.5), (7, 2000, 2.5), (3, 5, -1.0)], Retention(raw_days=1, minute_days=2, hour_days=3))
    second = replace(rows_of([(8, 9, 0.5), (4, 9, 0.25)], LONG), keys=first.keys)
    segment = Segment(apart=1)
    for _ in range(3):
        segment.append([first])
    segment.append([second])
    section = (
        struct.pack("<IIHHHHQ", 2, 3, 1, 2, 3, 1, 1)
        + struct.pack("<QQQQ", 2, 1, 7, 3)
        + struct.pack("<qqq", 1000, 2000, 5)
        + struct.pack("<ddd", 1.5, 2.5, -1.0)
        + struct.pack("<II", 2, 1)
    )
    assert segment.parts[0] == record(section, 0, 0, 3)
    length = len(segment.parts[0])
    assert segment.parts[1] == record(section, length, 3, 3)
    # The next copy of the keys is now far enough from the first: the next record only names the list.
    assert segment.parts[2] == record(section, 2 * length, 6, 3)
    section = struct.pack("<IIHHHHQ", 2, 2, *days_of(LONG), 6, 1) + struct.pack("<q", 9) + struct.pack("<dd", 0.5, 0.25)
    assert segment.parts[3] == record(section, 3 * length, 9, 2)


def record(body, at, before, rows, copies=0):
    fields = struct.pack("<IQQQQIII", 1, SALT, at, before, len(body), rows, copies, zlib.crc32(body))
    head, foot = (magic + fields for magic in (b"JMJ4", b"4JMJ"))
    return b"".join([head, struct.pack("<I", zlib.crc32(head)), body, foot, struct.pack("<I", zlib.crc32(foot))])


NEW = [Series("gpu.power", job="a", device="gpu0", labels=(("b", "\n"), ("é", "1"))), Series("app.loss", job="b")]


def described():
    keys = SeriesKeys.from_series(NEW)
    return replace(
        rows_of([(5, 1, 1.0)]), descriptors=Descriptors.from_series(NEW, keys, np.array([20_000, 20_001]), 90)
    )


def test_descriptors_of_new_series_come_with_their_rows():
    segment, rows = Segment(), described()
    segment.append([rows, rows_of([(6, 2, 2.0)])])
    segment.append([rows])
    found = scan(segment.content, SALT, None)
    assert found.lost.rows == found.damaged == found.unfinished == 0
    assert listed(found.groups) == listed([rows, rows_of([(6, 2, 2.0)]), rows])
    (descriptors,) = list_descriptors(found.groups)  # once, although the second record has them too
    keys = SeriesKeys.from_series(NEW)
    assert list(descriptors.series) == NEW
    assert (descriptors.job.tolist(), descriptors.ids.tolist()) == (keys.job.tolist(), keys.series.tolist())
    assert descriptors.days.tolist() == [20_000, 20_001]
    assert descriptors.lines == rows.descriptors.lines
    assert found.descriptors == []


def test_a_copy_of_descriptors_is_a_frame_of_json_lines_behind_the_sections():
    segment, rows = Segment(), described()
    segment.append([rows])
    segment.append([rows_of([(6, 2, 2.0)])])
    text = zstandard.ZstdCompressor(level=1).compress(b"\n".join(rows.descriptors.lines))
    copy = struct.pack("<Q", len(text)) + text + bytes(-len(text) % 8)
    section = struct.pack("<IIHHHHQQQqd", 1, 1, *days_of(LONG), 7, 2, 2, 6, 2, 2.0)
    assert segment.parts[1] == record(section + copy, len(segment.parts[0]), 1, 1, copies=1)


@pytest.mark.parametrize("apart", [1, 2**16])
@pytest.mark.parametrize("hurt", range(6))
def test_descriptors_survive_the_record_that_brought_them(apart, hurt):
    segment, rows = Segment(apart), described()
    segment.append([rows])
    for at in range(5):
        segment.append([rows_of([(5, 2 + at, 2.0)])])
    parts = list(segment.parts)
    parts[hurt] = parts[hurt][:HEAD_BYTES] + bytes(len(parts[hurt]) - HEAD_BYTES)
    found = scan(b"".join(parts), SALT, segment.writer.position)
    assert found.lost == (1, False)
    (descriptors,) = [*list_descriptors(found.groups), *found.descriptors]
    assert list(descriptors.series) == NEW


def test_descriptors_are_repeated_in_the_next_segment_until_the_engine_has_them():
    writer = RecordWriter()

    def copies(salt, flushed=False):
        total = writer.total
        writer.begin(salt)
        if flushed:
            writer.note_flushed(total)
        found = scan(b"".join(writer.encode([rows_of([(6, 2, 2.0)])])), salt, None)
        return [list(one.series) for one in found.descriptors]

    writer.begin(SALT)
    size = sum(map(len, writer.encode([described()])))
    writer.confirm(RecordPosition(size, 1))
    assert copies(1) == [NEW]
    assert copies(2) == [NEW]
    assert copies(3, flushed=True) == []


@given(MIXED, st.data(), APART)
def test_a_segment_that_was_cut_off_gives_its_whole_records(records, data, apart):
    segment = segment_of(records, apart)
    content, parts = segment.content, segment.parts
    cut = data.draw(st.integers(0, len(content)))
    # A file may have grown before its content reached the disk.
    left = content[:cut] + bytes(data.draw(st.sampled_from([0, len(content)])))
    whole, end = 0, 0
    while whole < len(parts) and left[end:].startswith(parts[whole][:-HEAD_BYTES]):
        end += len(parts[whole])
        whole += 1
    whole_rows = [rows for groups in records[:whole] for rows in grouped(groups)]
    count = sum(map(len, whole_rows))
    # If only these records are acknowledged, or the position is unknown, no row is lost.
    for acknowledged in (RecordPosition(sum(map(len, parts[:whole])), count), None):
        found = scan(left, SALT, acknowledged)
        assert found.lost == (0, False)
        assert found.unfinished == max(0, len(left) - end)
        assert len(found.groups) == len(whole_rows)
        assert found_rows(found) == (listed(whole_rows) if whole_rows else [])
    # If all records are acknowledged, the number of lost rows is known for any remaining content.
    found = scan(left, SALT, segment.writer.position)
    assert found.lost == (sum(segment.rows) - count, False)
    assert found_rows(found) == (listed(whole_rows) if whole_rows else [])


@given(MIXED, st.data(), APART, st.booleans())
def test_a_damaged_record_costs_its_own_rows_alone_and_they_are_counted(records, data, apart, known):
    segment = segment_of(records, apart)
    hurt = data.draw(st.integers(0, len(segment.parts) - 1))
    place = data.draw(st.integers(0, len(segment.parts[hurt]) - 1))
    broken = bytearray(segment.parts[hurt])
    broken[place] ^= data.draw(st.integers(1, 255))
    content = b"".join([*segment.parts[:hurt], bytes(broken), *segment.parts[hurt + 1 :]])
    found = scan(content, SALT, segment.writer.position if known else None)
    # Head and foot are copies: damage to one of them loses no rows.
    in_body = HEAD_BYTES <= place < len(broken) - HEAD_BYTES
    expected = [rows for at, groups in enumerate(records) for rows in grouped(groups) if at != hurt or not in_body]
    assert found_rows(found) == (listed(expected) if expected else [])
    assert found.lost == (segment.rows[hurt] if in_body else 0, False)
    assert found.damaged == (len(broken) - 2 * HEAD_BYTES if in_body else HEAD_BYTES)
    assert found.unfinished == 0


@given(MIXED, st.data(), APART)
def test_keys_and_descriptors_are_twice_on_disk_where_a_record_needs_those_of_others(records, data, apart):
    """Damage to any single stretch shorter than the distance between copies leaves all other records readable."""
    segment = segment_of(records, apart)
    content = bytearray(segment.content)
    size = data.draw(st.integers(1, apart))
    begin = data.draw(st.integers(0, max(0, len(content) - size)))
    content[begin : begin + size] = bytes(len(content[begin : begin + size]))
    found = scan(bytes(content), SALT, segment.writer.position)
    ends = np.cumsum([len(part) for part in segment.parts])
    own = [
        groups
        for groups, part, end in zip(records, segment.parts, ends.tolist(), strict=True)
        if content[end - len(part) : end] == part
    ]
    expected = [row for groups in own for row in listed(grouped(groups))]
    rows = found_rows(found)
    assert sorted(set(expected) - set(rows)) == []
    assert found.lost == (sum(segment.rows) - len(rows), False)


@pytest.mark.parametrize("boundary", range(5))
def test_damage_across_two_records_leaves_those_behind_them(boundary):
    keys = SeriesKeys(np.zeros(100, np.uint64), np.arange(100, dtype=np.uint64))
    segment = Segment(apart=200)
    for at in range(6):
        descriptors = described().descriptors if not at else None
        segment.append(
            [SampleRuns(keys, np.ones(100, np.int64), np.full(100, at), np.full(100, 0.5), LONG, None, descriptors)]
        )
    content = bytearray(segment.content)
    middle = sum(map(len, segment.parts[: boundary + 1]))
    content[middle - 80 : middle + 80] = bytes(160)
    found = scan(bytes(content), SALT, segment.writer.position)
    assert found.lost == (200, False)
    assert [rows.span[0] for rows in found.groups] == [at for at in range(6) if at not in {boundary, boundary + 1}]
    assert len([*list_descriptors(found.groups), *found.descriptors]) == 1


def test_a_record_at_another_place_counts_where_it_was_written():
    """A disk may return blocks in another order, or a block twice."""
    segment = Segment()
    for at in range(3):
        segment.append([rows_of([(1, 5, float(at))])])
    first, second, third = segment.parts
    for content in (third + second + first, first + second + third + first, second + first + first + third):
        found = scan(content, SALT, segment.writer.position)
        assert [rows.value.tolist() for rows in found.groups] == [[0.0], [1.0], [2.0]]
        assert found.lost.rows == 0
    found = scan(first + b"gap" + third + first, SALT, segment.writer.position)
    assert [rows.value.tolist() for rows in found.groups] == [[0.0], [2.0]]
    assert found.lost == (1, False)


def test_records_of_another_segment_are_not_read():
    segment = Segment()
    segment.append([rows_of([(1, 5, 1.0)])])
    found = scan(segment.content, SALT + 1, RecordPosition(1000, 7))
    assert (found.groups, found.lost) == ([], (7, False))


def test_values_that_look_like_a_record_are_not_taken_for_one():
    """A sender cannot know the salt."""
    inner = RecordWriter()
    inner.begin(SALT - 1)
    inner_record = b"".join(inner.encode([rows_of([(1, 1, 1.0)])]))
    rows = rows_of([(2, at, 0.0) for at in range(len(inner_record) // 8)])
    segment = Segment()
    segment.append([replace(rows, value=np.frombuffer(inner_record, np.float64))])
    disguised = segment.content
    middle = len(disguised) // 2
    for broken in (disguised[: -HEAD_BYTES - 8], disguised[:middle] + b"\xff" + disguised[middle + 1 :]):
        assert scan(broken, SALT, None).groups == []


def test_an_upper_bound_is_given_where_nothing_says_how_many_rows_there_were():
    segment = Segment()
    segment.append([rows_of([(1, 5, 1.0)])])
    segment.append([rows_of([(1, at, 1.0) for at in range(50)])])
    first, second = segment.parts
    hurt = bytearray(second)
    hurt[8] ^= 1
    hurt[-8] ^= 1
    found = scan(first + hurt, SALT, None)
    assert found.lost.at_most
    assert 50 <= found.lost.rows <= len(hurt) // 8
    assert scan(first + hurt, SALT, segment.writer.position).lost == (50, False)


def test_keys_are_repeated_ever_more_rarely():
    keys = SeriesKeys(np.zeros(1000, np.uint64), np.arange(1000, dtype=np.uint64))
    segment = Segment()
    for at in range(400):
        segment.append([SampleRuns(keys, np.ones(1000, np.int64), np.full(1000, at), np.full(1000, 0.5), LONG)])
    with_keys = [at for at, part in enumerate(segment.parts) if len(part) > 16_000]
    assert len(with_keys) < 12
    assert with_keys[:4] == [0, 1, 2, 3]
