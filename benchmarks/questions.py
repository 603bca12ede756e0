"""Queries of the benchmarks. ``moving`` never repeats a range, because a repeated query would measure a cache."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.data import HOUR_MS

REPLICAS = 16
LIVE_STEP_S = 300


@dataclass(frozen=True)
class Asked:
    """Query of a metric's means over steps, with a line for each member of ``by`` (``replica`` or ``device``)."""

    job: str
    end_ms: int
    hours: float
    step_s: int
    by: str
    replica: str | None = None
    metric: str = "gpu.utilization"

    @property
    def start_ms(self) -> int:
        """Return the start of the range in epoch ms."""
        return self.end_ms - round(self.hours * HOUR_MS)


def now_ms() -> int:
    """Return the current time in epoch ms."""
    return time.time_ns() // 1_000_000


def live(job: str, end_ms: int = 0) -> list[Asked]:
    """Return a query for each replica: the last hour in steps of 5 minutes, with a line for each device."""
    return [Asked(job, end_ms, 1, LIVE_STEP_S, "device", f"worker-{one}") for one in range(REPLICAS)]


def fine(job: str, end_ms: int) -> Asked:
    """Return a query of one replica's last 15 minutes in steps of 15 seconds, whose buckets end during the run."""
    return Asked(job, end_ms, 0.25, 15, "device", "worker-3")


def moving(questions: Sequence[Asked], clock: Callable[[], int] = now_ms) -> Iterator[Asked]:
    """Yield the queries in turn without end.

    Each range ends at the current time, at least a millisecond later than in the turn before.
    """
    end = 0
    while True:
        end = max(clock(), end + 1)
        for question in questions:
            yield replace(question, end_ms=end)
