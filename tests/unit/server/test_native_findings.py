"""Tests of findings and the timeline through our own API, and of the findings that the server maintains."""

import math
from contextlib import suppress

import pytest
from tests.support.fakes import NOW
from tests.support.frames import samples

from jobmeter.errors import UnavailableError
from jobmeter.model.finding import Finding
from jobmeter.model.time import HOUR, SECOND, format_iso
from jobmeter.server.diagnosing import JOBS_PER_ROUND, MOST_TRIES, RETRY_MS, SETTLE_MS, Diagnosing

BEGAN = (NOW - 1500) // SECOND * SECOND
LINES = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: empty batch"]


def job(name="j1", **more):
    start = NOW - HOUR
    replica = {"name": "worker-0", "node": "n1", "start": start, "end": NOW - 1000, "exit_code": 1, "state": "Failed"}
    fields = {"state": "Failed", "start": start, "end": NOW - 1000, "exit_code": 1, "replicas": [replica]}
    return {"job_id": name, **fields, **more}


@pytest.fixture
def failed(server):
    assert server.call("POST", "/jobs", {"jobs": [job()], "nodes": [{"name": "n1"}]}).status == 200
    lines = [
        {"text": text, "time": NOW - 1500 + at, "replica": "worker-0", "stream": "stderr", "level": level}
        for at, (text, level) in enumerate(zip(LINES, ["error", None, "error"], strict=True))
    ]
    assert server.call("POST", "/jobs/j1/logs", {"lines": lines}).status == 200
    return server


def diagnosing(server):
    return next(one.work for one in server.application.background if one.work.name == "diagnose")


def stored_findings(server, name="j1"):
    events = server.call("GET", f"/jobs/{name}/events").json()["events"]
    return [event for event in events if event["reason"] == "Finding"]


def test_the_findings_of_a_job_are_an_array_with_every_field(failed):
    answer = failed.call("GET", "/jobs/j1/findings")
    [one] = answer.json()
    assert list(one) == list(Finding.__struct_fields__)
    assert (one["rule"], one["role"], one["severity"]) == ("python_exception", "root", "critical")
    assert one["subject"] == {"kind": "replica", "name": "worker-0"}
    assert one["evidence"][0]["text"] == "ValueError: empty batch"
    assert (one["start"], one["end"]) == (NOW - 1500, NOW - 1000)


def test_a_job_that_is_well_has_none(server):
    server.call("POST", "/jobs", {"job_id": "j2", "state": "Running", "start": NOW - 5000})
    assert server.call("GET", "/jobs/j2/findings").json() == []


def test_measured_devices_that_idle_are_found(server):
    times = range(NOW - HOUR, NOW, 10_000)
    record = {"job_id": "j3", "state": "Running", "start": NOW - HOUR, "replicas": [{"name": "w-0", "node": "n1"}]}
    server.call("POST", "/jobs", record)
    rows = [
        ({"metric": "gpu.utilization", "job": "j3", "replica": "w-0", "node": "n1", "device": f"gpu{at}"},
         [(time, at * (0.8 + 0.1 * math.sin(time))) for time in times])
        for at in range(2)
    ]  # fmt: skip
    assert server.ingest(samples(rows)).status == 200
    found = {one["rule"]: one for one in server.call("GET", "/jobs/j3/findings").json()}
    assert set(found) == {"gpu_idle_allocated", "gpu_partly_unused"}
    assert found["gpu_idle_allocated"]["subject"] == {"kind": "device", "name": "n1/gpu0"}


def test_a_limit_that_the_record_alone_says_is_one(server):
    start = NOW - HOUR
    record = {"job_id": "j6", "state": "Running", "start": start, "limits": {"memory.limit": 1e9}}
    server.call("POST", "/jobs", {**record, "replicas": [{"name": "w-0", "node": "n1"}]})
    rows = [({"metric": "memory.usage", "job": "j6", "replica": "w-0", "node": "n1"},
             [(time, 0.98e9) for time in range(start, NOW, 10_000)])]  # fmt: skip
    assert server.ingest(samples(rows)).status == 200
    assert [one["rule"] for one in server.call("GET", "/jobs/j6/findings").json()] == ["host_mem_near_limit"]


def test_a_full_filesystem_of_its_node_is_found_and_others_are_not(server):
    replica = {"name": "w-0", "node": "n1"}
    record = {"job_id": "j4", "state": "Running", "start": NOW - HOUR, "replicas": [replica]}
    server.call("POST", "/jobs", {"jobs": [record], "nodes": [{"name": "n1"}, {"name": "n2"}]})

    def rows(node, free):
        series = [("node.filesystem.size", 100.0), ("node.filesystem.available", free)]
        return [({"metric": name, "node": node}, [(NOW - 60_000, value), (NOW - 1, value)]) for name, value in series]

    assert server.ingest(samples([*rows("n1", 1.0), *rows("n2", 0.0)])).status == 200
    [one] = server.call("GET", "/jobs/j4/findings").json()
    assert (one["rule"], one["severity"], one["subject"]["name"]) == ("fs_full", "critical", "n1:")


def test_the_timeline_is_in_order_and_has_every_kind(failed):
    moments = failed.call("GET", "/jobs/j1/timeline").json()
    assert [moment["time"] for moment in moments] == sorted(moment["time"] for moment in moments)
    assert {moment["kind"] for moment in moments} == {"state", "finding", "log"}
    assert [moment["text"] for moment in moments if moment["kind"] == "log"] == [LINES[0], LINES[2]]
    only = failed.call("GET", "/jobs/j1/timeline?kind=finding&limit=1").json()
    assert [moment["name"] for moment in only] == ["python_exception"]
    refused = failed.call("GET", "/jobs/j1/timeline?kind=nonsense")
    assert (refused.status, refused.json()["error"]["field"]) == (400, "kind")


def test_a_finished_job_is_diagnosed_by_itself_once(failed):
    work = diagnosing(failed)
    work.round()
    assert stored_findings(failed) == []
    failed.clock.time_ms += SETTLE_MS
    work.round()
    [event] = stored_findings(failed)
    assert event["level"] == "error"
    assert (
        event["message"]
        == f"python_exception (replica worker-0): worker-0 (n1): ValueError: empty batch (since {format_iso(BEGAN)})"
    )
    assert [moment["kind"] for moment in failed.call("GET", "/jobs/j1/timeline?kind=event").json()] == []
    failed.call("POST", "/jobs", job())
    for _ in range(3):
        failed.clock.time_ms += SETTLE_MS
        work.round()
    assert len(stored_findings(failed)) == 1


def test_a_listing_and_the_report_of_an_ended_job_agree(failed):
    """Two lost ranks, an out-of-memory error, an idle device: both have the same order and the same first finding."""
    start, end = NOW - HOUR, NOW - 1000
    ranks = [
        {"name": f"w-{at}", "rank": at, "node": "n1", "start": start, "end": end - 5000 * at, "exit_code": code,
         "state": "Failed", "devices": [f"gpu{at}"]}
        for at, code in enumerate((1, 137, 1))
    ]  # fmt: skip
    failed.call("POST", "/jobs", job("many", replicas=ranks))
    rows = [
        ({"metric": "gpu.utilization", "job": "many", "replica": f"w-{at}", "node": "n1", "device": f"gpu{at}"},
         [(time, 0.9 * (at > 0)) for time in range(start, end, 10_000)])
        for at in range(3)
    ]  # fmt: skip
    assert failed.ingest(samples(rows)).status == 200
    lines = [{"text": text, "time": end - 4000, "replica": "w-2", "stream": "stderr"} for text in LINES]
    lines.append({"text": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "time": end - 900,
                  "replica": "w-0", "stream": "stderr"})  # fmt: skip
    assert failed.call("POST", "/jobs/many/logs", {"lines": lines}).status == 200
    failed.clock.time_ms += SETTLE_MS
    diagnosing(failed).round()
    failed.clock.time_ms += SETTLE_MS
    diagnosing(failed).round()
    report = failed.call("GET", "/jobs/many/findings").json()
    [listed] = failed.call("GET", "/jobs?id=many&findings=true").json()["findings"]
    assert len(report) > 2
    assert listed["rules"] == list(dict.fromkeys(one["rule"] for one in report))
    assert (listed["severity"], listed["sentence"]) == (report[0]["severity"], report[0]["sentence"])
    assert listed["start"] // 1000 == report[0]["start"] // 1000


@pytest.mark.parametrize("method", ["find_job_head", "record", "list_events"])
def test_what_fails_for_a_moment_is_done_again(failed, monkeypatch, method):
    work, real, failures = diagnosing(failed), getattr(failed.application.services.registry, method), 3

    def away(*arguments, **named):
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise UnavailableError("away")
        return real(*arguments, **named)

    monkeypatch.setattr(failed.application.services.registry, method, away)
    for _ in range(20):
        with suppress(UnavailableError):
            work.round()
        failed.clock.time_ms += RETRY_MS
    assert failures < 0
    assert [event["message"] for event in stored_findings(failed)] == [
        f"python_exception (replica worker-0): worker-0 (n1): ValueError: empty batch (since {format_iso(BEGAN)})"
    ]


def test_what_fails_for_good_is_given_up(failed, monkeypatch):
    work, attempts = diagnosing(failed), []

    def broken(*_):
        attempts.append(1)
        raise UnavailableError("away")

    monkeypatch.setattr(work, "_diagnose", broken)
    for _ in range(40):
        work.round()
        failed.clock.time_ms += RETRY_MS
    assert len(attempts) == MOST_TRIES


def test_another_server_does_not_report_it_again(failed):
    failed.clock.time_ms += SETTLE_MS
    services = failed.application.services
    first = diagnosing(failed)
    second = Diagnosing(services.executor, services.registry, services.thresholds, services.clock)
    for work in (first, second):
        work.round()
        failed.clock.time_ms += SETTLE_MS
        work.round()
    assert len(stored_findings(failed)) == 1


def test_a_job_that_ended_long_ago_and_one_that_runs_are_left_alone(server):
    old = job("old", start=NOW - 9 * HOUR, end=NOW - 3 * HOUR)
    server.call("POST", "/jobs", {"jobs": [old, {"job_id": "runs", "state": "Running"}]})
    work = diagnosing(server)
    work.round()
    server.clock.time_ms += SETTLE_MS
    work.round()
    assert stored_findings(server, "old") == stored_findings(server, "runs") == []


def test_a_round_is_bounded_and_the_next_ones_go_on(server):
    server.call("POST", "/jobs", {"jobs": [job(f"b{at}") for at in range(JOBS_PER_ROUND + 3)]})
    work = diagnosing(server)
    work.round()
    server.clock.time_ms += SETTLE_MS
    work.round()
    assert sum(len(stored_findings(server, f"b{at}")) for at in range(JOBS_PER_ROUND + 3)) == JOBS_PER_ROUND
    work.round()
    assert sum(len(stored_findings(server, f"b{at}")) for at in range(JOBS_PER_ROUND + 3)) == JOBS_PER_ROUND + 3


def test_a_job_that_was_deleted_meanwhile_is_passed_over(failed):
    work = diagnosing(failed)
    work.round()
    failed.call("DELETE", "/jobs/j1")
    failed.clock.time_ms += SETTLE_MS
    work.round()
    assert failed.call("GET", "/jobs/j1/findings").status == 404
