"""Tests of job records: valid ones are read, and invalid ones are refused with the path of the field."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import JobState
from jobmeter.model.record import decode_record, decode_records, list_replicas, normalize_limits, record_time
from jobmeter.model.time import parse_time

FULL = {
    "job_id": "dlc1",
    "name": "train",
    "type": "PyTorchJob",
    "state": "Running",
    "project": "team",
    "user": "ada",
    "resource_group": "rg",
    "workspace": "ws",
    "created": "2026-01-01T00:00:00Z",
    "start": 1767225600000,
    "end": None,
    "error": "",
    "instance_type": {"cpu": 8, "gpu_type": "H100"},
    "limits": {"cpu": 8, "memory.limit": 1024},
    "replicas": ["worker-0", {"name": "worker-1", "attempt": 1, "devices": ["gpu0"], "start": "2026-01-01"}],
}


def test_a_full_record_is_read():
    record = decode_record(json.dumps(FULL).encode())
    assert (record.job_id, record.state, record.project) == ("dlc1", JobState.RUNNING, "team")
    assert record_time(record.created, "created") == record.start == parse_time("2026-01-01")
    assert [replica.name for replica in list_replicas(record)] == ["worker-0", "worker-1"]
    assert normalize_limits(record.limits or {}) == {"cpu.limit": 8.0, "memory.limit": 1024.0}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"job_id": "a/b"}, "job_id"),
        ({"job_id": 5}, "job_id"),
        ({"state": "Dreaming"}, "state"),
        ({"project": "a_b"}, "project"),
        ({"created": "yesterday"}, "created"),
        ({"start": -5}, "start"),
        ({"end": 4102444800001}, "end"),
        ({"end": True}, "end"),
        ({"limits": {"cpu": -1}}, "limits.cpu"),
        ({"limits": {"cpu": "many"}}, "limits[...]"),
        ({"replicas": [{"name": "a b"}]}, "replicas.name"),
        ({"replicas": [{"name": "w", "start": "soon"}]}, "replicas.start"),
        ({"replicas": [{"name": "w", "devices": ["../gpu"]}]}, "replicas.devices"),
        ({"replicas": [{"attempt": 0}]}, "replicas[0]"),
        ({"allocations": [{"replica": "w", "node": "n n", "device": "gpu0", "start": 1}]}, "allocations"),
        ({"colour": "red"}, ""),
    ],
)
def test_what_is_wrong_is_named(changes, field):
    with pytest.raises(InvalidRequestError) as caught:
        decode_record(json.dumps({**FULL, **changes}).encode())
    assert caught.value.field == field


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b'{"job_id":', b"{}", b'{"job_id":"a"} x'])
def test_what_is_no_record(data):
    with pytest.raises(InvalidRequestError):
        decode_record(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.sampled_from([*FULL, "allocations", "labels", "exit_code", "command"]), json_values))
def test_any_json_is_read_or_refused_and_nothing_else(changes):
    with suppress(InvalidRequestError):
        decode_records(json.dumps({"jobs": [{**FULL, **changes}]}).encode())
