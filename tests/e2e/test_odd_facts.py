"""Nodes, groups and odd jobs through every API: sums over a node, old samples, jobs without record, name or replicas.

The oracle is pandas on the stored samples.
"""

import json
import time
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pandas as pd
import pytest

from tests.support.frames import Row, records, row, samples
from tests.support.processes import API, Reply, running

pytestmark = pytest.mark.slow

MINUTE, DAY, GIB = 60_000, 86_400_000, 2.0**30
STEP = 5 * MINUTE
PLACES = {"worker-0": "n1", "worker-1": "n1", "worker-2": "n2"}
COUNTERS = {"network.receive": 1e6, "network.transmit": 2e6, "disk.read": 3e6, "disk.write": 4e6}
GAUGES = {"cpu.usage": 1.0, "cpu.limit": 4.0, "memory.usage": GIB, "memory.limit": 8 * GIB}
INFO = {
    "n1": {
        "cores": 64,
        "memory": int(256 * GIB),
        "devices": [
            {"device": "gpu0", "name": "NVIDIA A100-SXM4-80GB"},
            {"device": "gpu1", "name": "NVIDIA A100-SXM4-80GB"},
        ],
    },
    "n2": {"cores": 32, "memory": int(128 * GIB), "devices": [{"device": "gpu0", "name": "Tesla V100-SXM2-32GB"}]},
}


@cache
def _now() -> int:
    """Return the current minute. Earlier samples would be too old: a job that is silent for long counts as lost."""
    return int(time.time() * 1000) // MINUTE * MINUTE


def _end() -> int:
    return _now() - 7 * MINUTE


def _start() -> int:
    return _end() - 10 * MINUTE


def _rows(job: str, places: dict[str, str], end: int) -> list[Row]:
    """Return samples in which each replica uses more than the one before. Device numbers count within a node."""
    found = []
    moments = range(end - 10 * MINUTE, end, 15_000)
    for number, (replica, node) in enumerate(places.items(), 1):
        for metric, rate in COUNTERS.items():
            found.append(
                row(metric, [(at, rate * number * (at - _start()) / 1000) for at in moments], job, replica, node=node)
            )
        for metric, value in GAUGES.items():
            grown = value if metric.endswith("limit") else value * number
            found.append(row(metric, [(at, grown) for at in moments], job, replica, node=node))
        points = [(at, 0.2 * number) for at in moments]
        found.append(row("gpu.utilization", points, job, replica, node=node, device=f"gpu{(number - 1) % 2}"))
    return found


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    group = _rows("group", PLACES, _end())
    odd = [*_rows("bare", {"worker-0": "m1"}, _now()), *_rows("whole", {"": "m2"}, _now())]
    began = _now() - 40 * DAY
    bodies = [
        {"job_id": "group", "state": "Running", "resource_group": "rg", "user": "ann", "start": _start()},
        {"job_id": "dark", "state": "Running", "start": _start()},
        {"job_id": "long", "state": "Running", "start": began, "replicas": [{"name": "worker-0"}]},
    ]
    long = row("cpu.utilization", [(_now() - 2 * DAY + at * MINUTE, 0.01 * at) for at in range(100)], "long")
    with running(tmp_path_factory.mktemp("odd") / "data") as server:
        for body in bodies:
            assert server.call("POST", f"{API}/jobs", json.dumps(body).encode()).status == 200
        nodes = [{"name": name, "resource_group": "rg", "info": info} for name, info in INFO.items()]
        assert server.ingest(records({"nodes": nodes})).status == 200
        assert server.ingest(samples([*group, *odd, long])).json()["rejected"] == {}
        columns = ["metric", "replica", "node", "time", "value"]
        flat = [(one.metric, one.replica, one.node, at, value) for one, points in group for at, value in points]
        yield server, pd.DataFrame(flat, columns=columns)


def _ok(reply: Reply) -> Any:
    assert reply.status == 200, reply.body
    return reply.json()


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _by_node(frame: pd.DataFrame, metric: str) -> pd.Series:
    """Sum the mean (or mean rate) of each replica by node and bucket; average the utilization of GPUs."""
    mine = frame[frame.metric == metric].copy()
    mine["bucket"] = mine.time // STEP * STEP
    keys = ["node", "replica", "bucket"]
    if metric in COUNTERS:
        mine["gain"], mine["passed"] = mine.groupby("replica").value.diff(), mine.groupby("replica").time.diff() / 1000
        sums = mine.dropna().groupby(keys)[["gain", "passed"]].sum()
        members = sums.gain / sums.passed
    else:
        members = mine.groupby(keys).value.mean()
    joined = members.groupby(["node", "bucket"])
    return joined.mean() if metric == "gpu.utilization" else joined.sum()


NODE_METRICS = {
    "NetworkInputRate": ("network.receive", "", 1e-6),
    "NetworkOutputRate": ("network.transmit", "", 1e-6),
    "DiskReadRate": ("disk.read", "", 1e-6),
    "DiskWriteRate": ("disk.write", "", 1e-6),
    "CpuUsageRate": ("cpu.usage", "cpu.limit", 100.0),
    "MemoryUsageRate": ("memory.usage", "memory.limit", 100.0),
    "GpuUsageRate": ("gpu.utilization", "", 100.0),
}


@pytest.mark.parametrize("name", NODE_METRICS)
def test_a_node_has_the_sum_of_what_its_replicas_do(stored, name):
    server, frame = stored
    metric, limit, factor = NODE_METRICS[name]
    expected = _by_node(frame, metric)
    expected = expected / _by_node(frame, limit) if limit else expected
    span = {"StartTime": _iso(_start()), "EndTime": _iso(_end()), "TimeStep": "5m"}
    body = _ok(server.call("GET", f"/api/v1/resources/rg/nodemetrics/{name}", **span))
    found = {
        (node["NodeID"], point["Time"]): float(point["Value"])
        for node in body["NodesMetrics"]
        for point in node["Metrics"]
    }
    assert found == pytest.approx((expected * factor).to_dict(), rel=1e-9)
    assert {node["NodeID"]: node["GPUType"] for node in body["NodesMetrics"]} == {"n1": "A100", "n2": "V100"}


@pytest.mark.parametrize("metric", [*COUNTERS, "cpu.usage", "memory.usage", "memory.limit", "gpu.utilization"])
def test_our_own_node_metrics_are_the_same(stored, metric):
    server, frame = stored
    found: dict[tuple[str, int], float] = {}
    for node in INFO:
        asked = {"metric": metric, "start": _start(), "end": _end(), "step": "5m"}
        (line,) = _ok(server.call("GET", f"{API}/nodes/{node}/metrics", **asked))["lines"]
        found |= {(node, at): value for at, value in line["points"]}
    assert found == pytest.approx(_by_node(frame, metric).to_dict(), rel=1e-9)


def test_a_running_job_requests_what_it_did_when_it_was_measured_last(stored):
    server, _ = stored
    body = _ok(server.call("GET", "/api/v1/resources/data/request", ResourceGroupID="rg"))
    assert (body["requestCPU"], body["requestMemory"]) == (12, 3 * 8 * 2**20)
    assert body["requestGPUInfos"] == [{"type": "A100", "count": 2}, {"type": "V100", "count": 1}]
    (user,) = _ok(server.call("GET", "/api/v1/resources/rg/usermetrics", PageNumber="1", PageSize="9"))["UserMetrics"]
    assert (user["RequestCPU"], user["RequestGPU"], user["CPUUsageRate"]) == (12, 3, "")
    total = _ok(server.call("GET", "/api/v1/resources/data/total", ResourceGroupID="rg"))
    assert total["totalGPUInfos"] == [{"type": "A100", "count": 2}, {"type": "V100", "count": 1}]


ODD = ("bare", "whole", "dark", "long")


@pytest.mark.parametrize("job", ODD)
def test_an_odd_job_is_answered_by_every_operation(stored, job):
    server, _ = stored
    huawei, studio = f"/v2/default/training-jobs/{job}", f"/api/v1/trainingjobs/{job}"
    baseten = f"/v1/training_projects/default/jobs/{job}"
    for path, query in (
        (f"{huawei}/events", {}),
        (f"{huawei}/stages", {}),
        (f"{huawei}/ft-metrics", {}),
        (f"{huawei}/logs/worker-0", {}),
        (f"{huawei}/tasks/worker-0/logs/preview", {}),
        (f"/api/v1/jobs/{job}", {"NeedDetail": "true"}),
        (f"/api/v1/jobs/{job}/events", {}),
        ("/api/v1/cms/metrics", {"JobId": job, "MetricName": "JOB_MEMORY_FREE", "Period": "900"}),
        (f"{studio}/metrics", {}),
        (f"{studio}/latestmetrics", {}),
        (f"{studio}/events", {}),
        (f"{studio}/logs", {}),
        (f"{baseten}/metrics", {}),
        (f"{baseten}/logs", {}),
        (baseten, {}),
    ):
        assert server.call("GET", path, **query).status in {200, 204}, path


@pytest.mark.parametrize("job", ODD)
def test_an_odd_job_is_reported_with_its_names_and_times(stored, job):
    server, _ = stored
    huawei = f"/v2/default/training-jobs/{job}"
    body = _ok(server.call("GET", huawei))
    first = {"dark": _start(), "long": _now() - 40 * DAY}.get(job, _now() - 10 * MINUTE)
    assert body["metadata"]["create_time"] == first
    assert body["metadata"]["name"] == job
    assert body["status"]["tasks"] == ["worker-0"]
    assert all("end_at" not in record for record in body["status"].get("running_records", ()))
    (task,) = _ok(server.call("GET", f"{huawei}/tasks"))
    assert (task["task"], task["schedule_count"]) == ("worker-0", 1)
    search = json.dumps({"filters": [{"key": "name", "operator": "in", "value": [job]}]}).encode()
    found = _ok(server.call("POST", "/v2/default/training-job-searches", search))
    assert [one["metadata"]["id"] for one in found["items"]] == [job]
    span = {"StartTime": _iso(_now() - 41 * DAY), "EndTime": _iso(_now() + MINUTE)}
    listed = _ok(server.call("GET", "/api/v1/jobs", DisplayName=job, DisplayNameSearchMode="Exact", **span))
    assert [(one["JobId"], one["GmtCreateTime"]) for one in listed["Jobs"]] == [(job, _iso(first))]


def test_a_job_of_forty_days_is_answered_minute_by_minute(stored):
    server, _ = stored
    body = _ok(server.call("GET", "/v2/default/training-jobs/long/metrics/worker-0"))
    values = {one["metric"]: one["value"] for one in body["metrics"]}
    lengths = {len(series) for series in values.values()}
    # The current minute counts only if it has a measurement.
    assert lengths <= {40 * 1440 + minutes for minutes in range(10)}
    first = 38 * 1440
    assert values["cpuUsage"][first - 1 : first + 101] == [-1, *range(100), -1]


@pytest.mark.parametrize(("job", "name"), [("bare", "bare-worker-0"), ("whole", "whole-m2")])
def test_members_of_odd_jobs_have_names(stored, job, name):
    server, _ = stored
    span = {"StartTime": _iso(_now() - 15 * MINUTE), "EndTime": _iso(_now())}
    asked = {"MetricType": "NetworkInputRate", "TimeStep": "1h", **span}
    (pod,) = _ok(server.call("GET", f"/api/v1/jobs/{job}/metrics", **asked))["PodMetrics"]
    (one,) = _ok(server.call("GET", f"/api/v1/trainingjobs/{job}/instancemetrics", **asked))["InstanceMetrics"]
    assert pod["PodId"] == one["InstanceId"] == name
    body = _ok(server.call("GET", f"/v2/default/training-jobs/{job}/metrics/worker-0"))
    values = {series["metric"]: series["value"] for series in body["metrics"]}
    assert values["cpuUsage"][:10] == [25] * 10
    assert values["gpuUtil"][:10] == [20] * 10
