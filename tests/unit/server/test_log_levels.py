"""Tests of severities: a line with a severity has a level and is found by it, in any form and by any API."""

import json

import pytest
from tests.support.fakes import NOW

from jobmeter.model.log import LogLine
from jobmeter.wire.native.logs import make_logs_frame

_NAMES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_LEVELS = ("error", "error", "error", "error", "warning", "info", "info", "debug")
_OTHER = {"emergency": 0, "panic": 0, "critical": 2, "fatal": 2, "error": 3, "warn": 4, "informational": 6, "trace": 7}
SPELLINGS = [(number, number) for number in range(8)] + [(str(number), number) for number in range(8)]
SPELLINGS += [(case(name), number) for number, name in enumerate(_NAMES) for case in (str.lower, str.upper, str.title)]
SPELLINGS += [(case(name), number) for name, number in _OTHER.items() for case in (str.lower, str.upper)]


def found_by_level(server, path):
    """Return the level of each text, found by a search for each level."""
    found: dict[str, str] = {}
    for level in ("debug", "info", "warning", "error"):
        reply = server.call("GET", f"{path}?query=level:{level}&limit=1000")
        assert reply.status == 200, reply.body
        found |= {line["text"]: level for line in reply.json()["lines"]}
    return found


def test_pushed_severities_of_a_node_are_levels(server):
    texts = {f"line {at}": spelling for at, spelling in enumerate(SPELLINGS)}
    lines = [{"text": text, "severity": given} for text, (given, _) in texts.items()]
    assert server.call("POST", "/nodes/n1/logs", {"lines": lines}).json()["accepted"] == len(lines)
    expected = {text: _LEVELS[number] for text, (_, number) in texts.items()}
    assert found_by_level(server, "/nodes/n1/logs") == expected
    shown = server.call("GET", "/nodes/n1/logs?limit=1000").json()["lines"]
    assert {line["text"]: line["level"] for line in shown} == expected
    assert {line["text"]: line["severity"] for line in shown} == {text: number for text, (_, number) in texts.items()}
    least = server.call("GET", "/nodes/n1/logs?level=warning&limit=1000").json()["lines"]
    assert {line["text"] for line in least} == {
        text for text, level in expected.items() if level in {"warning", "error"}
    }


def test_a_pushed_line_as_a_syslog_daemon_forwards_it_says_its_severity_and_its_facility(server):
    lines = [{"text": f"<{priority}>1 2026-11-20T15:00:00Z host app - - - x"} for priority in range(192)]
    assert server.call("POST", "/nodes/n1/logs", {"lines": lines}).status == 200
    shown = server.call("GET", "/nodes/n1/logs?limit=1000").json()["lines"]
    assert [line["severity"] for line in shown] == [priority % 8 for priority in range(192)]
    assert [line["level"] for line in shown] == [_LEVELS[priority % 8] for priority in range(192)]
    assert [shown[at * 8]["facility"] for at in (0, 1, 3, 16, 23)] == ["kern", "user", "daemon", "local0", "local7"]
    # The sender's fields count more than the text of the line.
    other = {"text": "<0>as it was", "severity": "info", "facility": "MAIL", "stream": "other"}
    assert server.call("POST", "/nodes/n1/logs", {"lines": [other]}).status == 200
    (line,) = server.call("GET", "/nodes/n1/logs?stream=other").json()["lines"]
    assert (line["facility"], line["severity"], line["level"]) == ("mail", 6, "info")


def test_a_pushed_line_without_a_severity_has_the_level_that_its_text_states(server):
    server.ingest(make_logs_frame([LogLine(time_ns=NOW * 1_000_000, text="first", job="j1")]))
    texts = {
        "2024/05/01 12:00:00 [error] 1#1: x": "error",
        "[rank3]:[E1124 15:00:00.1 a.cpp:1] y": "error",
        "error: 0": None,
    }
    lines = [{"text": text} for text in texts]
    for path in ("/nodes/n1/logs", "/jobs/j1/logs"):
        assert server.call("POST", path, {"lines": lines}).status == 200
        shown = server.call("GET", path).json()["lines"]
        assert {line["text"]: line["level"] for line in shown if line["text"] in texts} == texts


@pytest.mark.parametrize("facility", [0, "0", "KERN", "kern"])
def test_a_facility_is_a_name_in_any_case_or_a_number(server, facility):
    assert server.call("POST", "/nodes/n1/logs", {"lines": [{"text": "x", "facility": facility}]}).status == 200
    assert [line["facility"] for line in server.call("GET", "/nodes/n1/logs").json()["lines"]] == ["kern"]


def test_pushed_levels_of_a_job_are_words_and_numbers_of_syslog(server):
    server.ingest(make_logs_frame([LogLine(time_ns=NOW * 1_000_000, text="first", job="j1")]))
    lines = [{"text": f"line {at}", "level": given} for at, (given, _) in enumerate(SPELLINGS)]
    assert server.call("POST", "/jobs/j1/logs", {"lines": lines}).json()["accepted"] == len(lines)
    expected = {f"line {at}": _LEVELS[number] for at, (_, number) in enumerate(SPELLINGS)}
    assert found_by_level(server, "/jobs/j1/logs") == expected


def test_severities_of_an_agent_s_lines_are_levels_where_it_names_none(server):
    lines = [
        LogLine(
            time_ns=NOW * 1_000_000 + at, text=f"line {at}", node="n1", facility="kern", stream="kernel", severity=at
        )
        for at in range(8)
    ]
    server.call("POST", "/nodes/n1/logs", {"lines": [{"text": "makes the node"}]})
    assert server.ingest(make_logs_frame(lines)).status == 200
    assert found_by_level(server, "/nodes/n1/logs") == {f"line {at}": level for at, level in enumerate(_LEVELS)}


def test_severities_of_log_records_of_opentelemetry_are_levels(server):
    numbers = {f"number {at}": ({"severityNumber": at}, (at - 1) // 4) for at in range(1, 25)}
    words = {f"word {at}": ({"severityText": given}, number) for at, (given, number) in enumerate(SPELLINGS[8:])}
    short = {f"short {at}": ({"severityText": f"ERROR{at}"}, 3) for at in range(2, 5)}
    expected = {
        text: ("debug", "debug", "info", "warning", "error", "error")[kind] for text, (_, kind) in numbers.items()
    }
    expected |= {text: _LEVELS[number] for text, (_, number) in (words | short).items()}
    records = [
        {"timeUnixNano": str(NOW * 1_000_000 + at), "body": {"stringValue": text}, **given}
        for at, (text, (given, _)) in enumerate((numbers | words | short).items())
    ]
    resource = {"attributes": [{"key": "jobmeter.job.id", "value": {"stringValue": "j1"}}]}
    body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}
    headers = {"Authorization": f"Bearer {server.admin.token}", "Content-Type": "application/json"}
    assert server.raw("POST", "/v1/logs", json.dumps(body).encode(), headers).status == 200
    assert found_by_level(server, "/jobs/j1/logs") == expected
