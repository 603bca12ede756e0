"""VictoriaMetrics and Prometheus from Debian, loaded with the same samples and asked the same questions."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from benchmarks.client import Request, answer, folder, post
from benchmarks.data import Data
from benchmarks.processes import folder_bytes, free_port, resident_megabytes, running

METRIC = "gpu_utilization"


def query_path(data: Data, query: str, hours: float, step_s: int) -> str:
    """A range query that covers the last hours of the data."""
    end = int(data.time[-1]) // 1000
    start = int(end - hours * 3600)
    return f"/api/v1/query_range?query={quote(query)}&start={start}&end={end}&step={step_s}"


def question(data: Data, *, replica: str | None, by: str, hours: float, step_s: int) -> str:
    """The question as PromQL: means over the step, then over the members of ``by``."""
    chosen = f'job="{data.job}"' + (f',replica="{replica}"' if replica else "")
    inner = f"avg_over_time({METRIC}{{{chosen}}}[{step_s}s])"
    groups = {"device": "replica,device", "replica": "replica"}[by]
    return query_path(data, f"avg by ({groups}) ({inner})", hours, step_s)


@dataclass
class Peer:
    """A running peer."""

    name: str
    port: int
    pid: int
    data_folder: Path

    def request(self, path: str) -> Request:
        return Request(self.port, path, {})

    def memory(self) -> float:
        return resident_megabytes(self.pid)

    def disk(self) -> int:
        return folder_bytes(self.data_folder)


@contextmanager
def victoria_metrics(retention_days: int = 60) -> Iterator[Peer]:
    """VictoriaMetrics as it comes, its result cache included."""
    port, where = free_port(), folder()
    command = [
        "victoria-metrics", f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={where}/data",
        f"-retentionPeriod={retention_days}d",
    ]  # fmt: skip
    with running(command, port, "/health", where / "log") as process:
        yield Peer("VictoriaMetrics", port, process.pid, where / "data")


@contextmanager
def prometheus(retention_days: int = 60) -> Iterator[Peer]:
    """Prometheus as a remote-write receiver."""
    port, where = free_port(), folder()
    (where / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
    command = [
        "prometheus", f"--config.file={where}/prometheus.yml", f"--storage.tsdb.path={where}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver",
        f"--storage.tsdb.retention.time={retention_days}d",
    ]  # fmt: skip
    with running(command, port, "/-/ready", where / "log") as process:
        yield Peer("Prometheus", port, process.pid, where / "data")


def json_lines(data: Data) -> list[bytes]:
    """Bodies for VictoriaMetrics' JSON import, a few series each, encoded beforehand."""
    stamps = ",".join(map(str, data.time.tolist()))
    lines = []
    for series in range(data.value.shape[0]):
        replica, node, device = data.names(series)
        values = ",".join(map(str, data.value[series].tolist()))
        labels = f'"__name__":"{METRIC}","job":"{data.job}","replica":"{replica}","node":"{node}","device":"{device}"'
        lines.append(f'{{"metric":{{{labels}}},"values":[{values}],"timestamps":[{stamps}]}}\n'.encode())
    per_body = max(1, 250_000 // len(data.time))
    return [b"".join(lines[i : i + per_body]) for i in range(0, len(lines), per_body)]


def import_json(peer: Peer, bodies: list[bytes]) -> float:
    """Seconds that the import took, until it could be read."""
    begin = time.perf_counter()
    for body in bodies:
        post(peer.port, "/api/v1/import", body, {})
    seconds = time.perf_counter() - begin
    answer(peer.request("/internal/force_flush"))
    return seconds


def remote_write(data: Data, samples_per_series: int = 200) -> list[bytes]:
    """Bodies of the remote-write protocol 1.0 in the order of time."""
    from cramjam import snappy

    heads = []
    for series in range(data.value.shape[0]):
        replica, node, device = data.names(series)
        labels = {"__name__": METRIC, "device": device, "job": data.job, "node": node, "replica": replica}
        heads.append(b"".join(field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in labels.items()))
    bodies = []
    for start in range(0, len(data.time), samples_per_series):
        stamps = [b"\x10" + varint(t) for t in data.time[start : start + samples_per_series].tolist()]
        parts = []
        for series, head in enumerate(heads):
            values = data.value[series, start : start + samples_per_series].astype(np.float64).tobytes()
            points = b"".join(field(2, b"\x09" + values[8 * i : 8 * i + 8] + stamp) for i, stamp in enumerate(stamps))
            parts.append(field(1, head + points))
        bodies.append(bytes(snappy.compress_raw(b"".join(parts))))
    return bodies


def write_remotely(peer: Peer, bodies: list[bytes]) -> float:
    """Seconds that the writes took."""
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    headers["X-Prometheus-Remote-Write-Version"] = "0.1.0"
    begin = time.perf_counter()
    for body in bodies:
        post(peer.port, "/api/v1/write", body, headers)
    return time.perf_counter() - begin


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(data)) + data
