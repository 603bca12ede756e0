"""Tests of ``jobmeter alerts`` and ``jobmeter silence``."""

import json

import pytest

ALERT = {
    "labels": {"alertname": "GpuIdle", "job_id": "train-1", "severity": "warning", "project": "lab"},
    "annotations": {"summary": "gpu0 has been idle for 60 minutes"},
    "state": "firing",
    "activeAt": "2026-11-20T15:33:56Z",
    "value": "0",
}
FIRING = {"labels": ALERT["labels"], "status": {"silencedBy": ["s1"], "inhibitedBy": [], "state": "suppressed"}}
SILENCE = {
    "id": "s1",
    "status": {"state": "active"},
    "matchers": [{"name": "job_id", "value": "train-1", "isRegex": False, "isEqual": True}],
    "startsAt": "2026-11-20T15:33:56Z",
    "endsAt": "2026-11-20T17:33:56Z",
    "createdBy": "ada",
    "comment": "waiting for data",
}


def with_alerts(server, *alerts):
    server.on("/prometheus/api/v1/alerts", {"status": "success", "data": {"alerts": alerts}})
    server.on("/api/v2/alerts", [FIRING])


def test_alerts_are_listed_with_what_mutes_them(server, run):
    pending = {**ALERT, "labels": {"alertname": "NodeDown"}, "state": "pending", "annotations": {}}
    with_alerts(server, ALERT, pending)
    shown = " ".join(run("alerts").stdout.split())
    assert "GpuIdle firing, muted" in shown
    assert "NodeDown pending" in shown
    found = json.loads(run("alerts", "--firing", "--json").stdout)
    assert [(one["labels"]["alertname"], one["muted"]) for one in found] == [("GpuIdle", ["s1"])]
    server.on("/jobs", {"jobs": [], "total": 0})
    assert json.loads(run("alerts", "--json", "--project", "other").stdout) == []


def test_no_alerts(server, run):
    with_alerts(server)
    assert run("alerts").stdout == "no pending or firing alerts\n"


def test_a_silence_is_added(server, run):
    server.on("/api/v2/silences", {"silenceID": "s2"}, "POST")
    done = run(
        "silence", "add", "job_id=train-1", 'alertname=~"Gpu.*"', "--for", "2h", "--comment", "c", "--author", "a"
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("silence s2 lasts until 20")
    posted = json.loads(server.asked[-1].body)
    assert posted["matchers"] == [
        {"name": "job_id", "value": "train-1", "isRegex": False, "isEqual": True},
        {"name": "alertname", "value": "Gpu.*", "isRegex": True, "isEqual": True},
    ]
    assert (posted["createdBy"], posted["comment"]) == ("a", "c")


def test_silences_are_listed_and_ended(server, run):
    server.on("/api/v2/silences", [SILENCE, {**SILENCE, "id": "s0", "status": {"state": "expired"}}])
    server.on("/api/v2/silence/s1", {}, "DELETE")
    shown = run("silence", "list").stdout
    assert "job_id=train-1" in shown
    assert "s0" not in shown
    assert [one["id"] for one in json.loads(run("silence", "list", "--expired", "--json").stdout)] == ["s1", "s0"]
    assert run("silence", "expire", "s1").stdout == "ended silence s1\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("silence", "add", "x", "--for", "2h", "--comment", "c"), "'x' is not a matcher"),
        (("silence", "add", "a=b", "--for", "soon", "--comment", "c"), "--for"),
        (("silence", "expire", "none"), "there is no silence 'none'"),
    ],
)
def test_errors_are_said(server, run, arguments, problem):
    server.on("/api/v2/silence/none", lambda _: (404, b"\"there is no silence 'none'\"", {}), "DELETE")
    done = run(*arguments)
    assert done.exit_code != 0
    assert problem in f"{done.output}{done.stderr}{done.exception}"
