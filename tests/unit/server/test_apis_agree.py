"""Tests that all APIs give pandas' figures for a job, after conversion of units."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fakes import NOW
from tests.support.frames import records, samples
from tests.support.serving import BASE, Serving, serving

from jobmeter.model.time import MINUTE, SECOND

MEMORY = 2**36
_NUMBERS = itertools.count()
Means = dict[tuple[str, int], float]
"""Mean by (replica, start of the minute)."""


class Drawn(NamedTuple):
    """Random job: its samples, and the figures that every API must give."""

    job: str
    start: int
    end: int
    cores: int
    samples: Mapping[str, pd.DataFrame]
    """Columns replica, time and value, by metric."""
    losses: pd.DataFrame

    @property
    def path(self) -> str:
        return quote(self.job, safe="")

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end

    @property
    def replicas(self) -> list[str]:
        return sorted(set(self.samples["cpu.usage"]["replica"]))

    def limit(self, metric: str) -> float:
        """Return the amount that is 100 percent."""
        return {"cpu.usage": self.cores, "memory.usage": MEMORY}.get(metric, 1)

    def means(self, metric: str) -> Means:
        """Return the means of the minutes, as pandas computes them."""
        table = self.samples[metric]
        found = table.groupby(["replica", table["time"] // MINUTE * MINUTE])["value"].mean().reset_index()
        return {(replica, time): mean for replica, time, mean in found.itertuples(index=False)}


@st.composite
def jobs(draw: st.DrawFn) -> Drawn:
    """Draw a job of 1 to 3 replicas with a device each, sampled at irregular times with gaps of whole minutes."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    minutes, cores = draw(st.integers(2, 40)), draw(st.integers(1, 64))
    interval = draw(st.integers(5, 55)) * SECOND
    start = NOW - (minutes + draw(st.integers(0, 30))) * MINUTE
    replicas = [f"worker-{at}" for at in range(draw(st.integers(1, 3)))]
    gap = draw(st.floats(0, 0.5))
    scales = {"gpu.utilization": 1, "cpu.usage": cores, "memory.usage": MEMORY, "gpu.memory.usage": MEMORY}
    found = {}
    for metric, scale in scales.items():
        parts = []
        for replica in replicas:
            # No sample lies on a minute: PromQL's windows exclude their start, ours exclude their end.
            times = np.arange(start + 1, start + minutes * MINUTE, interval) + random.integers(0, interval - 2)
            times = times[times < start + minutes * MINUTE]
            measured = random.random(minutes) >= gap
            measured[[0, -1]] = True
            times = times[measured[(times - start) // MINUTE]]
            times = times[times % MINUTE != 0]
            value = random.random(len(times)) * scale
            value = np.floor(value) if scale == MEMORY else value
            parts.append(pd.DataFrame({"replica": replica, "time": times, "value": value}))
        found[metric] = pd.concat(parts, ignore_index=True)
    count = draw(st.integers(1, 30))
    places = np.arange(
        start, start + minutes * MINUTE, 10 * SECOND
    )  # ModelArts names a point by the start of its step.
    times = np.sort(random.choice(places, min(count, len(places)), replace=False))
    losses = pd.DataFrame({"time": times, "step": np.arange(len(times)) * 10, "value": random.normal(size=len(times))})
    name = f"{draw(st.sampled_from(['train', 'a job: 7%', '任务']))}-{next(_NUMBERS)}"
    return Drawn(name, start, start + minutes * MINUTE, cores, found, losses)


def put(server: Serving, drawn: Drawn) -> str:
    """Store the job; return the id of the MLflow run that reported its loss."""
    record = {
        "job_id": drawn.job,
        "state": "Succeeded",
        "start": drawn.start,
        "end": drawn.end - 1,
        "limits": {"cpu": drawn.cores, "memory": MEMORY},
        "replicas": [{"name": name, "node": f"node-{name}", "devices": ["gpu0"]} for name in drawn.replicas],
    }
    rows: list[tuple[dict[str, str], list[tuple[int, float]]]] = []
    for metric, table in drawn.samples.items():
        for replica, part in table.groupby("replica"):
            labels = {"metric": metric, "job": drawn.job, "replica": str(replica), "node": f"node-{replica}"}
            labels |= {"device": "gpu0"} if metric.startswith("gpu.") else {}
            rows.append((labels, list(zip(part["time"].tolist(), part["value"].tolist(), strict=True))))
    reply = server.ingest(records({"jobs": [{**record, "state": "Running", "end": None}]}) + samples(rows))
    assert reply.status == 200, reply.body
    made = post(
        server,
        "/api/2.0/mlflow/runs/create",
        {"experiment_id": "0", "tags": [{"key": "jobmeter.job", "value": drawn.job}]},
    )
    run = made["run"]["info"]["run_id"]
    reported = [
        {"key": "loss", "value": value, "timestamp": time, "step": step}
        for time, step, value in drawn.losses.itertuples(index=False)
    ]
    post(server, "/api/2.0/mlflow/runs/log-batch", {"run_id": run, "metrics": reported})
    reply = server.ingest(records({"jobs": [record]}))
    assert reply.status == 200, reply.body
    return str(run)


def post(server: Serving, path: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {server.admin.token}", "Content-Type": "application/json"}
    reply = server.raw("POST", path, json.dumps(body).encode(), headers)
    assert reply.status == 200, reply.body
    return reply.json()


def get(server: Serving, path: str, **query: Any) -> Any:
    headers = {"Authorization": f"Bearer {server.admin.token}"}
    reply = server.raw("GET", f"{path}?{urlencode(query, doseq=True)}", headers=headers)
    assert reply.status == 200, (path, reply.body)
    return reply.json()


# Each function queries the means of one of our metrics, and converts names and units to ours.


def of_native(server: Serving, drawn: Drawn, metric: str) -> Means:
    span = {"start": drawn.start, "end": drawn.end}
    body = get(server, f"{BASE}/jobs/{drawn.path}/metrics", metric=metric, by="replica", step="1m", **span)
    return {(line["replica"], time): value for line in body["lines"] for time, value in line["points"]}


def of_pai_dlc(server: Serving, drawn: Drawn, metric: str) -> Means:
    names = {"gpu.utilization": "GpuCoreUsage", "cpu.usage": "CpuCoreUsage", "memory.usage": "MemoryUsage"}
    start, end = (datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in drawn.span)
    options = {"MetricType": names[metric], "StartTime": start, "EndTime": end, "TimeStep": "1m"}
    body = get(server, f"/api/v1/jobs/{drawn.path}/metrics", **options)
    return {
        (pod["PodId"].removeprefix(f"{drawn.job}-"), point["Time"]): point["Value"] / 100 * drawn.limit(metric)
        for pod in body["PodMetrics"]
        for point in pod["Metrics"]
    }


def of_modelarts(server: Serving, drawn: Drawn, metric: str) -> Means:
    name = {"gpu.utilization": "gpuUtil", "cpu.usage": "cpuUsage", "memory.usage": "memUsage"}[metric]
    found: Means = {}
    for replica in drawn.replicas:
        body = get(server, f"/v2/default/training-jobs/{drawn.path}/metrics/{replica}")
        (values,) = (one["value"] for one in body["metrics"] if one["metric"] == name)
        found |= {
            (replica, drawn.start + at * MINUTE): value / 100 * drawn.limit(metric)
            for at, value in enumerate(values)
            if value != -1
        }
    return found


def of_baseten(server: Serving, drawn: Drawn, metric: str) -> Means:
    span = {"start_epoch_millis": drawn.start, "end_epoch_millis": drawn.end, "step_seconds": 60}
    body = get(server, f"/v1/training_projects/default/jobs/{drawn.path}/metrics", **span)
    names = {"memory.usage": "cpu_memory_usage_bytes", "gpu.memory.usage": "gpu_memory_usage_bytes"}
    found: Means = {}
    for node in body["per_node_metrics"]:
        points = node["metrics"][names.get(metric, metric.replace(".", "_"))]
        for point in points if isinstance(points, list) else itertools.chain(*points.values()):
            time = datetime.fromisoformat(point["timestamp"])
            found[node["node_id"], round(time.timestamp() * 1000)] = point["value"]
    return found


def of_opentsdb(server: Serving, drawn: Drawn, metric: str) -> Means:
    query = {"aggregator": "none", "downsample": "60s-avg", "metric": metric, "tags": {"job": drawn.job}}
    body = post(server, "/api/query", {"start": drawn.start, "end": drawn.end - 1, "queries": [query]})
    return {(one["tags"]["replica"], int(at) * 1000): value for one in body for at, value in one["dps"].items()}


def of_promql(server: Serving, drawn: Drawn, metric: str) -> Means:
    unit = {"gpu.utilization": "_ratio", "memory.usage": "_bytes", "gpu.memory.usage": "_bytes"}.get(metric, "")
    query = f"avg_over_time(jobmeter_{metric.replace('.', '_')}{unit}{{job_id={json.dumps(drawn.job)}}}[1m])"
    span = {"start": drawn.start / 1000 + 60, "end": drawn.end / 1000, "step": 60}
    body = get(server, "/prometheus/api/v1/query_range", query=query, **span)
    return {
        (one["metric"]["replica"], round(at * 1000) - MINUTE): float(value)
        for one in body["data"]["result"]
        for at, value in one["values"]
    }


APIS: Mapping[str, Callable[[Serving, Drawn, str], Means]] = {
    "native": of_native,
    "PAI-DLC": of_pai_dlc,
    "ModelArts": of_modelarts,
    "Baseten": of_baseten,
    "OpenTSDB": of_opentsdb,
    "PromQL": of_promql,
}
LACKING = {("PAI-DLC", "gpu.memory.usage"), ("ModelArts", "gpu.memory.usage")}
"""Metrics that an API lacks: both APIs have the utilization of a limit that is not drawn."""

# Each function queries the reported losses, by time.


def losses_of_mlflow(server: Serving, _: Drawn, run: str) -> dict[int, float]:
    found: dict[int, float] = {}
    token: dict[str, str] | None = {}
    while token is not None:
        body = get(server, "/api/2.0/mlflow/metrics/get-history", run_id=run, metric_key="loss", max_results=7, **token)
        found |= {one["timestamp"]: one["value"] for one in body["metrics"]}
        token = {"page_token": body["next_page_token"]} if "next_page_token" in body else None
    return found


def losses_of_modelarts(server: Serving, drawn: Drawn, _: str) -> dict[int, float]:
    body = get(server, f"/v2/default/training-jobs/{drawn.path}/ft-metrics")
    return {point["timestamp"]: point["value"] for point in body["loss"]["data"]}


def losses_of_native(server: Serving, drawn: Drawn, _: str) -> dict[int, float]:
    span = {"start": drawn.start, "end": drawn.end}
    body = get(server, f"{BASE}/jobs/{drawn.path}/metrics", metric="app.loss", by="job", step="2s", **span)
    (line,) = body["lines"]
    return dict(line["points"])


def losses_of_opentsdb(server: Serving, drawn: Drawn, _: str) -> dict[int, float]:
    query = {"aggregator": "none", "metric": "app.loss", "tags": {"job": drawn.job}}
    span = {"start": drawn.start, "end": drawn.end, "msResolution": True}
    (one,) = post(server, "/api/query", {**span, "queries": [query]})
    return {int(at): value for at, value in one["dps"].items()}


def losses_of_promql(server: Serving, drawn: Drawn, _: str) -> dict[int, float]:
    query = f"jobmeter_app_loss{{job_id={json.dumps(drawn.job)}}}[2h]"
    body = get(server, "/prometheus/api/v1/query", query=query, time=drawn.end / 1000)
    (one,) = body["data"]["result"]
    return {round(at * 1000): float(value) for at, value in one["values"]}


LOSSES = (losses_of_mlflow, losses_of_modelarts, losses_of_native, losses_of_opentsdb, losses_of_promql)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    made = serving(tmp_path_factory.mktemp("apis") / "data", rate_limits="*=1000000")
    yield made
    made.application.close()


@settings(max_examples=20)
@given(drawn=jobs())
def test_all_apis_give_the_means_of_pandas(shared: Serving, drawn: Drawn) -> None:
    run = put(shared, drawn)
    for metric in drawn.samples:
        expected = drawn.means(metric)
        for name, ask in APIS.items():
            if (name, metric) not in LACKING:
                # PAI-DLC and ModelArts round to 12 digits of a percentage.
                near = pytest.approx(expected, rel=1e-9, abs=1e-11 * drawn.limit(metric))
                assert ask(shared, drawn, metric) == near, (name, metric)
    reported = dict(zip(drawn.losses["time"].tolist(), drawn.losses["value"].tolist(), strict=True))
    for losses in LOSSES:
        assert losses(shared, drawn, run) == pytest.approx(reported, rel=1e-9), losses.__name__
