"""The journal's records: what was written is read again, and nothing else ever is."""

import struct
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.store.rows import GROUPS, LONG, days_of, listed, rows_of

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.record import AGAIN_BYTES, HEAD_BYTES, SeriesListTable, encode, scan

RECORDS = st.lists(GROUPS, min_size=1, max_size=4)
"""Groups of one record share lists with those of the others wherever their runs are of the same series."""
AGAIN = st.lists(
    st.lists(st.tuples(st.integers(0, 2**41), st.integers(0, 2**41), st.booleans()), min_size=1, max_size=3),
    min_size=1,
    max_size=6,
)
"""The same two series in each group, at one time or at two."""


def encoded(groups, lists, at=0):
    return b"".join(encode(groups, lists, at))


def grouped(groups):
    return [rows_of(samples, retention) for samples, retention in groups]


def repeated(records):
    return [
        [([(5, first, 1.0), (2, first if same else second, -1.0)], LONG) for first, second, same in groups]
        for groups in records
    ]


MIXED = st.one_of(RECORDS, AGAIN.map(repeated))


def segment_of(records):
    """The records of a segment, as its writer makes them."""
    lists, decoded_lists = SeriesListTable(), dict[tuple[bytes, bytes], SeriesKeys]()
    parts = list[bytes]()
    for groups in records:
        group = [
            replace(rows, keys=decoded_lists.setdefault((rows.job.tobytes(), rows.series.tobytes()), rows.keys))
            for rows in grouped(groups)
        ]
        parts.append(encoded(group, lists, len(b"".join(parts))))
    return parts


@given(MIXED)
def test_a_segment_gives_back_what_it_was_made_of(records):
    parts = segment_of(records)
    assert all(len(part) % 8 == 0 for part in parts)
    rows = [one for groups in records for one in grouped(groups)]
    found = scan(b"".join(parts))
    assert (found.damaged, found.torn) == (0, 0)
    assert [len(part) for part in found.groups] == [len(part) for part in rows]
    assert [part.retention for part in found.groups] == [part.retention for part in rows]
    assert listed(found.groups) == listed(rows)


def test_records_are_laid_out_as_documented():
    first = rows_of([(7, 1000, 1.5), (7, 2000, 2.5), (3, 5, -1.0)], Retention(raw_days=1, minute_days=2, hour_days=3))
    second = replace(rows_of([(8, 9, 0.5), (4, 9, 0.25)], LONG), keys=first.keys)
    lists = SeriesListTable()
    body = (
        struct.pack("<IIHHHHQ", 2, 3, 1, 2, 3, 1, 1)
        + struct.pack("<QQQQ", 2, 1, 7, 3)
        + struct.pack("<qqq", 1000, 2000, 5)
        + struct.pack("<ddd", 1.5, 2.5, -1.0)
        + struct.pack("<II", 2, 1)
    )
    assert encoded([first], lists) == record(b"JMJ3", body)
    body = struct.pack("<IIHHHHQ", 2, 2, *days_of(LONG), 6, 1) + struct.pack("<q", 9) + struct.pack("<dd", 0.5, 0.25)
    assert encoded([second], lists, 200) == record(b"JMJ3", body)


def test_descriptors_of_new_series_come_with_their_rows():
    new = [Series("gpu.power", job="a", device="gpu0", labels=(("b", "\n"), ("é", "1"))), Series("app.loss", job="b")]
    keys = SeriesKeys.of(new)
    written = Descriptors.of(new, keys, np.array([20_000, 20_001]), 90)
    rows = replace(rows_of([(5, 1, 1.0)]), descriptors=written)
    first, second = encoded([rows, rows_of([(6, 2, 2.0)])], SeriesListTable()), encoded([rows], SeriesListTable())
    assert len(first) % 8 == len(second) % 8 == 0
    found = scan(first + second)
    assert (found.damaged, found.torn) == (0, 0)
    assert listed(found.groups) == listed([rows, rows_of([(6, 2, 2.0)]), rows])
    for place in (0, 2):
        descriptors = found.groups[place].descriptors
        assert descriptors is not None
        assert list(descriptors.series) == new
        assert (descriptors.job.tolist(), descriptors.ids.tolist()) == (keys.job.tolist(), keys.series.tolist())
        assert descriptors.days.tolist() == [20_000, 20_001]
        assert descriptors.lines == written.lines
    assert found.groups[1].descriptors is None


def test_records_of_an_earlier_program_are_read():
    old = (
        struct.pack("<IIHHHH", 2, 3, *days_of(LONG), 0)
        + struct.pack("<QQQQ", 2, 1, 7, 3)
        + struct.pack("<qqq", 1000, 2000, 5)
        + struct.pack("<ddd", 1.5, 2.5, -1.0)
        + struct.pack("<II", 2, 1)
    )
    new = rows_of([(7, 3000, 3.5)])
    without_descriptors = record(b"JMJ2", old[:14] + struct.pack("<HQ", 1, 1) + old[16:])
    later = without_descriptors + encoded([new], SeriesListTable())
    found = scan(record(b"JMJ1", old) + later + record(b"JMJ1", old)[:-1])
    samples = [*[(7, 1000, 1.5), (7, 2000, 2.5), (3, 5, -1.0)] * 2, (7, 3000, 3.5)]
    assert listed(found.groups) == listed([rows_of(samples)])
    assert (found.damaged, found.torn) == (0, 24 + len(old) - 1)


def record(magic, body):
    head = struct.pack("<4sIQI", magic, 1, len(body), zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)) + body


@given(MIXED, st.data())
def test_a_segment_that_was_cut_off_gives_its_whole_records(records, data):
    parts = segment_of(records)
    segment = b"".join(parts)
    cut = data.draw(st.integers(0, len(segment)))
    # A file may have grown before what was written into it came to the disk.
    left = segment[:cut] + bytes(data.draw(st.sampled_from([0, len(segment)])))
    whole, end = 0, 0
    while whole < len(parts) and left[end:].startswith(parts[whole]):
        end += len(parts[whole])
        whole += 1
    found = scan(left)
    assert (found.damaged, found.torn) == (0, len(left) - end)
    whole_rows = [rows for groups in records[:whole] for rows in grouped(groups)]
    assert len(found.groups) == len(whole_rows)
    if whole_rows:
        assert listed(found.groups) == listed(whole_rows)


@given(MIXED, st.data())
def test_a_damaged_record_is_reported_and_costs_none_but_those_of_its_lists(records, data):
    parts = segment_of(records)
    hurt = data.draw(st.integers(0, len(parts) - 1))
    place = data.draw(st.integers(0, len(parts[hurt]) - 1))
    broken = bytearray(parts[hurt])
    broken[place] ^= data.draw(st.integers(1, 255))
    found = scan(b"".join([*parts[:hurt], bytes(broken), *parts[hurt + 1 :]]))
    before = {names_of(rows) for groups in records[:hurt] for rows in grouped(groups)}
    lost = {names_of(rows) for rows in grouped(records[hurt])} - before
    whole_rows = [
        rows
        for at, groups in enumerate(records)
        for rows in grouped(groups)
        if at < hurt or (at > hurt and names_of(rows) not in lost)
    ]
    assert len(found.groups) == len(whole_rows)
    if whole_rows:
        assert listed(found.groups) == listed(whole_rows)
    if hurt == len(parts) - 1:
        # Nothing follows: only a whole length with another content tells damage from a write that was cut off.
        damaged = place >= HEAD_BYTES and not broken.endswith(bytes(8))
        assert (found.damaged, found.torn) == ((len(broken), 0) if damaged else (0, len(broken)))
    else:
        assert found.damaged >= len(broken)
        assert (found.damaged > len(broken)) == (
            any(names_of(rows) in lost for groups in records[hurt + 1 :] for rows in grouped(groups))
        )


def names_of(rows):
    return rows.series.tobytes()


def test_a_list_is_written_again_before_damage_could_take_much_with_it():
    rows, lists = rows_of([(1, 1, 1.0)]), SeriesListTable()
    sizes = [len(encoded([rows], lists, at)) for at in (0, 100, AGAIN_BYTES - 1, AGAIN_BYTES, AGAIN_BYTES + 100)]
    assert sizes == [80, 64, 64, 80, 64]


def test_values_that_look_like_a_record_are_not_taken_for_one():
    inner = encoded([rows_of([(1, 1, 1.0)])], SeriesListTable())
    rows = rows_of([(2, at, 0.0) for at in range(len(inner) // 8)])
    disguised = encoded([replace(rows, value=_values(inner))], SeriesListTable())
    for broken in (disguised[:-8], disguised[:HEAD_BYTES] + b"\xff" + disguised[HEAD_BYTES + 1 :]):
        assert scan(broken).groups == []


def _values(text):
    import numpy as np

    return np.frombuffer(text, np.float64)
