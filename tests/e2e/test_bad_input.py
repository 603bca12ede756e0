"""Tests of bad input to every API: the error names the field in the API's own form, and nothing is stored."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.frames import frame, payload, row, samples
from tests.support.processes import API, ServerProcess, running

NOW = int(time.time() * 1000)
GOOD = row("gpu.utilization", [(NOW - 1000, 0.5)], node="n1", device="gpu0", job="good")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("bad") / "data") as made:
        assert made.ingest(samples([GOOD])).json()["accepted"] == 1
        yield made


def bad(**changes) -> bytes:
    values = {"metric": "gpu.utilization", "points": [(NOW, 0.5)], "node": "n1", "device": "gpu0", "job": "bad"}
    return samples([row(**{**values, **changes})])


BODIES = {
    "not frames": (b"hello there", "body"),
    "truncated": (bad()[:-3], "body"),
    "trailing bytes": (bad() + b"x", "body"),
    "unknown version": (b"JM\x09" + bad()[3:], "body"),
    "unknown kind": (frame(payload([GOOD]), kind=77), "body"),
    "unknown codec": (bad()[:4] + b"\x09" + bad()[5:], "body"),
    "broken compression": (frame(b"", codec=1)[:20] + b"\x00" * 9, "body"),
    "wrong checksum": (bad()[:16] + b"\0\0\0\0" + bad()[20:], "body"),
    "a bomb": (struct.pack("<2sBBB3xIII", b"JM", 1, 1, 1, 4, 2**32 - 1, 0) + b"abcd", "body"),
    "a million series that are not there": (frame(struct.pack("<II", 1_000_000, 0)), "body"),
    "NaN": (bad(points=[(NOW, float("nan"))]), "value"),
    "infinity": (bad(points=[(NOW, float("inf"))]), "value"),
    "percent sent as a ratio": (bad(points=[(NOW, 57.0)]), "value"),
    "negative memory": (bad(metric="memory.usage", points=[(NOW, -5.0)]), "value"),
    "negative time": (bad(points=[(-5, 0.5)]), "time"),
    "microseconds": (bad(points=[(NOW * 1000, 0.5)]), "time"),
    "a job id that climbs": (bad(job="../../etc/passwd"), "job"),
    "a node with a control character": (bad(node="n1\x1b[2J"), "node"),
    "a project with a space": (bad(project="a b"), "project"),
    "labels out of order": (bad(labels=(("b", "1"), ("a", "2"))), "labels"),
    "records that are not JSON": (frame(b"{nope", kind=2), ""),
    "a record without an id": (frame(json.dumps({"jobs": [{"name": "x"}]}).encode(), kind=2), "job_id"),
    "a record with a wrong type": (
        frame(json.dumps({"jobs": [{"job_id": "bad", "start": [1]}]}).encode(), kind=2),
        "start",
    ),
    "good and bad together": (samples([GOOD]) + bad(node="n 1"), "node"),
}


def test_records_of_a_newer_agent_are_accepted_without_unknown_fields(server: ServerProcess) -> None:
    newer = {"jobs": [{"job_id": "newer", "mood": 1, "state": "Paused", "replicas": [{"name": "w", "mood": 2}]}]}
    body = samples([row(metric="cpu.usage", points=[(NOW, 1.0)], job="newer")])
    body += bad(metric="gpu.utilisation", job="newer") + frame(json.dumps(newer).encode(), kind=2)
    for _ in range(2):
        reply = server.ingest(body).json()
        assert (reply["accepted"], reply["records"], reply["rejected"]) == (1, 1, {"unknown_metric": 1})
        assert reply["unknown"] == ["gpu.utilisation", "jobs.mood", "jobs.state='Paused'", "jobs.replicas.mood"]
        assert abs(reply["time"] - time.time() * 1000) < 60_000
    assert server.call("GET", f"{API}/jobs/newer").status == 200


@pytest.mark.parametrize("name", BODIES)
def test_ingest_rejects_invalid_bodies_atomically(server: ServerProcess, name: str) -> None:
    body, field = BODIES[name]
    reply = server.ingest(body)
    assert reply.status in {400, 413}, reply.body
    error = reply.json()["error"]
    assert error["message"]
    named = f"{error.get('field', '')} {error['message']}"
    if field != "body":
        assert field in named, error
    assert server.call("GET", f"{API}/jobs/bad").status == 404


def test_a_sample_from_the_future_is_counted_not_stored(server: ServerProcess) -> None:
    reply = server.ingest(samples([row("app.x", [(NOW + 3_600_000, 1.0), (NOW, 2.0)], job="future")]))
    assert reply.status == 200
    assert reply.json()["accepted"] == 1
    assert reply.json()["rejected"] == {"future": 1}


def test_a_sample_older_than_the_retention_is_counted_not_stored(server: ServerProcess) -> None:
    reply = server.ingest(samples([row("app.x", [(NOW - 400 * 86_400_000, 1.0)], job="past")]))
    assert reply.status == 200
    assert reply.json()["rejected"] == {"expired": 1}
    assert server.call("GET", f"{API}/jobs/past").status == 404


QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "no metric": ({}, "metric"),
    "unknown metric": ({"metric": "gpu.utilisation"}, "metric"),
    "step of zero": ({"metric": "gpu.utilization", "step": "0s"}, "step"),
    "negative step": ({"metric": "gpu.utilization", "step": "-5m"}, "step"),
    "step in fortnights": ({"metric": "gpu.utilization", "step": "5fortnights"}, "step"),
    "end before start": ({"metric": "gpu.utilization", "start": NOW, "end": NOW - 1}, "end"),
    "start that is no time": ({"metric": "gpu.utilization", "start": "yesterday-ish"}, "start"),
    "negative start": ({"metric": "gpu.utilization", "start": -5}, "start"),
    "too many buckets": ({"metric": "gpu.utilization", "start": 0, "end": NOW, "step": "1ms"}, "step"),
    "by nobody": ({"metric": "gpu.utilization", "by": "phase-of-the-moon"}, "by"),
    "unknown aggregate": ({"metric": "gpu.utilization", "aggregate": "mode"}, "aggregate"),
    "unknown statistic": ({"metric": "gpu.utilization", "statistic": "mode"}, "statistic"),
    "unknown parameter": ({"metric": "gpu.utilization", "stpe": "5m"}, "stpe"),
    "unknown format": ({"metric": "gpu.utilization", "format": "docx"}, "format"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_cannot_be_meant_names_its_field(server: ServerProcess, name: str) -> None:
    query, field = QUESTIONS[name]
    reply = server.call("GET", f"{API}/jobs/good/metrics", **query)
    assert reply.status == 400, reply.body
    error = reply.json()["error"]
    assert error["code"] in {"invalid_request", "limit_exceeded"}
    assert field in f"{error.get('field', '')} {error['message']}"


VENDOR: dict[str, tuple[str, dict[str, Any], int, str, str]] = {
    "no metric type": ("good", {}, 400, "MissingParameter", "MetricType"),
    "unknown metric type": ("good", {"MetricType": "Heat"}, 400, "InvalidParameter", "MetricType"),
    "unknown unit": ("good", {"MetricType": "GpuCoreUsage", "TimeStep": "5x"}, 400, "InvalidParameter", "TimeStep"),
    "step of zero": ("good", {"MetricType": "GpuCoreUsage", "TimeStep": "0"}, 400, "InvalidParameter", "TimeStep"),
    "not a time": ("good", {"MetricType": "GpuCoreUsage", "StartTime": "noon"}, 400, "InvalidParameter", "StartTime"),
    "unknown job": ("nobody", {"MetricType": "GpuCoreUsage"}, 404, "", "nobody"),
}


@pytest.mark.parametrize("name", VENDOR)
def test_pai_dlc_refuses_in_its_own_form(server: ServerProcess, name: str) -> None:
    job, query, status, code, field = VENDOR[name]
    reply = server.call("GET", f"/api/v1/jobs/{job}/metrics", **query)
    assert reply.status == status, reply.body
    error = reply.json()
    assert code in error["Code"]
    assert field in error["Message"]
    assert error["RequestId"]
    assert reply.headers["x-acs-request-id"] == error["RequestId"]


def test_a_body_larger_than_the_limit_is_413(tmp_path: Path) -> None:
    with running(tmp_path / "data", environment={"JOBMETER_LIMIT_BODY_BYTES": "10000"}) as small:
        reply = small.ingest(b"JM" + b"x" * 20_000)
        assert reply.status == 413
        assert reply.json()["error"]["code"] == "limit_exceeded"
