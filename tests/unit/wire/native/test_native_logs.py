"""Tests of frames of log lines: equal values by the documented form, and a clear refusal of everything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import frames as write
from tests.unit.wire.straight_reader import read_body

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.settings import Limits
from jobmeter.wire.native.decode import decode
from jobmeter.wire.native.frame import read_frame
from jobmeter.wire.native.log_columns import decode_lines
from jobmeter.wire.native.logs import encode_lines, make_logs_frame, read_line_times

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
lines = st.lists(
    st.builds(
        LogLine,
        time_ns=st.integers(-(2**63), 2**63 - 1),
        text=texts,
        job=st.sampled_from(["j", "k", 'odd "name"']),
        project=st.sampled_from(["default", "p-1"]),
        replica=st.sampled_from(["", "worker-0", "worker-1"]),
        attempt=st.integers(0, 3),
        node=st.sampled_from(["", "n1"]),
        stream=st.sampled_from(["stdout", "stderr", "app"]),
        level=st.sampled_from([None, *Level]),
    ),
    max_size=20,
)


def body(streams, codec=1):
    return write.frame(json.dumps({"streams": streams}).encode(), kind=3, codec=codec)


@given(lines)
@settings(max_examples=60, deadline=None)
def test_what_is_sent_is_read(sent):
    read = list(decode(make_logs_frame(sent)).lines)
    assert sorted(read, key=repr) == sorted(sent, key=repr)
    # The lines of one stream keep their order.
    for stream in {(line.job, line.replica, line.stream, line.attempt, line.node, line.project) for line in sent}:
        one, other = (
            [
                line
                for line in some
                if (line.job, line.replica, line.stream, line.attempt, line.node, line.project) == stream
            ]
            for some in (sent, read)
        )
        assert one == other
    frame = read_frame(make_logs_frame(sent))
    assert frame is not None
    assert len(read_line_times(frame[0])) == len(sent)


@given(lines)
@settings(max_examples=60, deadline=None)
def test_what_is_sent_has_the_documented_form(sent):
    ((kind, payload),) = read_body(make_logs_frame(sent))
    assert kind == 3
    found = [
        (stream.get("job"), stream.get("replica", ""), stream.get("stream", "stdout"), time, text, level)
        for stream in json.loads(payload)["streams"]
        for time, text, level in stream["lines"]
    ]
    expected = [
        (line.job, line.replica, line.stream, line.time_ns, line.text, line.level and line.level.value) for line in sent
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_the_documented_form_is_read_in_any_codec(codec):
    streams = [
        {"job": "a", "lines": [[5, "x"], [6, "y", "error"], [7, "z", None]]},
        {"job": "b", "project": "team", "replica": "worker-1", "attempt": 2, "node": "n", "stream": "s", "lines": []},
        {
            "job": "b",
            "project": "team",
            "replica": "worker-1",
            "attempt": 2,
            "node": "n",
            "stream": "s",
            "lines": [[1, ""]],
        },
    ]
    assert list(decode(body(streams, codec), "mine").lines) == [
        LogLine(time_ns=5, text="x", job="a", project="mine"),
        LogLine(time_ns=6, text="y", job="a", project="mine", level=Level.ERROR),
        LogLine(time_ns=7, text="z", job="a", project="mine"),
        LogLine(time_ns=1, text="", job="b", project="team", replica="worker-1", attempt=2, node="n", stream="s"),
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"streams": [{}]}',
        b'{"streams": [{"job": "j"}]}',
        b'{"streams": [{"job": "j", "lines": [[]]}]}',
        b'{"streams": [{"job": "j", "lines": [[1]]}]}',
        b'{"streams": [{"job": "j", "lines": [["1", "x"]]}]}',
        b'{"streams": [{"job": "j", "lines": [[1.5, "x"]]}]}',
        b'{"streams": [{"job": "j", "lines": [[1, "x", null, 4]]}]}',
        b'{"streams": [{"job": "j", "lines": [[1, "\\ud800"]]}]}',
        b'{"streams": [{"job": "j", "lines": [[1, "\xff"]]}]}',
        b'{"streams": [{"job": "j", "lines": [[1, "x"]]}]',
        b"[" * 100_000,
    ],
)
def test_anything_else_is_refused_by_name(payload):
    with pytest.raises(InvalidRequestError) as caught:
        decode(write.frame(payload, kind=3, codec=1))
    assert caught.value.field == "lines"
    frame = read_frame(write.frame(payload, kind=3, codec=1))
    assert frame is not None
    assert len(read_line_times(frame[0])) == 0


@given(st.binary(min_size=1, max_size=200))
@settings(max_examples=150, deadline=None)
def test_noise_is_refused(noise):
    with pytest.raises(InvalidRequestError):
        decode(write.frame(noise, kind=3))


@given(lines.filter(bool), st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_byte_is_refused_or_harmless(sent, data):
    payload = bytearray(encode_lines(sent))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode(write.frame(bytes(payload), kind=3)).lines
    except InvalidRequestError:
        return
    assert len(read) <= len(sent)


def test_lines_are_limited_over_all_frames():
    one = body([{"job": "j", "lines": [[at, "x"] for at in range(6)]}])
    assert len(decode(one + one, limits=Limits(request_lines=12)).lines) == 12
    with pytest.raises(LimitExceededError) as caught:
        decode(one + one, limits=Limits(request_lines=11))
    assert caught.value.field == "lines"


def test_fields_and_levels_of_a_newer_sender_are_left_out_and_named():
    payload = b'{"streams": [{"job": "j", "hue": 1, "lines": [[1, "x", "loud"], [2, "y", "error"]]}], "more": 1}'
    lines, unknown = decode_lines(payload, "p", 10)
    assert [(line.text, line.level) for line in lines] == [("x", None), ("y", Level.ERROR)]
    assert set(unknown) == {"streams.hue", "streams.lines.2='loud'", "more"}
