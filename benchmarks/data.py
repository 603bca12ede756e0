"""The samples that every contestant is given."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEP_MS = 15_000


@dataclass(frozen=True)
class Data:
    """``value[s, t]`` of replica ``s // gpus`` and device ``s % gpus`` at ``time[t]`` (ms); two decimals, 0 to 1."""

    job: str
    replicas: int
    gpus: int
    time: NDArray[np.int64]
    value: NDArray[np.float64]

    @property
    def samples(self) -> int:
        return int(self.value.size)

    def names(self, series: int) -> tuple[str, str, str]:
        """Replica, node and device of one series."""
        replica, device = divmod(series, self.gpus)
        return f"worker-{replica}", f"node-{replica}", f"gpu{device}"


def utilization(now_ms: int, hours: float, replicas: int = 16, gpus: int = 8, job: str = "bench") -> Data:
    """A job's GPU utilization every 15 s for the hours before now: a random walk, rounded to two decimals."""
    end = now_ms - now_ms % STEP_MS
    count = int(hours * 3_600_000 / STEP_MS)
    time = np.arange(end - (count - 1) * STEP_MS, end + 1, STEP_MS, dtype=np.int64)
    generator = np.random.default_rng(7)
    steps = generator.normal(0, 0.05, (replicas * gpus, count))
    walk = 0.5 + 0.49 * np.sin(np.cumsum(steps, axis=1))
    return Data(job, replicas, gpus, time, np.round(walk, 2))
