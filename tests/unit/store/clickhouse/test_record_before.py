"""Tests of segments of earlier programs: they are read, and their losses are counted."""

import struct
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.store.older_journal import HEAD_BYTES, Lists, encode, record
from tests.unit.store.rows import GROUPS, LONG, SHORT, days_of, listed, rows_of

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series import Series
from jobmeter.store.clickhouse.record_before import scan
from jobmeter.store.clickhouse.rows import SampleRuns

RECORDED = Path(__file__).parents[1] / "segments" / "jmj3.journal"
"""Segment written by the last program with this format: descriptors, and lists that are named again."""
RECORDS = st.lists(GROUPS, min_size=1, max_size=4)


def segment_of(records):
    """Return the records of a segment. Runs of the same series share one list."""
    lists, keys = Lists(), dict[tuple[bytes, bytes], SeriesKeys]()
    parts = list[bytes]()
    for groups in records:
        rows = [rows_of(samples, retention) for samples, retention in groups]
        named = [(one.job.tobytes(), one.series.tobytes()) for one in rows]
        group = [replace(one, keys=keys.setdefault(name, one.keys)) for one, name in zip(rows, named, strict=True)]
        parts.append(encode(group, lists))
    return parts


def test_the_last_program_with_this_format_is_read():
    found = scan(RECORDED.read_bytes())
    assert (found.lost.rows, found.damaged, found.unfinished) == (0, 0, 0)
    labels = (("b", "\n"), ("é", "1"))
    series = [Series("gpu.power", job="a", device="gpu0", labels=labels), Series("app.loss", job="b")]
    keys = SeriesKeys.from_series(series)
    first = SampleRuns(keys, np.array([2, 1]), np.array([1000, 2000, 5]), np.array([1.5, 2.5, -1.0]), LONG)
    again = SampleRuns(keys, np.ones(2, np.int64), np.array([3000, 3000]), np.array([3.5, 4.5]), SHORT)
    assert listed(found.groups) == listed([first, again, rows_of([(1, 7, 0.5)])])
    (descriptors,) = [rows.descriptors for rows in found.groups if rows.descriptors is not None]
    assert list(descriptors.series) == series
    assert descriptors.days.tolist() == [20_000, 20_001]


def test_records_of_still_earlier_programs_are_read():
    old = (
        struct.pack("<IIHHHH", 2, 3, *days_of(LONG), 0)
        + struct.pack("<QQQQ", 2, 1, 7, 3)
        + struct.pack("<qqq", 1000, 2000, 5)
        + struct.pack("<ddd", 1.5, 2.5, -1.0)
        + struct.pack("<II", 2, 1)
    )
    without_descriptors = record(b"JMJ2", old[:14] + struct.pack("<HQ", 1, 1) + old[16:])
    later = without_descriptors + encode([rows_of([(7, 3000, 3.5)])], Lists())
    found = scan(record(b"JMJ1", old) + later + record(b"JMJ1", old)[:-1])
    samples = [*[(7, 1000, 1.5), (7, 2000, 2.5), (3, 5, -1.0)] * 2, (7, 3000, 3.5)]
    assert listed(found.groups) == listed([rows_of(samples)])
    assert (found.lost.rows, found.damaged, found.unfinished) == (0, 0, 24 + len(old) - 1)


@given(RECORDS, st.data())
def test_a_segment_that_was_cut_off_gives_its_whole_records(records, data):
    parts = segment_of(records)
    segment = b"".join(parts)
    cut = data.draw(st.integers(0, len(segment)))
    # A file may have grown before its content reached the disk.
    left = segment[:cut] + bytes(data.draw(st.sampled_from([0, len(segment)])))
    whole, end = 0, 0
    while whole < len(parts) and left[end:].startswith(parts[whole]):
        end += len(parts[whole])
        whole += 1
    found = scan(left)
    assert (found.lost.rows, found.damaged, found.unfinished) == (0, 0, len(left) - end)
    expected = [rows_of(*one) for groups in records[:whole] for one in groups]
    assert len(found.groups) == len(expected)
    if expected:
        assert listed(found.groups) == listed(expected)


@given(RECORDS, st.data())
def test_a_damaged_record_costs_none_but_those_of_its_lists_and_what_is_lost_is_no_more_than_was_said(records, data):
    parts = segment_of(records)
    hurt = data.draw(st.integers(0, len(parts) - 1))
    place = data.draw(st.integers(0, len(parts[hurt]) - 1))
    broken = bytearray(parts[hurt])
    broken[place] ^= data.draw(st.integers(1, 255))
    found = scan(b"".join([*parts[:hurt], bytes(broken), *parts[hurt + 1 :]]))
    every = [[rows_of(*one) for one in groups] for groups in records]
    lost = {names_of(rows) for rows in every[hurt]} - {names_of(rows) for groups in every[:hurt] for rows in groups}
    expected = [
        rows
        for at, groups in enumerate(every)
        for rows in groups
        if at < hurt or (at > hurt and names_of(rows) not in lost)
    ]
    assert len(found.groups) == len(expected)
    if expected:
        assert listed(found.groups) == listed(expected)
    missing = sum(len(rows) for groups in every for rows in groups) - sum(map(len, expected))
    if hurt == len(parts) - 1 and (place < HEAD_BYTES or broken.endswith(bytes(8))):
        # No record follows: only a complete length with other content distinguishes damage from a truncated write.
        assert (found.lost.rows, found.unfinished) == (0, len(broken))
    else:
        assert missing <= found.lost.rows
        assert found.lost.at_most
        assert found.damaged == len(broken)


def names_of(rows):
    return rows.series.tobytes()
