"""The journal's records: what was written is read again, and nothing else ever is."""

import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.store.rows import GROUPS, listed, rows_of

from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.record import HEAD_BYTES, decode, encode, scan

RECORDS = st.lists(GROUPS, min_size=1, max_size=4)


def grouped(groups):
    return [rows_of(samples, retention) for samples, retention in groups]


@given(GROUPS)
def test_a_record_gives_back_what_it_was_made_of(groups):
    rows = grouped(groups)
    record = encode(rows)
    assert len(record) % 8 == 0
    again = decode(record)
    assert [len(part) for part in again] == [len(part) for part in rows]
    assert [part.retention for part in again] == [part.retention for part in rows]
    assert listed(again) == listed(rows)


def test_a_record_is_laid_out_as_documented():
    rows = rows_of([(7, 1000, 1.5), (7, 2000, 2.5), (3, 5, -1.0)], Retention(raw_days=1, minute_days=2, hour_days=3))
    body = (
        struct.pack("<IIHHHH", 2, 3, 1, 2, 3, 0)
        + struct.pack("<QQQQ", 2, 1, 7, 3)
        + struct.pack("<qqq", 1000, 2000, 5)
        + struct.pack("<ddd", 1.5, 2.5, -1.0)
        + struct.pack("<II", 2, 1)
    )
    head = struct.pack("<4sIQI", b"JMJ1", 1, len(body), zlib.crc32(body))
    assert encode([rows]) == head + struct.pack("<I", zlib.crc32(head)) + body


@given(RECORDS, st.data())
def test_a_segment_that_was_cut_off_gives_its_whole_records(records, data):
    parts = [encode(grouped(groups)) for groups in records]
    segment = b"".join(parts)
    cut = data.draw(st.integers(0, len(segment)))
    whole, end = 0, 0
    while whole < len(parts) and end + len(parts[whole]) <= cut:
        end += len(parts[whole])
        whole += 1
    found = scan(segment[:cut])
    assert (found.damaged, found.torn) == (0, cut - end)
    kept = [rows for groups in records[:whole] for rows in grouped(groups)]
    assert len(found.groups) == len(kept)
    if kept:
        assert listed(found.groups) == listed(kept)


@given(RECORDS, st.data())
def test_a_damaged_record_is_told_of_and_costs_no_other_one(records, data):
    parts = [encode(grouped(groups)) for groups in records]
    hurt = data.draw(st.integers(0, len(parts) - 1))
    place = data.draw(st.integers(0, len(parts[hurt]) - 1))
    broken = bytearray(parts[hurt])
    broken[place] ^= data.draw(st.integers(1, 255))
    found = scan(b"".join([*parts[:hurt], bytes(broken), *parts[hurt + 1 :]]))
    kept = [rows for at, groups in enumerate(records) if at != hurt for rows in grouped(groups)]
    assert len(found.groups) == len(kept)
    if kept:
        assert listed(found.groups) == listed(kept)
    last = hurt == len(parts) - 1
    assert (found.damaged, found.torn) == ((0, len(broken)) if last else (len(broken), 0))


def test_values_that_look_like_a_record_are_not_taken_for_one():
    inner = encode([rows_of([(1, 1, 1.0)])])
    rows = rows_of([(2, at, 0.0) for at in range(len(inner) // 8)])
    disguised = encode([type(rows)(rows.keys, rows.count, rows.time, _values(inner), rows.retention)])
    for broken in (disguised[:-8], disguised[:HEAD_BYTES] + b"\xff" + disguised[HEAD_BYTES + 1 :]):
        assert scan(broken).groups == []


def _values(text):
    import numpy as np

    return np.frombuffer(text, np.float64)
