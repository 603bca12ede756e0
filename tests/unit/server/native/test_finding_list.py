"""Tests of ``GET /findings``: the stored findings of all jobs that a caller may see."""

import pytest
from tests.support.fakes import NOW
from tests.support.serving import Serving

XID = "xid (device n1/gpu0): worker-0 (n1, gpu0): XID 79 (since 2026-11-20T15:33:20Z)"


@pytest.fixture
def filled(server):
    for project in ("p", "q"):
        jobs = [
            {"job_id": f"{project}-{state}", "project": project, "name": "train", "user": "lin", "state": state}
            for state in ("Running", "Failed")
        ]
        own = {"project": project, "time": NOW - 1000, "reason": "Finding", "subject": "device n1/gpu0"}
        events = [{**own, "job": job["job_id"], "level": "error", "message": XID} for job in jobs]
        assert server.call("POST", "/jobs", {"jobs": jobs, "events": events}).status == 200
    return server


def listed(server: Serving, query: str = "", key=None):
    return [one["job"] for one in server.call("GET", f"/findings?{query}", key=key).json()["findings"]]


def test_a_finding_is_open_while_its_job_runs(filled):
    assert sorted(listed(filled)) == ["p-Failed", "p-Running", "q-Failed", "q-Running"]
    assert sorted(listed(filled, "open=true")) == ["p-Running", "q-Running"]
    found = {one["job"]: one for one in filled.call("GET", "/findings").json()["findings"]}
    assert [found[job]["open"] for job in ("p-Running", "p-Failed")] == [True, False]
    one = found["p-Running"]
    assert (one["rule"], one["severity"], one["sentence"]) == ("xid", "critical", "worker-0 (n1, gpu0): XID 79")
    assert (one["name"], one["user"], one["state"]) == ("train", "lin", "Running")


def test_a_key_of_one_project_learns_nothing_of_others(filled):
    key = filled.key("reader", "q")
    assert sorted(listed(filled, key=key)) == ["q-Failed", "q-Running"]
    assert filled.call("GET", "/findings?project=p", key=key).status == 403
    states = filled.call("GET", "/jobs?states=true", key=key).json()["states"]
    assert states == {"Failed": 1, "Running": 1}


def test_pages_follow_each_other(filled):
    first = filled.call("GET", "/findings?limit=3").json()
    second = filled.call("GET", "/findings?limit=3&offset=3").json()
    assert (first["more"], second["more"]) == (True, False)
    assert len({one["job"] for one in first["findings"] + second["findings"]}) == 4


def test_findings_that_are_left_out_make_no_page_shorter(filled):
    """Newer findings about jobs without a record are left out, and the pages are still full."""
    gone = [
        {"time": NOW + at, "reason": "Finding", "job": f"gone-{at}", "project": "p", "level": "error", "message": XID}
        for at in range(20)
    ]
    assert filled.call("POST", "/jobs", {"events": gone}).status == 200
    pages = [filled.call("GET", f"/findings?limit=2&offset={offset}").json() for offset in (0, 2, 4)]
    assert [(len(page["findings"]), page["more"]) for page in pages] == [(2, True), (2, False), (0, False)]
    assert len({one["job"] for page in pages for one in page["findings"]}) == 4


@pytest.mark.parametrize("query", ["finding=no_such_rule", "severity=bad", "limit=0", "open=perhaps"])
def test_an_argument_that_is_wrong_is_named(filled, query):
    reply = filled.call("GET", f"/findings?{query}")
    assert (reply.status, reply.json()["error"]["field"]) == (400, query.partition("=")[0])


def test_states_are_counted_whatever_state_is_listed(filled):
    body = filled.call("GET", "/jobs?state=Failed&states=true&sizes=true").json()
    assert (body["total"], body["states"]) == (2, {"Failed": 2, "Running": 2})
    assert body["sizes"] == [{"replicas": 0, "devices": 0, "nodes": 0}] * 2
