"""Prometheus remote write 1.0, as a fleet's scraper sends it: every series once a request."""

import contextlib
import time
from collections.abc import Mapping

import numpy as np

from benchmarks import ours as ours_module
from benchmarks import peers
from benchmarks.client import post
from benchmarks.peers import field, varint
from benchmarks.processes import installed
from benchmarks.rows import Row

SERIES, REQUESTS, STEP_MS = 7_040, 40, 10_000
PATH = "/api/v1/write"


def remote_row() -> Row:
    """Samples a second on one connection; each contestant gets the same bodies, on a server of its own."""
    bodies = _bodies(int(time.time() * 1000) // STEP_MS * STEP_MS - REQUESTS * STEP_MS)
    row = Row(f"remote write, {SERIES:,} series a request", "samples/s", "higher")
    with ours_module.jobmeter() as ours:
        row.add(ours.name, _rate(ours.port, bodies, ours.headers))
    for name, start in (("victoria-metrics", peers.victoria_metrics), ("prometheus", peers.prometheus)):
        if installed(name):
            with contextlib.ExitStack() as stack:
                peer = stack.enter_context(start())
                row.add(peer.name, _rate(peer.port, bodies, {}))
    return row


def _rate(port: int, bodies: list[bytes], credential: Mapping[str, str]) -> float:
    """Of all requests but the first, in which every series is new."""
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", **credential}
    headers["X-Prometheus-Remote-Write-Version"] = "0.1.0"
    post(port, PATH, bodies[0], headers)
    begin = time.perf_counter()
    for body in bodies[1:]:
        post(port, PATH, body, headers)
    return SERIES * (len(bodies) - 1) / (time.perf_counter() - begin)


def _bodies(start_ms: int) -> list[bytes]:
    from cramjam import snappy

    heads = [_head(series) for series in range(SERIES)]
    draw = np.random.default_rng(1)
    bodies = []
    for request in range(REQUESTS):
        stamp = b"\x10" + varint(start_ms + request * STEP_MS)
        values = np.round(draw.random(SERIES) * 100, 2)
        points = (field(2, b"\x09" + value.tobytes() + stamp) for value in values)
        body = b"".join(field(1, head + point) for head, point in zip(heads, points, strict=True))
        bodies.append(bytes(snappy.compress_raw(body)))
    return bodies


def _head(series: int) -> bytes:
    labels = {
        "__name__": f"metric_{series % 44}",
        "device": f"gpu{series // 44 % 8}",
        "instance": f"node-{series // 352}:9100",
        "job": "exporter",
    }
    return b"".join(field(1, field(1, name.encode()) + field(2, value.encode())) for name, value in labels.items())
