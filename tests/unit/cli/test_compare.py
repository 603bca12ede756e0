"""Tests of the output of ``jobmeter compare``: the server's explanation first, then tables."""

import json

import msgspec
import pytest
from tests.unit.cli.test_jobs import SUMMARY

from jobmeter.cli.compare import change
from jobmeter.model.comparison import compare_settings
from jobmeter.model.job import Job

JOB = {"name": "train", "project": "p", "state": "Succeeded", "start": 1_790_000_000_000, "recorded": True}
COMPARISON = {
    "jobs": [{"job": {"id": name, **JOB}, "summary": SUMMARY} for name in ("a", "b")],
    "step": 1000,
    "lines": [],
}
SENTENCE = "B took 42 min longer than A: 31 min of it input, 8 min restarts, 3 min unattributed [bold]\x1b[2J"
DIFFERENCE = {
    "a": "a",
    "b": "b",
    "labels": ["A", "B"],
    "a_ms": 3_600_000,
    "b_ms": 6_120_000,
    "difference_ms": 2_520_000,
    "sentence": SENTENCE,
    "parts": [
        {"cause": "input", "a": 60_000, "b": 1_920_000, "text": "utilization: 92 % in A, 61 % in B"},
        {"cause": "restart", "a": 0, "b": 480_000, "text": "number: 0 in A, 1 in B"},
        {"cause": "unattributed", "a": 0, "b": 180_000},
        {"cause": "compute", "a": 3_540_000, "b": 3_540_000},
    ],
    "unknown": {"first_step": "a: the program reports no steps", "end": "b: gone", "start": "b: gone"},
}


def test_the_sentence_comes_first_and_the_table_has_every_part_and_the_whole(server, run):
    server.on("/compare", COMPARISON)
    server.on("/compare/causes", [DIFFERENCE])
    text = run("compare", "a", "b").stdout
    assert text.startswith(SENTENCE.partition("\x1b")[0])
    assert "\x1b" not in text
    rows = [line.split("  ") for line in text.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["input", "1m", "32m", "+31m", "utilization: 92 % in A, 61 % in B"] in cells
    assert ["restarts", "0s", "8m", "+8m", "number: 0 in A, 1 in B"] in cells
    assert ["compute", "59m", "59m", "-"] in cells
    assert ["whole", "1h", "1h 42m", "+42m"] in cells
    assert "unknown: first step (a: the program reports no steps)" in text
    assert "unknown: end, start (b: gone)" in text
    asked = [one for one in server.asked if one.path.endswith("/causes")]
    assert [one.parameters["job"] for one in asked] == [["a", "b"]]


def test_json_has_the_explanation_too(server, run):
    server.on("/compare", COMPARISON)
    server.on("/compare/causes", [DIFFERENCE])
    found = json.loads(run("compare", "a", "b", "--json").stdout)
    assert set(found) == {"jobs", "step", "lines", "settings", "differences"}
    (difference,) = found["differences"]
    assert {name: difference[name] for name in DIFFERENCE if name != "parts"} == {
        name: value for name, value in DIFFERENCE.items() if name != "parts"
    }
    assert sum(part["b"] - part["a"] for part in difference["parts"]) == difference["difference_ms"]


def test_a_server_of_an_older_release_has_no_explanation(server, run):
    server.on("/compare", COMPARISON)
    result = run("compare", "a", "b")
    assert result.exit_code == 0
    assert "A  a" in result.stdout
    assert json.loads(run("compare", "a", "b", "--json").stdout)["differences"] == []


def test_settings_that_differ_and_differences_of_usage_are_shown(server, run):
    other = {"user": "lin", "type": "PyTorchJob", "labels": {"team": "x"}, "limits": {"memory.limit": 2**30}}
    job = {"id": "b", **JOB, **other, "command": "train [b] --lr 0.2"}
    metrics = [
        {"metric": "cpu.usage", "unit": "{core}", "job_mean": 3.75, "job_max": 3.5},
        {"metric": "memory.usage", "unit": "By", "job_mean": 5 * 2**30, "job_max": 2**32},
    ]
    compared = [
        {"summary": SUMMARY, "job": {"id": "a", **JOB, "user": "lin", "type": "PyTorchJob", "command": "train [b]"}},
        {"job": job, "summary": {**SUMMARY, "metrics": metrics}},
    ]
    records = [msgspec.convert(one["job"], Job) for one in compared]
    settings = [msgspec.to_builtins(one) for one in compare_settings(records)]
    server.on("/compare", {**COMPARISON, "jobs": compared, "settings": settings})
    text = run("compare", "a", "b").stdout
    assert "command differs\n  A  train [b]\n  B  train [b] --lr 0.2\n" in text
    assert "label team differs\n  A  -\n  B  x\n" in text
    assert "memory.limit differs\n  A  -\n  B  1.0 GiB\n" in text
    assert "equal settings: type, user, project" in text
    rows = {line[:18].strip(): line.split()[-1] for line in text.splitlines() if line.startswith(("cpu", "mem"))}
    assert (rows["cpu.usage mean"], rows["cpu.usage peak"], rows["memory.usage mean"]) == ("+25%", "0%", "5.0")


def test_the_findings_of_each_job_are_shown_and_usage_of_one_device_on_request(server, run):
    found = {
        "id": "b",
        "project": "p",
        "severity": "critical",
        "count": 2,
        "rules": ["xid", "oom"],
        "sentence": "XID 79",
    }
    metric = {"metric": "gpu.power", "unit": "W", "job_mean": 800, "job_max": 900, "mean": 100, "max": 120}
    compared = [
        {"job": {"id": name, **JOB}, "summary": {**SUMMARY, "metrics": [metric]}, "findings": findings}
        for name, findings in (("a", None), ("b", found))
    ]
    server.on("/compare", {**COMPARISON, "jobs": compared})
    text = run("compare", "a", "b").stdout
    assert "findings\n  A  none\n  B  critical: XID 79 (+1) (xid, oom)\n" in text
    assert "800 W" in text
    assert "per" not in server.asked[0].parameters
    text = run("compare", "a", "b", "--per", "device").stdout
    assert "used per device" in text
    assert "100 W" in text
    assert "800 W" not in text
    assert [one.parameters["per"] for one in server.asked if "per" in one.parameters] == [["device"]]


@pytest.mark.parametrize(
    ("before", "after", "unit", "text"),
    [
        (0.88, 0.8, "1", "-8.0 points"),
        (0.80001, 0.8, "1", "0 points"),
        (60, 62.5, "Cel", "+2.5 °C"),
        (100, 112, "W", "+12%"),
        (100, 12, "W", "-88%"),
        (100, 340, "W", "x 3.4"),
        (0, 3, "W", "-"),
        (None, 3, "W", "-"),
        (3, None, "1", "-"),
    ],
)
def test_a_difference(before, after, unit, text):
    assert change(before, after, unit) == text


def test_jobs_that_are_too_large_to_explain_say_so(server, run):
    server.on("/compare", COMPARISON)
    problem = {"error": {"code": "limit_exceeded", "message": "a query may read 5 rows", "field": "range"}}
    server.on("/compare/causes", lambda _: (400, problem, {}))
    text = run("compare", "a", "b").stdout
    assert "no explanation of the difference: a query may read 5 rows" in text
    assert "A  a" in text
