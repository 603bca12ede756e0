"""Live questions while 10,000 samples a second arrive."""

import itertools
import time
from collections.abc import Sequence

from benchmarks.client import latency
from benchmarks.contestant import Contestant
from benchmarks.data import STEP_MS, Data
from benchmarks.plan import Plan
from benchmarks.questions import live
from benchmarks.row import Row, lower
from benchmarks.stream import Stream

WARM_SECONDS = 4.0
ROUNDS = 2
"""Of the plan's: each begins with a process that has to start."""


def busy_rows(everybody: Sequence[Contestant], day: Data, plan: Plan) -> list[Row]:
    """The job that is asked for is among those that are measured; each contestant is written to while it is asked."""
    p50 = lower("live while 10,000 samples/s arrive, p50", "ms")
    p99 = lower("live while 10,000 samples/s arrive, p99", "ms")
    late = []
    for everyone in itertools.islice(plan.turns(everybody), ROUNDS):
        for one in everyone:
            with Stream(one, day.names()) as stream:
                time.sleep(WARM_SECONDS if not one_seen(p50, one) else 1.0)
                now = time.time_ns() // 1_000_000
                asked = one.requests(live(day.job, now - now % STEP_MS))
                measured = latency(asked, plan.seconds)
                p50.add(one.name, measured.p50)
                p99.add(one.name, measured.p99)
            if stream.rate < 0.9 * stream.wanted:
                late.append(f"{one.name} took only {stream.rate:,.0f} samples/s")
    p50.note = ", ".join(dict.fromkeys(late))
    return [p50, p99]


def one_seen(row: Row, one: Contestant) -> bool:
    """Whether the contestant was written to before, so that it knows the series."""
    return one.name in row.figures
