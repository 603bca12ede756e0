"""Tests of log lines through our own API."""

import json
from typing import Any

import pytest
from tests.support.fakes import NOW

from jobmeter.model.log import LogLine
from jobmeter.wire.native.logs import make_logs_frame

LINES: list[dict[str, Any]] = [
    {"time": NOW - 5_000, "text": "step 1 loss=0.5", "replica": "worker-0"},
    {"time": "2025-12-31T23:59:56.000000123Z", "text": "nan in gradients", "level": "WARN", "stream": "stderr"},
    {"time_ns": str((NOW - 3_000) * 1_000_000 + 7), "text": "Step 2", "replica": "worker-1", "attempt": 1, "node": "n"},
    {"time_ns": (NOW - 2_000) * 1_000_000, "text": "bye é", "level": "fatal", "replica": "worker-0"},
]


@pytest.fixture
def stored(server):
    assert server.call("POST", "/jobs", {"job_id": "j1", "state": "Running", "start": NOW - 60_000}).status == 200
    reply = server.call("POST", "/jobs/j1/logs", {"lines": LINES})
    assert (reply.status, reply.json()) == (200, {"accepted": 4, "rejected": {}})
    return server


def texts(server, query=""):
    return [line["text"] for line in server.call("GET", f"/jobs/j1/logs?{query}").json()["lines"]]


def test_lines_come_back_with_every_field(stored):
    body = stored.call("GET", "/jobs/j1/logs").json()
    assert {name: body[name] for name in body if name != "lines"} == {
        "job": "j1",
        "project": "default",
        "total": None,
        "total_bytes": None,
    }
    assert body["lines"][1] == {
        "time": NOW - 4_000,
        "time_ns": str((NOW - 4_000) * 1_000_000 + 123),
        "text": "nan in gradients",
        "replica": "",
        "attempt": 0,
        "node": "",
        "stream": "stderr",
        "level": "warning",
        "facility": "",
        "severity": None,
        "tag": "",
        "job": "j1",
    }
    assert [line["level"] for line in body["lines"]] == [None, "warning", None, "error"]
    assert (body["lines"][2]["attempt"], body["lines"][2]["node"]) == (1, "n")


def test_the_same_lines_again_count_once(stored):
    stored.call("POST", "/jobs/j1/logs", {"lines": LINES})
    page = stored.call("GET", "/jobs/j1/logs?count=true&limit=0").json()
    assert (page["lines"], page["total"]) == ([], 4)
    assert page["total_bytes"] == sum(len(str(line["text"]).encode()) for line in LINES)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("order=desc", [3, 2, 1, 0]),
        ("order=desc&limit=2", [3, 2]),
        ("limit=1&offset=2", [2]),
        ("replica=worker-0", [0, 3]),
        ("replica=worker-0,worker-1", [0, 2, 3]),
        ("attempt=1", [2]),
        ("attempt=0", [0, 1, 3]),
        ("stream=stderr", [1]),
        ("level=warning", [1, 3]),
        ("level=ERROR", [3]),
        ("level=debug", [0, 1, 2, 3]),
        ("contains=STEP", [0, 2]),
        ("contains=%C3%89", [3]),
        ("contains=.*", []),
        (f"start={NOW - 4_000}", [1, 2, 3]),
        ("start=2025-12-31T23:59:56.000000124Z", [2, 3]),
        (f"end={NOW - 3_000}", [0, 1]),
        ("since=3s", [2, 3]),
        (f"since=2s&end={NOW - 2_000}", [1, 2]),
    ],
)
def test_lines_are_found(stored, query, found):
    assert texts(stored, query) == [LINES[at]["text"] for at in found]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("offset=-1", "offset"),
        ("attempt=-1", "attempt"),
        ("level=loud", "level"),
        ("order=up", "order"),
        ("format=xml", "format"),
        ("start=yesterday", "start"),
        ("since=1h&start=0", "since"),
        ("since=soon", "since"),
        ("count=yes", "count"),
        ("colour=red", "colour"),
        ("format=text&limit=0", "limit"),
    ],
)
def test_a_wrong_parameter_is_named(stored, query, field):
    reply = stored.call("GET", f"/jobs/j1/logs?{query}")
    assert (reply.status, reply.json()["error"]["field"]) == (400, field)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({}, "lines[1]"),
        ({"text": 5}, "lines[1].text"),
        ({"text": "x", "colour": "red"}, "lines[1]"),
        ({"text": "x", "level": "loud"}, "level"),
        ({"text": "x", "time": "yesterday"}, "time"),
        ({"text": "x", "time_ns": "now"}, "time_ns"),
        ({"text": "x", "time_ns": "9" * 19}, "time_ns"),
        ({"text": "x", "time_ns": -1}, "time_ns"),
        ({"text": "x", "replica": "a b"}, "replica"),
        ({"text": "x", "stream": "a/b"}, "stream"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_stored(stored, line, field):
    reply = stored.call("POST", "/jobs/j1/logs", {"lines": [{"text": "good"}, line]})
    assert (reply.status, reply.json()["error"]["field"]) == (400, field)
    assert len(texts(stored)) == 4


def test_lines_without_a_time_are_of_now_in_their_order(stored):
    stored.call("POST", "/jobs/j1/logs", {"lines": [{"text": text} for text in ("c", "a", "b")]})
    assert texts(stored, "order=desc&limit=3") == ["b", "a", "c"]
    assert stored.call("GET", "/jobs/j1/logs?order=desc&limit=1").json()["lines"][0]["time"] == NOW


def test_what_is_too_far_ahead_is_counted(stored):
    reply = stored.call("POST", "/jobs/j1/logs", {"lines": [{"text": "x", "time": NOW + 400_000}, {"text": "y"}]})
    assert reply.json() == {"accepted": 1, "rejected": {"future": 1}}


def test_a_whole_selection_is_streamed(stored):
    count = 12_345
    lines = [
        LogLine(time_ns=(NOW - 100_000) * 1_000_000 + at // 3, text=f"line {at:05} é", job="j1", replica="big")
        for at in range(count)
    ]
    answer = stored.ingest(make_logs_frame(lines)).json()
    assert answer.get("lines") == count, answer
    reply = stored.call("GET", "/jobs/j1/logs?format=text&replica=big")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.body.decode().splitlines() == [line.text for line in lines]
    assert len(reply.chunks) > 2
    backwards = stored.call("GET", "/jobs/j1/logs?format=jsonl&replica=big&order=desc&limit=2500&offset=10")
    assert backwards.headers["content-type"] == "application/x-ndjson"
    found = [json.loads(line) for line in backwards.body.splitlines()]
    assert [line["text"] for line in found] == [line.text for line in lines[::-1][10:2510]]
    named = {"time", "time_ns", "text", "replica", "attempt", "node", "stream", "level"}
    assert set(found[0]) == named | {
        "facility",
        "severity",
        "tag",
        "job",
    }
    assert stored.call("GET", "/jobs/j1/logs?format=text&replica=nobody").body == b""


def test_lines_go_with_their_job(stored):
    assert stored.call("DELETE", "/jobs/j1").status == 200
    assert stored.call("GET", "/jobs/j1/logs").status == 404
    stored.call("POST", "/jobs", {"job_id": "j1"})
    assert texts(stored) == []
