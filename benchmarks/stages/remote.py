"""Prometheus remote write 1.0, as a fleet's scraper sends it: every series once a request."""

import contextlib
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.client import Post, post_all
from benchmarks.contestant import Contestant
from benchmarks.everybody import started
from benchmarks.plan import Plan
from benchmarks.processes import cpu_seconds
from benchmarks.protobuf import HEADERS, RemoteTemplate
from benchmarks.row import AS_MANY, Row, higher, lower

SERIES, BODIES, STEP_MS = 7_040, 80, 10_000
CONNECTIONS = (1, 4)
ROUND_SECONDS = 5.0
"""A round ends then, whatever is left of its bodies."""
PATH = "/api/v1/write"


def rows(plan: Plan) -> list[Row]:
    """Samples a second, and what they cost the server; each contestant gets the same bodies, in rounds that go on."""
    print(f"remote write: {SERIES:,} series a request", flush=True)
    result = list[Row]()
    for connections in CONNECTIONS:
        name = f"remote write, {SERIES:,} series a request, {connections} connection{'s' * (connections > 1)}"
        result += [higher(name, "samples/s", AS_MANY), lower(f"{name}: CPU for a million", "s")]
        with contextlib.ExitStack() as stack:
            _measure(plan, started(stack)[1], connections, result[-2:])
    return result


def _measure(plan: Plan, everybody: Sequence[Contestant], connections: int, measured: Sequence[Row]) -> None:
    each = BODIES // connections
    lanes = [_bodies(sender, 1 + plan.rounds * each) for sender in range(connections)]
    for one in everybody:
        post_all(where(one), [lane[:1] for lane in lanes])  # every series is new
    for turn, everyone in enumerate(plan.turns(everybody)):
        chosen = [lane[1 + turn * each : 1 + (turn + 1) * each] for lane in lanes]
        for one in everyone:
            before = cpu_seconds(one.pid)
            sent, seconds = post_all(where(one), chosen, ROUND_SECONDS)
            samples = sent * SERIES
            measured[0].add(one.name, samples / seconds)
            measured[1].add(one.name, (cpu_seconds(one.pid) - before) / samples * 1e6)


def where(one: Contestant) -> Post:
    """Where a contestant takes remote write: all of them under the same path."""
    return Post(one.port, PATH, {**HEADERS, **one.headers})


def _bodies(sender: int, count: int) -> list[bytes]:
    template = RemoteTemplate([_labels(sender, series) for series in range(SERIES)])
    draw = np.random.default_rng(sender)
    start = time.time_ns() // 1_000_000 // STEP_MS * STEP_MS - count * STEP_MS
    return [template.patch(start + turn * STEP_MS, np.round(draw.random(SERIES) * 100, 2)) for turn in range(count)]


def _labels(sender: int, series: int) -> dict[str, str]:
    return {
        "__name__": f"metric_{series % 44}",
        "device": f"gpu{series // 44 % 8}",
        "instance": f"node-{sender}-{series // 352}:9100",
        "job": "exporter",
    }
