"""Tests of ``jobmeter logs`` against the fake server."""

import json
from urllib.parse import parse_qs

import pytest

from jobmeter.cli import logs as verb
from jobmeter.client.bodies import LogEntry
from jobmeter.errors import UnavailableError

BASE = 1_790_000_000_000


def entry(at, text, **parts):
    line = {"time": BASE + at, "time_ns": str((BASE + at) * 1_000_000 + 5), "text": text, "replica": "worker-0"}
    return {"attempt": 0, "node": "n", "stream": "stdout", "level": None, **line, **parts}


def answer(*entries):
    return "".join(json.dumps(one) + "\n" for one in entries).encode()


def job(*replicas):
    return {"job": {"id": "j", "state": "Running"}, "replicas": [{"name": name} for name in replicas]}


@pytest.fixture
def stored(server):
    server.on("/jobs/j", job("worker-0"))
    server.on("/jobs/j/logs", answer(entry(0, "one"), entry(1, "two é", level="error"), entry(2, "\x1b[2Jthree")))
    return server


def test_options_become_parameters(stored, run):
    stored.on("/jobs/j", job("worker-0", "worker-1"))
    result = run(
        "logs", "j", "--replica", "worker-0", "--replica", "worker-1", "--attempt", "2", "--stream", "stderr",
        "--level", "warning", "--contains", "na n", "--since", "1h", "--end", "1790000000000", "--project", "p",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert stored.asked[-1].parameters == {
        "replica": ["worker-0", "worker-1"],
        "attempt": ["2"],
        "stream": ["stderr"],
        "level": ["warning"],
        "contains": ["na n"],
        "since": ["1h"],
        "end": ["1790000000000"],
        "project": ["p"],
        "format": ["jsonl"],
    }


def test_the_texts_are_printed_as_they_are(stored, run):
    assert run("logs", "j").stdout_bytes == "one\ntwo é\n\x1b[2Jthree\n".encode()


def test_timestamps_have_nanoseconds(stored, run):
    assert run("logs", "j", "--timestamps").stdout.splitlines()[0] == "2026-09-21T14:13:20.000000005Z one"


def test_lines_of_several_replicas_begin_with_their_own(stored, run):
    stored.on("/jobs/j", job("worker-0", "worker-1"))
    stored.on(
        "/jobs/j/logs", answer(entry(0, "a"), entry(1, "b", replica="worker-1", attempt=2), entry(2, "c", replica=""))
    )
    assert run("logs", "j").stdout.splitlines() == ["worker-0 | a", "worker-1 attempt 2 | b", "- | c"]
    assert run("logs", "j", "--replica", "worker-1").stdout.splitlines() == ["a", "b", "c"]


def test_the_tail_is_requested_backwards(stored, run):
    stored.on("/jobs/j/logs", answer(entry(5, "newest"), entry(4, "before")))
    assert run("logs", "j", "--tail", "2").stdout.splitlines() == ["before", "newest"]
    assert stored.asked[-1].parameters == {"order": ["desc"], "limit": ["2"], "format": ["jsonl"]}
    assert run("logs", "j", "--tail", "0").stdout == ""


def test_json_is_an_array(stored, run):
    rows = json.loads(run("logs", "j", "--json").stdout)
    assert [row["text"] for row in rows] == ["one", "two é", "\x1b[2Jthree"]
    system = {"facility": "", "severity": None, "tag": "", "job": ""}
    assert rows[1] == {**entry(1, "two é", level="error"), **system}
    stored.on("/jobs/j/logs", b"")
    assert json.loads(run("logs", "j", "--json").stdout) == []


def test_a_job_that_there_is_not_is_reported(server, run):
    result = run("logs", "nothing")
    assert result.exit_code == 1


def test_follow_excludes_an_end(stored, run):
    assert run("logs", "j", "--follow", "--end", "1").exit_code == 2


@pytest.mark.parametrize("tail", [(), ("--tail", "2")])
def test_follow_reports_each_line_once_until_the_job_has_ended(stored, run, monkeypatch, tail):
    monkeypatch.setattr("time.sleep", lambda _: None)
    stored_lines = [entry(at, f"line {at}") for at in (0, 9_000, 9_001)]
    looks = 0

    def read(asked):
        nonlocal looks
        looks += 1
        if looks > 1:
            stored_lines.append(entry(9_001 + looks, f"line {9_001 + looks}"))
        if looks == 3:
            return 503, {"error": {"code": "unavailable", "message": "for a moment"}}, {}
        start = int(asked.parameters.get("start", ["0"])[0])
        found = [one for one in stored_lines if one["time"] >= start]
        if "limit" in asked.parameters:
            found = found[::-1][: int(asked.parameters["limit"][0])]
        return 200, answer(*found), {}

    stored.on("/jobs/j/logs", read)
    stored.on(
        "/jobs",
        lambda _: (200, {"jobs": [{"id": "j", "state": "Running" if looks < 4 else "Succeeded"}], "total": 1}, {}),
    )
    result = run("logs", "j", "--follow", "--json", *tail)
    assert result.exit_code == 0, result.output
    texts = [json.loads(line)["text"] for line in result.stdout.splitlines()]
    assert texts == [one["text"] for one in stored_lines[1 if tail else 0 :]]
    starts = [one.parameters.get("start") for one in stored.asked if one.path.endswith("/logs")]
    assert starts[1] == [str(BASE + 9_001 - 10_000)]


def test_follow_from_now_on_reports_nothing_old(stored, run, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    stored.on("/jobs", {"jobs": [{"id": "j", "state": "Failed"}], "total": 1})
    assert run("logs", "j", "--follow", "--tail", "0").stdout == ""


@pytest.mark.parametrize(
    ("text", "level", "shown"),
    [
        ("plain", None, "plain"),
        ("bad", "error", "\x1b[31mbad\x1b[0m"),
        ("\x1b[32mgreen\x1b[0m", "error", "\x1b[32mgreen\x1b[0m\x1b[0m"),
        ("\x1b[2J\x1b]0;title\x07\ttab\r", None, "�[2J�]0;title�\ttab�"),
    ],
)
def test_a_terminal_gets_colours_and_nothing_else_that_it_acts_on(monkeypatch, text, level, shown):
    monkeypatch.delenv("NO_COLOR", raising=False)
    form = verb._Form(timestamps=False, replica=False, terminal=True)
    assert form.format_line(LogEntry(text=text, level=level)) == shown


def test_an_answer_that_breaks_off_is_reported(stored, run):
    stored.on(
        "/jobs/j/logs", lambda _: (200, answer(entry(0, "one")), {"Content-Length": "5000", "Connection": "close"})
    )
    result = run("logs", "j")
    assert result.exit_code == 1
    assert isinstance(result.exception, UnavailableError)


def test_the_query_is_encoded(stored, run):
    run("logs", "j", "--contains", "a&b=c é")
    assert parse_qs("contains=a%26b%3Dc+%C3%A9")["contains"] == stored.asked[-1].parameters["contains"]
