"""Data of the measured pages: a job of 128 ranks with a day of samples, and a long list of jobs."""

import contextlib
import json
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Names
from benchmarks.native import NativeTemplate, bodies_of
from jobmeter.client.api import Api
from jobmeter.client.transport import API, Transport
from jobmeter.examples.server import OwnServer
from jobmeter.model.time import HOUR, MINUTE, SECOND, SystemClock

JOB, RANKS = "bench-128", 128
STEP_MS = 15 * SECOND
METRICS = ("gpu.utilization", "gpu.memory.usage", "gpu.power", "gpu.temperature", "cpu.usage", "memory.usage")
FEED_SECONDS = 1.0
_BATCH = 500
_STATES = ("Succeeded", "Succeeded", "Succeeded", "Failed", "Stopped")
_SCALES = {
    "gpu.memory.usage": 64e9,
    "gpu.power": 600.0,
    "gpu.temperature": 70.0,
    "cpu.usage": 8.0,
    "memory.usage": 2e10,
}


def series() -> list[Names]:
    """Return the series of the job: metric by metric, and in each metric in the order of the ranks."""
    return [
        Names(metric, JOB, f"worker-{rank}", f"node-{rank // 8}", f"gpu{rank % 8}" if metric.startswith("gpu") else "")
        for metric in METRICS
        for rank in range(RANKS)
    ]


def values(times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ``value[s, t]`` of the series ``s`` at ``times[t]`` (ms).

    Each rank follows a wave with its own phase, and one rank is slow.
    """
    ranks = np.tile(np.arange(RANKS), len(METRICS))[:, None]
    scale = np.repeat([_SCALES.get(metric, 1.0) for metric in METRICS], RANKS)[:, None]
    swing = 0.7 + 0.2 * np.sin(times[None, :] / (37 * MINUTE) + ranks)
    found: NDArray[np.float64] = np.where(ranks == RANKS // 2, 0.6, 1.0) * scale * np.round(swing, 4)
    return found


def fill_job(server: OwnServer, hours: int) -> None:
    """Record the running job and write ``hours`` of its samples: one every 15 seconds in each series."""
    now = SystemClock().now_ms() // MINUTE * MINUTE
    replicas = [
        {"name": f"worker-{rank}", "rank": rank, "node": f"node-{rank // 8}", "devices": [f"gpu{rank % 8}"]}
        for rank in range(RANKS)
    ]
    record: dict[str, object] = {"job_id": JOB, "state": "Running", "start": now - hours * HOUR, "replicas": replicas}
    times = np.arange(now - hours * HOUR, now, STEP_MS)
    _post_jobs(server, [record])
    for body in bodies_of(series(), times, values(times)):
        server.api.ingest(body)


def fill_list(server: OwnServer, count: int) -> None:
    """Record ``count`` jobs that have ended and have no samples."""
    now = SystemClock().now_ms()
    for first in range(0, count, _BATCH):
        _post_jobs(server, [_ended(number, now) for number in range(first, min(first + _BATCH, count))])


def _post_jobs(server: OwnServer, jobs: list[dict[str, object]]) -> None:
    headers = {"Content-Type": "application/json"}
    answer = server.api.transport.request("POST", f"{API}/jobs", json.dumps({"jobs": jobs}).encode(), headers)
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.body[:500]!r}")


def _ended(number: int, now: int) -> dict[str, object]:
    start = now - 48 * HOUR - number * MINUTE
    return {
        "job_id": f"dlc{number * 2_654_435_761 % 2**40:010x}",
        "name": f"train-{number}",
        "type": ("PyTorchJob", "TFJob", "MPIJob")[number % 3],
        "user": f"user-{number % 40}",
        "state": _STATES[number % len(_STATES)],
        "start": start,
        "end": start + (5 + number % 300) * MINUTE,
    }


@contextlib.contextmanager
def feeding(server: OwnServer) -> Iterator[None]:
    """Write a sample of every series of the job each second while the context lasts, as for a running job."""
    over = threading.Event()

    def feed() -> None:
        template = NativeTemplate(series())
        api = Api(Transport(server.api.transport.server, server.token))
        while not over.wait(FEED_SECONDS):
            now = SystemClock().now_ms()
            api.ingest(template.patch(now, values(np.array([now]))[:, 0]))

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join()
