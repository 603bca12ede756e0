"""Samples that every contestant stores, and the names of their series."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEP_MS = 15_000
HOUR_MS = 3_600_000
PHASE_MS = 7_000
"""Time from a multiple of ``STEP_MS`` to the next sample, so that no sample lies on the edge of a bucket.

The peers, whose ranges are ``(start, end]``, count a sample on the edge to the bucket before. Jobmeter counts it to the
bucket after.
"""


@dataclass(frozen=True)
class Names:
    """Names that identify a series, as Jobmeter has them."""

    metric: str
    job: str
    replica: str
    node: str
    device: str

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the series for a peer, sorted by name as remote write requires."""
        name = self.metric.replace(".", "_")
        rest = {"device": self.device, "job": self.job, "node": self.node, "replica": self.replica}
        return {"__name__": name, **{key: value for key, value in rest.items() if value}}


@dataclass(frozen=True)
class Data:
    """Samples of a metric: ``value[s, t]`` of replica ``s // gpus`` and device ``s % gpus`` at ``time[t]`` (ms)."""

    metric: str
    job: str
    replicas: int
    gpus: int
    time: NDArray[np.int64]
    value: NDArray[np.float64]

    @property
    def samples(self) -> int:
        """Return the number of samples."""
        return int(self.value.size)

    @property
    def end_ms(self) -> int:
        """Return the time of the last sample in ms."""
        return int(self.time[-1])

    def names(self) -> list[Names]:
        """Return the names of each series, in the order of ``value``."""
        return job_names(self.metric, self.job, self.replicas, self.gpus)


def job_names(metric: str, job: str, replicas: int, gpus: int) -> list[Names]:
    """Return the series of one metric of a job, replica by replica. Each replica has a node of its own."""
    return [
        Names(metric, job, f"worker-{replica}", f"node-{job}-{replica}", f"gpu{device}")
        for replica in range(replicas)
        for device in range(gpus)
    ]


def utilization(end_ms: int, hours: float, job: str = "bench", replicas: int = 16, gpus: int = 8) -> Data:
    """Return a job's GPU utilization, 0 to 1, every 15 s for the ``hours`` before ``end_ms``.

    Values follow a random walk and have two decimals.
    """
    time = _times(end_ms, hours)
    steps = np.random.default_rng(7).normal(0, 0.05, (replicas * gpus, len(time)))
    walk = 0.5 + 0.49 * np.sin(np.cumsum(steps, axis=1))
    return Data("gpu.utilization", job, replicas, gpus, time, np.round(walk, 2))


def random_values(end_ms: int, hours: float, job: str, seed: int = 0) -> Data:
    """Return values that hardly compress: independent, 0 to 100 with two decimals, every 15 s on 128 GPUs."""
    time = _times(end_ms, hours)
    value = np.round(np.random.default_rng(seed).random((128, len(time))) * 100, 2)
    return Data("gpu.power", job, 16, 8, time, value)


def concatenated(texts: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    """Join texts, and return the joined text and the start of each text in it."""
    starts = np.cumsum([0, *(len(text) for text in texts)], dtype=np.int64)[:-1]
    return b"".join(texts), starts


def _times(end_ms: int, hours: float) -> NDArray[np.int64]:
    end = end_ms - (end_ms - PHASE_MS) % STEP_MS
    count = round(hours * HOUR_MS / STEP_MS)
    return np.arange(end - (count - 1) * STEP_MS, end + 1, STEP_MS, dtype=np.int64)
