"""The questions. Those of ``moving`` never repeat: a question that was asked before measures a cache."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.data import HOUR_MS

REPLICAS = 16
LIVE_STEP_S = 300


@dataclass(frozen=True)
class Asked:
    """A question: the means over steps of a metric, a line for each member of ``by``. Times are milliseconds."""

    job: str
    end_ms: int
    hours: float
    step_s: int
    by: str
    replica: str | None = None
    metric: str = "gpu.utilization"

    @property
    def start_ms(self) -> int:
        """Where the range begins."""
        return self.end_ms - round(self.hours * HOUR_MS)


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def live(job: str, end_ms: int = 0) -> list[Asked]:
    """The last hour at 5 minutes of each replica, a line a device."""
    return [Asked(job, end_ms, 1, LIVE_STEP_S, "device", f"worker-{one}") for one in range(REPLICAS)]


def fine(job: str, end_ms: int) -> Asked:
    """The last quarter of an hour at 15 seconds of one replica: buckets that end while a run goes on."""
    return Asked(job, end_ms, 0.25, 15, "device", "worker-3")


def moving(questions: Sequence[Asked], clock: Callable[[], int] = now_ms) -> Iterator[Asked]:
    """The questions in turn without end, each range ending now: later by at least a millisecond every time around."""
    end = 0
    while True:
        end = max(clock(), end + 1)
        for question in questions:
            yield replace(question, end_ms=end)
