"""Who measures what: nodes with GPUs, eight nodes a job, each series written once an interval."""

from dataclasses import dataclass

import numpy as np

from benchmarks.data import Names
from benchmarks.native import NativeTemplate
from jobmeter.model.catalog import METRICS, Kind, MetricScope

NODES_PER_JOB = 8


@dataclass(frozen=True)
class Fleet:
    """Its size; ``interval`` is the seconds between two samples of a series."""

    nodes: int = 1_000
    gpus: int = 8
    metrics: int = 40
    interval: float = 10.0

    @property
    def series(self) -> int:
        """Number of series of one node."""
        return self.gpus * self.metrics

    @property
    def rate(self) -> float:
        """Samples a second of all nodes together."""
        return self.nodes * self.series / self.interval

    @property
    def jobs(self) -> list[str]:
        """All of them; the last may have fewer nodes."""
        return [self.job(node) for node in range(0, self.nodes, NODES_PER_JOB)]

    def job(self, node: int) -> str:
        """The job that runs on a node."""
        return f"soak-{node // NODES_PER_JOB:04}"

    def replicas(self, job: int) -> int:
        """How many replicas the job at that place of ``jobs`` has, a node each."""
        return min(NODES_PER_JOB, self.nodes - job * NODES_PER_JOB)

    def names(self) -> tuple[list[str], list[bool]]:
        """The metrics, and which of them only grow: what the catalogue has for GPUs, then a program's own."""
        known = [one for one in METRICS if one.scope is MetricScope.DEVICE and one.name.startswith("gpu.")]
        pairs = [(one.name, one.kind is Kind.COUNTER) for one in known][: self.metrics]
        pairs += [(f"app.figure.{at}", False) for at in range(self.metrics - len(pairs))]
        return [name for name, _ in pairs], [grows for _, grows in pairs]


class Node:
    """One agent: its frame, encoded once, and the values that it measures."""

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
        """The frame of that moment: gauges at random with two decimals, counters a little higher than before."""
        values = np.round(self._draw.random(self._size), 2)
        self._counted += 1 + np.floor(values[self._counters] * 1000)
        values[self._counters] = self._counted
        return self._frame.patch(time_ms, values)
