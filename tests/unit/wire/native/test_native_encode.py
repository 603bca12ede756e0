"""Tests of the agent's frames, read by a reader written from the page that documents the bytes."""

import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.straight_reader import read_body

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, NodeRecord, Records, ReplicaRecord, decode_records
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.wire.native.encode import encode_samples, make_records_frame, make_samples_frame
from jobmeter.wire.native.frame import HEADER, FrameKind, read_frame, write_frame

_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
_LABELS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=4), _NAMES, max_size=3)
_SERIES = st.builds(
    lambda labels, **names: Series(labels=tuple(sorted(labels.items())), **names),
    labels=_LABELS,
    metric=st.sampled_from(["cpu.time", "memory.usage", "gpu.power"]),
    project=_NAMES,
    cluster=_NAMES,
    node=_NAMES,
    device=_NAMES,
    job=_NAMES,
    replica=_NAMES,
    attempt=st.integers(0, 2**31 - 1),
)
_SAMPLES = st.lists(
    st.builds(
        Sample,
        _SERIES,
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=40,
)


@given(_SAMPLES)
def test_every_sample_is_read_back_from_the_documented_bytes(samples):
    (kind, read), *rest = read_body(make_samples_frame(samples))
    assert (kind, rest) == (1, [])
    assert sorted(read, key=repr) == sorted(samples, key=repr)


@given(_SAMPLES)
def test_samples_of_one_series_keep_their_order(samples):
    ((_, read),) = read_body(make_samples_frame(samples))
    for series in {sample.series for sample in samples}:
        assert [s for s in read if s.series == series] == [s for s in samples if s.series == series]


@given(st.lists(_SAMPLES, max_size=4))
def test_a_body_is_frames_one_behind_the_other(batches):
    body = b"".join(make_samples_frame(batch) for batch in batches)
    assert [len(read) for _, read in read_body(body)] == [len(batch) for batch in batches]


def test_records_are_json_as_jobmeter_import_takes_them():
    records = Records(
        jobs=[JobRecord(job_id="j", state=JobState.RUNNING, replicas=[ReplicaRecord(name="worker-0", rank=0)])],
        nodes=[NodeRecord(name="n", info={"cores": 2})],
    )
    ((kind, payload),) = read_body(make_records_frame(records))
    assert kind == 2
    assert json.loads(payload) == {
        "jobs": [{"job_id": "j", "state": "Running", "replicas": [{"name": "worker-0", "rank": 0}]}],
        "nodes": [{"name": "n", "info": {"cores": 2}}],
    }
    assert decode_records(payload) == records


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_cannot_be_sent(value):
    with pytest.raises(InvalidRequestError) as raised:
        encode_samples([Sample(Series("cpu.time"), 0, value)])
    assert raised.value.field == "value"


def test_a_name_longer_than_its_length_field_cannot_be_sent():
    with pytest.raises(InvalidRequestError):
        encode_samples([Sample(Series("cpu.time", node="n" * 70_000), 0, 1.0)])


@given(st.binary(max_size=300), st.integers(0, 9))
def test_a_frame_is_read_back(plain, level):
    written = write_frame(FrameKind.RECORDS, plain, level)
    read = read_frame(b"before" + written + b"JM", 6)
    assert read is not None
    frame, end = read
    assert end == 6 + len(written)
    assert frame.plain_size == len(plain)
    payload = bytes(frame.payload)
    assert (zlib.decompress(payload) if frame.codec == 1 else payload) == plain


@given(st.binary(max_size=100), st.data())
def test_a_frame_cut_anywhere_is_incomplete_not_wrong(plain, data):
    written = write_frame(FrameKind.SAMPLES, plain)
    cut = data.draw(st.integers(0, len(written) - 1))
    assert read_frame(written[:cut]) is None


@given(st.binary(min_size=1, max_size=100), st.data())
def test_no_changed_byte_passes_for_the_frame_that_was_written(plain, data):
    written = bytearray(write_frame(FrameKind.SAMPLES, plain))
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] ^= data.draw(st.integers(1, 255))
    try:
        read = read_frame(bytes(written))
    except InvalidRequestError:
        return
    # The checksum does not cover the kind, the codec and the lengths, which the payload's decoder checks.
    assert read is None or position in {3, 4, *range(8, 16)}


def test_a_frame_that_claims_too_much_is_refused_before_it_is_read():
    head = HEADER.pack(b"JM", 1, 1, 0, bytes(3), 2**31, 2**31, 0)
    with pytest.raises(LimitExceededError):
        read_frame(head)


def test_the_header_is_twenty_bytes_little_endian():
    frame = write_frame(FrameKind.RECORDS, b"{}")
    assert frame == b"JM\x01\x02\x00\x00\x00\x00" + struct.pack("<III", 2, 2, zlib.crc32(b"{}")) + b"{}"
