"""Jobmeter itself, as a user starts it."""

import json
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.client import Request, answer, folder, post
from benchmarks.data import Data
from benchmarks.processes import folder_bytes, free_port, resident_megabytes, running

API = "/api/jobmeter/v1"


@dataclass
class Ours:
    """A running server and its administrator's key."""

    port: int
    pid: int
    data_folder: Path
    token: str
    name: str = "Jobmeter"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def request(self, path: str) -> Request:
        return Request(self.port, path, self.headers)

    def memory(self) -> float:
        return resident_megabytes(self.pid)

    def disk(self) -> int:
        return folder_bytes(self.data_folder)

    def status(self) -> dict[str, dict[str, int]]:
        """Rows and bytes on disk of each table."""
        result: dict[str, dict[str, int]] = json.loads(answer(self.request(f"{API}/status")))
        return result


@contextmanager
def jobmeter() -> Iterator[Ours]:
    """A server on a fresh data folder, as ``jobmeter serve`` starts it."""
    port, where = free_port(), folder()
    data = where / "data"
    os.environ["JOBMETER_RETENTION_RAW_DAYS"] = "60"
    command = [sys.executable, "-m", "jobmeter", "serve", "--data", str(data), "--port", str(port)]
    with running(command, port, "/readyz", where / "log") as process:
        token = json.loads((data / "admin.key").read_text())["token"]
        yield Ours(port, process.pid, data, token)


def question(data: Data, *, replica: str | None, by: str, hours: float, step_s: int) -> str:
    """The same question as ``peers.question``."""
    end = int(data.time[-1]) + 1
    start = end - int(hours * 3_600_000)
    narrowed = f"&replica={replica}" if replica else ""
    return (
        f"{API}/jobs/{data.job}/metrics?metric=gpu.utilization&start={start}&end={end}&step={step_s}s&by={by}{narrowed}"
    )


def dlc_question(data: Data) -> str:
    """The default question of PAI-DLC GetJobMetrics over the last hour."""
    return f"/api/v1/jobs/{data.job}/metrics?MetricType=GpuCoreUsage&TimeStep=5m"


def frames(data: Data) -> list[bytes]:
    """Bodies of the native protocol, a few series each, encoded beforehand (docs/reference/wire-format.md)."""
    count = len(data.time)
    per_body = max(1, 500_000 // count)
    stamps = data.time.astype("<i8").tobytes()
    bodies = []
    for first in range(0, data.value.shape[0], per_body):
        chosen = range(first, min(first + per_body, data.value.shape[0]))
        descriptors = b"".join(_descriptor(data, series) for series in chosen)
        payload = (
            struct.pack("<II", len(chosen), len(chosen) * count)
            + descriptors
            + np.full(len(chosen), count, "<u4").tobytes()
            + stamps * len(chosen)
            + data.value[chosen.start : chosen.stop].astype("<f8").tobytes()
        )
        head = struct.pack("<2sBBB3xIII", b"JM", 1, 1, 0, len(payload), len(payload), zlib.crc32(payload))
        bodies.append(head + payload)
    return bodies


def ingest(ours: Ours, bodies: list[bytes]) -> float:
    """Seconds until every body was acknowledged, which means durable; two requests are under way at any time."""
    from concurrent.futures import ThreadPoolExecutor

    headers = {**ours.headers, "Content-Type": "application/vnd.jobmeter.frames"}
    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda body: post(ours.port, f"{API}/ingest", body, headers), bodies))
    return time.perf_counter() - begin


def _descriptor(data: Data, series: int) -> bytes:
    replica, node, device = data.names(series)
    texts = ["gpu.utilization", "", "", node, device, data.job, replica, "0"]
    strings = b"".join(struct.pack("<H", len(text)) + text.encode() for text in texts)
    return struct.pack("<I", len(strings)) + strings
