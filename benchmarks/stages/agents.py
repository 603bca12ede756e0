"""What agents write: each contestant in the protocol that agents use for it, all series known but in the first round.

Jobmeter's agents send frames; what would stand in their place for a peer (vmagent, Prometheus) sends remote write.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.client import post_all
from benchmarks.contestant import Contestant
from benchmarks.data import Names, job_names
from benchmarks.everybody import started
from benchmarks.plan import Plan
from benchmarks.row import Row, higher

STEP_MS = 10_000
METRICS = ("gpu.utilization", "gpu.memory.usage", "gpu.power", "gpu.temperature", "gpu.sm.active")
AGENTS, AGENT_SERIES = 1_000, 320
BIG_SERIES, BIG_ROUNDS = 7_040, 20
CONNECTIONS = 16
FLEET_ROUNDS = 2
"""At most: the bodies of a thousand agents take a while to encode."""
ROUND_SECONDS = 3.0
"""A round ends then, whatever is left of its bodies."""


def rows(plan: Plan) -> list[Row]:
    """A few large bodies on one connection; a thousand small ones on sixteen."""
    print(f"agents: {BIG_SERIES:,} series a body, and {AGENTS:,} bodies of {AGENT_SERIES}", flush=True)
    big = higher(f"agents' protocol, {BIG_SERIES:,} series a body, 1 connection", "samples/s")
    small = higher(f"agents' protocol, {AGENTS:,} agents, {AGENT_SERIES} samples each, 16 conns", "samples/s")
    big.note = small.note = "native frames; peers: remote write"
    with contextlib.ExitStack() as stack:
        everybody = started(stack)[1]
        _measure(plan, everybody, [_series(0, BIG_SERIES)], big, (BIG_ROUNDS, 1))
        fleet = [_series(BIG_SERIES + agent * AGENT_SERIES, AGENT_SERIES) for agent in range(AGENTS)]
        _measure(replace(plan, rounds=min(plan.rounds, FLEET_ROUNDS)), everybody, fleet, small, (1, CONNECTIONS))
    return [big, small]


def _measure(
    plan: Plan, everybody: Sequence[Contestant], senders: Sequence[list[Names]], row: Row, shape: tuple[int, int]
) -> None:
    """Every sender sends so many bodies a round, on so many connections; the first round is for getting acquainted."""
    bodies, connections = shape
    value = np.round(np.random.default_rng(5).random(len(senders[0])), 2)
    start = time.time_ns() // 1_000_000 // STEP_MS * STEP_MS - (plan.rounds * bodies + 1) * STEP_MS
    prepared = [(one.name, one.written(), [one.template(series) for series in senders]) for one in everybody]
    for turn in range(plan.rounds + 1):
        first = 0 if turn == 0 else 1 + (turn - 1) * bodies
        times = [start + (first + number) * STEP_MS for number in range(bodies if turn else 1)]
        for name, where, templates in prepared if turn % 2 == 0 else reversed(prepared):
            sent = [template.patch(stamp, value) for stamp in times for template in templates]
            lanes = [sent[lane::connections] for lane in range(min(connections, len(sent)))]
            count, seconds = post_all(where, lanes, ROUND_SECONDS if turn else None)
            if turn:
                row.add(name, count * len(value) / seconds)


def _series(first: int, count: int) -> list[Names]:
    """Series of whole jobs of 64 devices, five metrics each."""
    names = list[Names]()
    job = first // (64 * len(METRICS))
    while len(names) < count:
        names += [one for metric in METRICS for one in job_names(metric, f"fleet-{job}", 8, 8)]
        job += 1
    return names[:count]
