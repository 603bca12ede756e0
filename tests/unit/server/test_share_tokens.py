"""Tests that a share token opens one job's measurements: no permitted answer has other fields of the record."""

import json
from urllib.parse import urlencode

import pytest
from tests.support.fakes import NOW
from tests.support.frames import records, samples

from jobmeter.access.decide import SHARED
from jobmeter.access.signatures import SHARE
from jobmeter.dialects.registry import list_dialects

CLOSED = "closed-to-strangers"
"""Marker in every field of the record that does not belong to the measurements."""
CHECK = [{"CheckNumber": 1, "Phase": "DeviceCheck", "Status": "Succeeded"}]
JOB = {
    "job_id": "mine",
    "name": CLOSED,
    "type": CLOSED,
    "user": CLOSED,
    "workspace": CLOSED,
    "resource_group": CLOSED,
    "command": CLOSED,
    "error": CLOSED,
    "labels": {CLOSED: CLOSED},
    "instance_type": {"id": CLOSED, "name": CLOSED, "gpu_type": CLOSED},
    "checkpoints": [{"id": CLOSED}],
    "extra": {
        "pai-dlc": {"SanityCheckResults": [CHECK], "EnvironmentVariables": {CLOSED: CLOSED}},
        "modelarts": {"x": CLOSED},
    },
    "start": NOW - 600_000,
    "replicas": [{"name": "worker-0", "cluster": CLOSED, "reason": CLOSED}],
}
SPAN = {"StartTime": NOW - 600_000, "EndTime": NOW}
TSDB = {"start": (NOW - 600_000) // 1000, "end": NOW // 1000}
METRIC = "gpu.utilization"
TARGETS = {
    ("pai-dlc", "GetMetrics"): ("/api/v1/cms/metrics", {"MetricName": "CARD_GPU_DUTY_CYCLE", "JobId": "mine", **SPAN}),
    ("pai-dlc", "GetJobMetrics"): ("/api/v1/jobs/mine/metrics", {"MetricType": "GpuCoreUsage"}),
    ("pai-dlc", "GetJobSanityCheckResult"): ("/api/v1/jobs/mine/sanitycheckresult", {"SanityCheckNumber": 1}),
    ("opentsdb", "query"): ("/api/query", {"m": f"sum:{METRIC}", **TSDB}),
    ("opentsdb", "last"): ("/api/query/last", {"timeseries": METRIC, "resolve": ""}),
    ("opentsdb", "lookup"): ("/api/search/lookup", {"m": METRIC}),
    ("opentsdb", "suggest"): ("/api/suggest", {"type": "tagv"}),
}


def shared_operations():
    return [
        (dialect, operation)
        for dialect in list_dialects()
        if SHARE in dialect.schemes
        for operation in dialect.operations
        if operation.action in SHARED
    ]


@pytest.fixture
def shared(server):
    """Calls of the server with a share token for ``mine``; another job has the same data."""
    gpu = [
        ({"metric": METRIC, "job": job, "replica": "worker-0", "node": "n1", "device": "gpu0"}, [(NOW - 60_000, 0.5)])
        for job in ("mine", "other")
    ]
    sent = server.ingest(records({"jobs": [JOB, {**JOB, "job_id": "other"}]}) + samples(gpu))
    assert sent.status == 200, sent.body
    token = server.call("POST", "/jobs/mine/share", {"expires_in": 60}).json()["token"]

    def get(path, query):
        return server.raw("GET", f"{path}?{urlencode({**query, 'Token': token})}")

    return get


def test_every_operation_that_a_share_token_opens_is_queried_here():
    assert {(dialect.name, operation.name) for dialect, operation in shared_operations()} == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS.values(), ids=[" ".join(name) for name in TARGETS])
def test_an_answer_holds_nothing_of_the_record_but_what_measurements_need(shared, target):
    reply = shared(*target)
    assert reply.status == 200, reply.body
    assert any(word in reply.body for word in (b"gpu0", b"mine", b"DeviceCheck")), "there is something to see"
    assert CLOSED.encode() not in reply.body
    assert b"other" not in reply.body


def test_points_name_neither_user_nor_workspace(shared):
    points = json.loads(shared(*TARGETS["pai-dlc", "GetMetrics"]).json()["DataPoints"])
    assert points
    assert all(set(point).isdisjoint({"userId", "workspaceId"}) for point in points)


def test_an_operation_that_a_share_token_does_not_open_is_refused(shared):
    opened = {operation.path for _, operation in shared_operations()}
    for dialect in list_dialects():
        for operation in dialect.operations if SHARE in dialect.schemes else ():
            if operation.path not in opened and operation.method == "GET":
                reply = shared(operation.path.replace("{JobId}", "mine"), {})
                assert reply.status in {400, 401, 403, 404}, operation.name
                assert CLOSED.encode() not in reply.body


def test_our_own_api_takes_no_share_token(shared):
    for path in ("/jobs", "/jobs/mine", "/jobs/mine/metrics?metric=cpu.usage"):
        assert shared(f"/api/jobmeter/v1{path.partition('?')[0]}", {"metric": METRIC}).status == 401
