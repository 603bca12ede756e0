"""Simulated fleet: nodes with GPUs, eight nodes for each job. Each series gets one sample in each interval."""

from dataclasses import dataclass

import numpy as np

from benchmarks.data import Names
from benchmarks.native import NativeTemplate
from jobmeter.model.catalog import METRICS, Kind, MetricScope

NODES_PER_JOB = 8


@dataclass(frozen=True)
class Fleet:
    """Size of a fleet: number of nodes, GPUs of each node, metrics of each GPU.

    ``interval`` is the time between two samples of a series in seconds.
    """

    nodes: int = 1_000
    gpus: int = 8
    metrics: int = 40
    interval: float = 10.0

    @property
    def series(self) -> int:
        """Return the number of series of one node."""
        return self.gpus * self.metrics

    @property
    def rate(self) -> float:
        """Return the samples a second of all nodes together."""
        return self.nodes * self.series / self.interval

    @property
    def jobs(self) -> list[str]:
        """Return the ids of all jobs. The last job may have fewer than eight nodes."""
        return [self.job(node) for node in range(0, self.nodes, NODES_PER_JOB)]

    def job(self, node: int) -> str:
        """Return the id of the job that runs on a node."""
        return f"soak-{node // NODES_PER_JOB:04}"

    def replicas(self, job: int) -> int:
        """Return the number of replicas of ``jobs[job]``. Each replica has a node of its own."""
        return min(NODES_PER_JOB, self.nodes - job * NODES_PER_JOB)

    def names(self) -> tuple[list[str], list[bool]]:
        """Return the names of the metrics of a GPU, and for each whether it is a counter.

        The catalogue's metrics of GPUs come first. Metrics of a program fill the number up.
        """
        known = [one for one in METRICS if one.scope is MetricScope.DEVICE and one.name.startswith("gpu.")]
        pairs = [(one.name, one.kind is Kind.COUNTER) for one in known][: self.metrics]
        pairs += [(f"app.figure.{at}", False) for at in range(self.metrics - len(pairs))]
        return [name for name, _ in pairs], [grows for _, grows in pairs]


class Node:
    """Node with an agent: a frame that is encoded once, and random values of its series."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        metrics, grows = fleet.names()
        job, replica, node = fleet.job(number), f"worker-{number % NODES_PER_JOB}", f"node-{number:05}"
        series = [
            Names(metric, job, replica, node, f"gpu{device}") for device in range(fleet.gpus) for metric in metrics
        ]
        self._frame = NativeTemplate(series, packed=True)
        self._draw = np.random.default_rng(number)
        self._counters = np.flatnonzero(np.tile(grows, fleet.gpus))
        self._counted = np.floor(self._draw.random(len(self._counters)) * 1e6)
        self._size = len(series)

    def measure(self, time_ms: int) -> bytes:
        """Return a frame with the samples of one time.

        Gauges are random from 0 to 1 with two decimals. Counters grow by 1 to 1,001.
        """
        values = np.round(self._draw.random(self._size), 2)
        self._counted += 1 + np.floor(values[self._counters] * 1000)
        values[self._counters] = self._counted
        return self._frame.patch(time_ms, values)
