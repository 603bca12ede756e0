"""Server for a vendor's clients, its stored data, and the expected answers, computed by pandas."""

import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.frames import records, samples
from tests.support.processes import ServerProcess, running

PROJECT = "llm-team"
DONE, RUNNING, WAITING, TO_STOP, TO_DELETE = "bt-done", "bt-running", "bt-waiting", "bt-to-stop", "bt-to-delete"
HOUR = 3_600_000
DAY = 24 * HOUR
ROOT = Path(__file__).parents[2]
SDK = ROOT / ".venvs" / "baseten" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "baseten_sdk.py"
STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600]
GIB = 1 << 30
PLAIN = {
    "cpu.usage": 8.0,
    "memory.usage": 64.0 * GIB,
    "storage.ephemeral.usage": 90.0 * GIB,
    "storage.cache.usage": 40.0 * GIB,
}
GPU = {"gpu.utilization": 1.0, "gpu.memory.usage": 80.0 * GIB}
LIMITS = {"storage.ephemeral": 100 * GIB, "storage.cache": 50 * GIB}
LEVELS = (None, "debug", "info", "warning", "error")


@dataclass
class Stored:
    """Server, its stored data, and the time of storing."""

    server: ServerProcess
    frame: pd.DataFrame
    lines: list[dict[str, Any]]
    now_ms: int
    keys: dict[str, str]
    home: Path
    sdk: Any

    def job(self, job):
        return self.frame[self.frame.job == job]


def _samples(job, start_ms, end_ms, seed):
    """Return samples of two nodes with two GPUs each, one every 15 seconds, with gaps."""
    random = np.random.default_rng(seed)
    rows = []
    for replica in ("worker-0", "worker-1"):
        for metric, top in {**PLAIN, **GPU}.items():
            for device in ("gpu0", "gpu1") if metric in GPU else ("",):
                times = np.arange(start_ms, end_ms, 15_000)
                mask = random.random(len(times)) > 0.2
                mask[-1] = True
                mask[40:80] = False
                values = random.random(len(times)) * top
                values = np.round(values, 4) if top <= 8 else np.round(values)
                rows += [
                    (job, metric, replica, device, int(at), float(value))
                    for at, value in zip(times[mask], values[mask], strict=True)
                ]
    return rows


def _series(frame):
    for (job, metric, replica, device), group in frame.groupby(["job", "metric", "replica", "device"]):
        yield (
            {
                "project": PROJECT,
                "metric": metric,
                "job": job,
                "replica": replica,
                "node": f"node-{replica[-1]}",
                "device": device,
            },
            list(zip(group["time"], group["value"], strict=True)),
        )


def _records(now_ms):
    two = [{"name": "worker-0", "rank": 0}, {"name": "worker-1", "rank": 1}]
    done_end = now_ms - DAY
    limits = {f"{name}.limit": size for name, size in LIMITS.items()}
    return [
        {
            "job_id": DONE,
            "project": PROJECT,
            "name": "tune a model",
            "state": "Failed",
            "user": "alice@example.com",
            "error": "CUDA out of memory",
            "created": done_end - HOUR - 60_000,
            "start": done_end - HOUR,
            "end": done_end,
            "limits": limits,
            "instance_type": {
                "id": "H100:2x26x468",
                "name": "H100:2x26x468 (2 GPUs)",
                "cpu": 26,
                "memory": 468 * GIB,
                "gpu_type": "H100",
                "gpu_count": 2,
                "gpu_memory": 80 * GIB,
            },
            "checkpoints": [
                {
                    "id": f"step-{number}",
                    "created": done_end - number * 60_000,
                    "type": "lora" if number % 2 else "full",
                    "size": number * 1_000_000,
                    "files": [f"s3://bucket/run/step-{number}/rank-{rank}/model.bin" for rank in range(3)],
                    **({"base_model": "gpt-oss"} if number % 2 else {}),
                }
                for number in (1, 2)
            ],
            "extra": {"baseten": {"current_status": "TRAINING_JOB_DEPLOY_FAILED", "checkpoint_sync_status": "SYNCING"}},
            "replicas": two,
        },
        {
            "job_id": RUNNING,
            "project": PROJECT,
            "state": "Running",
            "created": now_ms - HOUR,
            "start": now_ms - HOUR,
            "limits": {**limits, "memory": 128 * GIB, "cpu": 12.5},
            "replicas": two,
        },
        {
            "job_id": WAITING,
            "project": PROJECT,
            "state": "Queued",
            "created": now_ms - 5_000,
            "extra": {"baseten": {"current_status": "TRAINING_JOB_PENDING", "availability_model": "spot"}},
        },
        {"job_id": TO_DELETE, "project": PROJECT, "state": "Queued", "created": now_ms - 3 * HOUR},
        {"job_id": TO_STOP, "project": PROJECT, "state": "Running", "created": now_ms - 2 * HOUR},
    ]


def _lines(start_ms):
    """Return an hour of log lines of a finished job: more than two pages, with several lines in one millisecond."""
    start_ns = start_ms * 1_000_000
    return [
        {
            "time_ns": start_ns + number * 1_400_000_000 + part * 250_000,
            "text": f"step {number}.{part} done",
            "replica": f"worker-{number % 2}",
            **({"level": LEVELS[number % 5]} if number % 5 else {}),
        }
        for number in range(560)
        for part in range(4)
    ]


@contextmanager
def storing(folder):
    """Run a server with the jobs, samples and log lines of a project, and start the SDK."""
    throttled = {"JOBMETER_RATE_LIMITS": "get_training_projects_cache_summary=0.01:1"}
    with running(folder / "data", environment=throttled) as server, _sdk() as sdk:
        now_ms = int(time.time()) * 1000
        rows = [*_samples(DONE, now_ms - DAY - HOUR, now_ms - DAY, 3), *_samples(RUNNING, now_ms - HOUR, now_ms, 4)]
        frame = pd.DataFrame(rows, columns=["job", "metric", "replica", "device", "time", "value"])
        written = _records(now_ms)
        receipt = server.ingest(records({"jobs": written}) + samples(list(_series(frame)))).json()
        del receipt["time"]
        assert receipt == {"accepted": len(frame), "records": len(written), "rejected": {}}
        lines = _lines(now_ms - DAY - HOUR)
        pushed = server.request("POST", f"/jobs/{DONE}/logs?project={PROJECT}", {"lines": lines})
        assert json.loads(pushed.body) == {"accepted": len(lines), "rejected": {}}
        keys = {"admin": str(server.admin["token"])}
        for name, role, project in (("own", "writer", PROJECT), ("reader", "reader", PROJECT), ("other", "admin", "x")):
            made = server.request("POST", "/keys", {"name": name, "role": role, "project": project})
            keys[name] = json.loads(made.body)["token"]
        yield Stored(server, frame, lines, now_ms, keys, folder, sdk)


def ask(stored, *asks, key="own"):
    """Return the SDK's answers to questions. One process answers all, because loading the SDK takes longest."""
    if not SDK.exists():
        pytest.skip("needs the environment .venvs/baseten: make sdk")
    given = [{"url": stored.server.url, "key": stored.keys[key], **question} for question in asks]
    stored.sdk.stdin.write("".join(json.dumps(question) + "\n" for question in given))
    stored.sdk.stdin.flush()
    return [json.loads(stored.sdk.stdout.readline()) for _ in given]


@contextmanager
def _sdk():
    if not SDK.exists():
        yield None
        return
    with subprocess.Popen([SDK, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.communicate(timeout=60)


def of_job(job, call, **more):
    return {"call": call, "path": {"training_project_id": PROJECT, "training_job_id": job}, **more}


def metrics_of(job, asynchronous=False, by_get=True, **parameters):
    form = "params" if by_get else "request"
    call = f"{'get' if by_get else 'post'}_training_projects_jobs_metrics"
    return of_job(job, call, **{form: parameters, "async": asynchronous})


def means(frame, metric, start_ms, end_ms, step_ms):
    """Compute {(replica, device): {bucket: mean}} with pandas."""
    own = frame[(frame.metric == metric) & (frame.time >= start_ms) & (frame.time < end_ms)]
    means = own.groupby(["replica", "device", own.time // step_ms * step_ms])["value"].mean()
    return {key: dict(group.droplevel([0, 1])) for key, group in means.groupby(level=[0, 1])}


def node_metrics(frame, replica, start_ms, end_ms, step_ms):
    """Return the expected metrics of a node, with times in milliseconds."""

    def of(metric, device=""):
        return means(frame, metric, start_ms, end_ms, step_ms).get((replica, device), {})

    ephemeral = of("storage.ephemeral.usage")
    return {
        "gpu_memory_usage_bytes": {rank: of("gpu.memory.usage", f"gpu{rank}") for rank in ("0", "1")},
        "gpu_utilization": {rank: of("gpu.utilization", f"gpu{rank}") for rank in ("0", "1")},
        "cpu_usage": of("cpu.usage"),
        "cpu_memory_usage_bytes": of("memory.usage"),
        "ephemeral_storage": {
            "usage_bytes": ephemeral,
            "utilization": {at: value / LIMITS["storage.ephemeral"] for at, value in ephemeral.items()},
        },
    }


def cache_metrics(frame, start_ms, end_ms, step_ms):
    by_replica = pd.DataFrame(means(frame, "storage.cache.usage", start_ms, end_ms, step_ms))
    usage = by_replica.mean(axis=1)
    return {"usage_bytes": dict(usage), "utilization": dict(usage / LIMITS["storage.cache"])}


def points_of(value):
    """Convert the point lists of an answer to {milliseconds: value}, and check their order."""
    if isinstance(value, list):
        times = [round(datetime.fromisoformat(point["timestamp"]).timestamp() * 1000) for point in value]
        assert times == sorted(set(times))
        return dict(zip(times, (point["value"] for point in value), strict=True))
    return {name: points_of(part) for name, part in value.items()}


def _same(found, expected):
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        if part and isinstance(next(iter(part.values())), dict):
            _same(found[name], part)
        else:
            assert found[name] == pytest.approx(part, rel=1e-9), name


def check(body, frame, start_ms, end_ms, step_ms):
    nodes = {node["node_id"]: points_of(node["metrics"]) for node in body["per_node_metrics"]}
    assert list(nodes) == ["worker-0", "worker-1"]
    for name, metrics in nodes.items():
        _same(metrics, node_metrics(frame, name, start_ms, end_ms, step_ms))
    assert {key: points_of(body[key]) for key in nodes["worker-0"]} == nodes["worker-0"]
    _same(points_of(body["cache"]), cache_metrics(frame, start_ms, end_ms, step_ms))


def default_step(start_ms, end_ms):
    return next(s * 1000 for s in STEPS if -(-end_ms // (s * 1000)) - start_ms // (s * 1000) <= 240)
