"""Answers of every API about a single stored job: converted to base units, they are equal.

The oracle is pandas on the stored samples. Requests are plain HTTP with a key's token; the vendors' own clients have
separate tests.
"""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.frames import Row, row, samples
from tests.support.processes import API, Reply, ServerProcess, running

pytestmark = pytest.mark.slow

JOB, MINUTE = "dlc-facts", 60_000
END = int(time.time() * 1000) // MINUTE * MINUTE - 5 * MINUTE
START = END - 10 * MINUTE
GIB = 2.0**30
LIMITS = {"cpu": 8, "memory": 64 * GIB}
GAUGES = {"gpu.utilization": (0, 1), "gpu.memory.usage": (1e9, 8e10), "cpu.usage": (0, 8), "memory.usage": (1e9, 6e10)}
RATES = ("network.receive", "network.transmit", "disk.read", "disk.write")
DELAY = "flink.delay"

Facts = dict[tuple[str, int], float]
"""Value by (replica, start of the minute in ms)."""


def _series(name: str, replica: int, gpu: int | None, draw: np.random.Generator) -> Row:
    moments = range(START, END, 15_000)
    if name in RATES:
        values = np.cumsum(draw.integers(1, 10**7, len(moments))).astype(float)
    elif name == DELAY:
        values = draw.integers(0, 10**6, len(moments)).astype(float)
    else:
        low, high = GAUGES[name]
        values = np.round(low + draw.random(len(moments)) * (high - low), 2)
    return row(
        name,
        list(zip(moments, values.tolist(), strict=True)),
        JOB,
        f"worker-{replica}",
        node=f"node-{replica}",
        device="" if gpu is None else f"gpu{gpu}",
    )


def _stored() -> list[Row]:
    draw = np.random.default_rng(7)
    names = [*GAUGES, *RATES, DELAY]
    return [
        _series(name, replica, gpu, draw)
        for replica in range(2)
        for name in names
        for gpu in ((0, 1) if name.startswith("gpu") else (None,))
    ]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    written = _stored()
    rows = [(one.metric, one.replica, one.device, at, value) for one, points in written for at, value in points]
    frame = pd.DataFrame(rows, columns=["metric", "replica", "device", "time", "value"])
    record = {
        "job_id": JOB,
        "name": "facts",
        "type": "PyTorchJob",
        "state": "Succeeded",
        "user": "lin",
        "created": START,
        "start": START,
        "end": END,
        "limits": LIMITS,
        "replicas": [{"name": f"worker-{at}", "node": f"node-{at}"} for at in range(2)],
    }
    alive = {**record, "job_id": "stream", "name": "stream", "state": "Running", "end": None}
    with running(tmp_path_factory.mktemp("facts") / "data") as server:
        for each in (record, alive):
            body = {name: value for name, value in each.items() if value is not None}
            assert server.call("POST", f"{API}/jobs", json.dumps(body).encode()).status == 200
        live = [row(one.metric, points, "stream", one.replica) for one, points in written if one.metric == DELAY]
        assert server.ingest(samples([*written, *live])).status == 200
        yield server, frame


def _expected(frame: pd.DataFrame, metric: str) -> Facts:
    """Compute the values by replica and minute: devices are averaged, counters become rates."""
    mine = frame[frame.metric == metric].copy()
    mine["minute"] = mine.time // MINUTE * MINUTE
    if metric in RATES:
        mine["gain"] = mine.groupby("replica").value.diff()
        mine["passed"] = mine.groupby("replica").time.diff() / 1000
        sums = mine.dropna().groupby(["replica", "minute"])[["gain", "passed"]].sum()
        return dict(zip(sums.index.tolist(), (sums.gain / sums.passed).tolist(), strict=True))
    devices = mine.groupby(["replica", "device", "minute"]).value.mean()
    means = devices.groupby(["replica", "minute"]).mean()
    return dict(zip(means.index.tolist(), means.tolist(), strict=True))


def _ok(reply: Reply):
    assert reply.status == 200, reply.body
    return reply.json()


def _iso(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _native(server: ServerProcess, metric: str) -> Facts:
    body = _ok(
        server.call("GET", f"{API}/jobs/{JOB}/metrics", metric=metric, start=START, end=END, step="1m", by="replica")
    )
    return {(line["replica"], at): value for line in body["lines"] for at, value in line["points"]}


DLC = {
    "gpu.utilization": ("GpuCoreUsage", 100),
    "cpu.usage": ("CpuCoreUsage", 100 / LIMITS["cpu"]),
    "memory.usage": ("MemoryUsage", 100 / LIMITS["memory"]),
    "network.receive": ("NetworkInputRate", 1e-6),
    "network.transmit": ("NetworkOutputRate", 1e-6),
    "disk.read": ("DiskReadRate", 1e-6),
    "disk.write": ("DiskWriteRate", 1e-6),
}


def _span() -> dict[str, Any]:
    first, last = (datetime.utcfromtimestamp(at / 1000).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (START, END))  # noqa: DTZ004
    return {"StartTime": first, "EndTime": last}


def _dlc(server: ServerProcess, metric: str) -> Facts:
    name, factor = DLC[metric]
    body = _ok(server.call("GET", f"/api/v1/jobs/{JOB}/metrics", MetricType=name, TimeStep="1m", **_span()))
    return {
        (pod["PodId"].removeprefix(f"{JOB}-"), point["Time"]): point["Value"] / factor
        for pod in body["PodMetrics"]
        for point in pod["Metrics"]
    }


def _studio(server: ServerProcess, metric: str) -> Facts:
    name, factor = DLC[metric]
    path = f"/api/v1/trainingjobs/{JOB}/instancemetrics"
    body = _ok(server.call("GET", path, MetricType=name, TimeStep="1m", **_span()))
    return {
        (one["InstanceId"].removeprefix(f"{JOB}-"), _iso(point["Time"])): point["Value"] / factor
        for one in body["InstanceMetrics"]
        for point in one["Metrics"]
    }


CMS = {
    "gpu.utilization": ("POD_GPU_DUTY_CYCLE", 100),
    "cpu.usage": ("POD_CPU_UTIL", 100 / LIMITS["cpu"]),
    "memory.usage": ("POD_MEMORY_UTIL", 100 / LIMITS["memory"]),
    "network.receive": ("POD_NETWORK_RECEIVE", 2.0**-20),
    "network.transmit": ("POD_NETWORK_TRANSMIT", 2.0**-20),
}


def _cms(server: ServerProcess, metric: str) -> Facts:
    name, factor = CMS[metric]
    body = _ok(
        server.call(
            "GET",
            "/",
            Action="DescribeMetricList",
            Version="2019-01-01",
            Namespace="acs_pai_dlc",
            MetricName=name,
            Dimensions=json.dumps([{"jobId": JOB}]),
            Period="60",
            **_span(),
        )
    )
    return {
        (point["pod"].removeprefix(f"{JOB}-"), point["timestamp"]): point["Average"] / factor
        for point in json.loads(body["Datapoints"])
    }


MODELARTS = {
    "gpu.utilization": ("gpuUtil", 100),
    "cpu.usage": ("cpuUsage", 100 / LIMITS["cpu"]),
    "memory.usage": ("memUsage", 100 / LIMITS["memory"]),
}


def _modelarts(server: ServerProcess, metric: str) -> Facts:
    name, factor = MODELARTS[metric]
    found: Facts = {}
    for replica in ("worker-0", "worker-1"):
        body = _ok(server.call("GET", f"/v2/default/training-jobs/{JOB}/metrics/{replica}"))
        (values,) = [one["value"] for one in body["metrics"] if one["metric"] == name]
        found |= {(replica, START + at * MINUTE): value / factor for at, value in enumerate(values) if value != -1}
    return found


def _baseten(server: ServerProcess, metric: str) -> Facts:
    body = _ok(
        server.call(
            "GET",
            f"/v1/training_projects/default/jobs/{JOB}/metrics",
            start_epoch_millis=START,
            end_epoch_millis=END,
            step_seconds=60,
        )
    )
    names = {"cpu.usage": "cpu_usage", "memory.usage": "cpu_memory_usage_bytes"}
    ranks = {"gpu.utilization": "gpu_utilization", "gpu.memory.usage": "gpu_memory_usage_bytes"}
    found: dict[tuple[str, int], list[float]] = {}
    for node in body["per_node_metrics"]:
        lines = node["metrics"][ranks[metric]].values() if metric in ranks else [node["metrics"][names[metric]]]
        for point in (point for line in lines for point in line):
            found.setdefault((node["node_id"], _iso(point["timestamp"])), []).append(point["value"])
    return {key: float(np.mean(values)) for key, values in found.items()}


def _opentsdb(server: ServerProcess, metric: str) -> Facts:
    query = f"avg:1m-avg:{metric}{{job={JOB},replica=*}}"
    body = _ok(server.call("GET", "/api/query", start=START, end=END - 1, m=query, ms="true"))
    return {(one["tags"]["replica"], int(at)): value for one in body for at, value in one["dps"].items()}


WAYS: dict[str, tuple[Callable[[ServerProcess, str], Facts], tuple[str, ...]]] = {
    "native": (_native, (*GAUGES, *RATES, DELAY)),
    "pai-dlc": (_dlc, tuple(DLC)),
    "pai-studio": (_studio, tuple(DLC)),
    "cms": (_cms, tuple(CMS)),
    "modelarts": (_modelarts, tuple(MODELARTS)),
    "baseten": (_baseten, tuple(GAUGES)),
    "opentsdb": (_opentsdb, tuple(GAUGES)),
}


@pytest.mark.parametrize(("way", "metric"), [(way, metric) for way, (_, names) in WAYS.items() for metric in names])
def test_every_api_says_the_same(stored, way, metric):
    server, frame = stored
    found, expected = WAYS[way][0](server, metric), _expected(frame, metric)
    assert found.keys() == expected.keys()
    # The formats round to this precision.
    assert found == pytest.approx(expected, rel=1e-9)


def test_flinks_api_says_the_same(stored):
    server, frame = stored
    asked: dict[str, Any] = {
        "start": START,
        "end": END,
        "queries": [{"metric": "delay", "downsample": "60s-avg", "granularity": "60s"}],
    }
    asked["queries"][0]["aggregator"] = "avg"
    reply = server.call(
        "POST",
        "/api/v2/projects/default/jobs/stream/metric",
        json.dumps({"metricJson": json.dumps(asked)}).encode(),
        {"Content-Type": "application/json"},
        instanceId=-1,
    )
    (metric,) = _ok(reply)["metrics"]
    by_minute = pd.Series(_expected(frame, DELAY)).groupby(level=1).mean()
    found = {int(at) * 1000: float(value) for at, value in metric["dps"].items()}
    assert found == pytest.approx(by_minute.to_dict(), rel=1e-6)


def test_every_api_reports_the_same_job(stored):
    server, _ = stored
    native = _ok(server.call("GET", f"{API}/jobs/{JOB}"))["job"]
    dlc = _ok(server.call("GET", f"/api/v1/jobs/{JOB}"))
    huawei = _ok(server.call("GET", f"/v2/default/training-jobs/{JOB}"))
    baseten = _ok(server.call("GET", f"/v1/training_projects/default/jobs/{JOB}"))["training_job"]
    assert native["id"] == dlc["JobId"] == huawei["metadata"]["id"] == baseten["id"] == JOB
    assert native["name"] == dlc["DisplayName"] == huawei["metadata"]["name"] == baseten["name"] == "facts"
    assert (dlc["Status"], huawei["status"]["phase"], baseten["current_status"]) == (
        "Succeeded",
        "Completed",
        "TRAINING_JOB_COMPLETED",
    )
    assert (native["created"], native["start"], native["end"]) == (START, START, END)
    assert _iso(dlc["GmtCreateTime"]) == huawei["metadata"]["create_time"] == _iso(baseten["created_at"]) == START
    assert dlc["Duration"] * 1000 == huawei["status"]["duration"] == END - START
    assert sorted(pod["PodId"] for pod in dlc["Pods"]) == [f"{JOB}-worker-0", f"{JOB}-worker-1"]
    assert huawei["status"]["tasks"] == ["worker-0", "worker-1"]


def test_nothing_is_shown_to_the_key_of_another_project(stored):
    server, _ = stored
    made = _ok(
        server.call("POST", f"{API}/keys", json.dumps({"name": "x", "role": "reader", "project": "other"}).encode())
    )
    headers = {"Authorization": f"Bearer {made['token']}"}
    for path, query in (
        (f"{API}/jobs/{JOB}/metrics", {"metric": "cpu.usage"}),
        (f"/api/v1/jobs/{JOB}/metrics", {"MetricType": "CpuCoreUsage"}),
        (f"/api/v1/jobs/{JOB}", {}),
        (f"/api/v1/trainingjobs/{JOB}/instancemetrics", {"MetricType": "CpuCoreUsage"}),
        (f"/v2/default/training-jobs/{JOB}", {}),
        (f"/v2/other/training-jobs/{JOB}/metrics/worker-0", {}),
        (f"/v1/training_projects/default/jobs/{JOB}", {}),
        (f"/v1/training_projects/other/jobs/{JOB}/metrics", {}),
    ):
        reply = server.call("GET", path, headers=headers, **query)
        assert 400 <= reply.status < 500, (path, reply.body)
        assert reply.json()
    listed = server.call("GET", "/api/v1/jobs", headers=headers)
    assert _ok(listed)["Jobs"] == []
    assert _ok(server.call("GET", "/api/suggest", headers=headers, type="metrics")) == []
    found = server.call("GET", "/api/query", headers=headers, start=START, end=END, m=f"avg:cpu.usage{{job={JOB}}}")
    assert found.status == 400 or found.json() == []
