"""Tests of JSON from a newer sender: known fields count, and unknown ones are reported."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.record import JobRecord, Records
from jobmeter.wire.native.lenient_json import decode_lenient

NEWER = {
    "jobs": [
        {"job_id": "a", "mood": 3, "state": "Paused", "replicas": [{"name": "w", "state": "Lost"}, "x"]},
        {"job_id": "b", "mood": {"x": [1]}, "state": "Running", "labels": {"mood": "kept"}},
        {"job_id": "c", "state": "Paused"},
    ],
    "alerts": [],
    "events": [{"time": 1, "job": "a", "level": "fatal"}],
}


def encoded(value):
    return json.dumps(value).encode()


def test_unknown_fields_and_words_are_left_out_and_named_once_each():
    records, unknown = decode_lenient(encoded(NEWER), Records)
    assert [job.job_id for job in records.jobs] == ["a", "b", "c"]
    assert [job.state for job in records.jobs] == [None, "Running", None]
    assert records.jobs[1].labels == {"mood": "kept"}
    assert len(records.events) == 1
    assert set(unknown) == {
        "jobs.mood",
        "jobs.state='Paused'",
        "jobs.replicas.state='Lost'",
        "alerts",
        "events.level='fatal'",
    }
    assert len(unknown) == 5


@pytest.mark.parametrize(
    "wrong", [{"jobs": [{"name": "no id", "mood": 1}]}, {"jobs": [{"job_id": "a", "mood": 1, "start": [1]}]}, []]
)
def test_invalid_values_are_refused_where_unknown_fields_are_ignored(wrong):
    with pytest.raises(msgspec.ValidationError):
        decode_lenient(encoded(wrong), Records)


def test_names_that_are_left_out_are_few():
    with pytest.raises(msgspec.ValidationError):
        decode_lenient(encoded({"jobs": [{"job_id": "a", **{f"f{n}": 1 for n in range(17)}}]}), Records)


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_unknown_name_or_word_is_left_out_or_refused(name, word):
    fields = set(JobRecord.__struct_fields__)
    value = {"jobs": [{**({name: 1} if name not in fields else {}), "job_id": "a", "state": word}]}
    try:
        records, unknown = decode_lenient(encoded(value), Records)
    except msgspec.ValidationError:
        return
    assert records.jobs[0].job_id == "a"
    assert len(unknown) <= 2
