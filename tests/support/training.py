"""Simulates synchronous training jobs by their device metrics: levels, noise, checkpoint pauses, and one slow rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jobmeter.model.catalog import CATALOG, Kind
from jobmeter.model.job import JobState
from jobmeter.model.time import MAX_TIME_MS, MINUTE, SECOND
from tests.support.diagnosed import Sampled
from tests.support.fakes import NOW

LEVELS = {
    "gpu.utilization": 0.93,
    "gpu.power": 600.0,
    "gpu.clock.sm": 1.7e9,
    "gpu.memory.usage": 6e10,
    "gpu.sm.active": 0.75,
    "gpu.tensor.active": 0.4,
    "gpu.nvlink.transmit": 6e10,
    "gpu.nvlink.receive": 6e10,
    "cpu.usage": 4.0,
    "network.receive": 2e8,
    "network.transmit": 2e8,
    "gpu.power.limit": 700.0,
    "gpu.temperature": 64.0,
    "gpu.memory.limit": 8e10,
    "gpu.throttle.power": 0.02,
    "gpu.clock.sm.limit": 1.98e9,
    "gpu.pcie.generation": 5.0,
    "gpu.pcie.generation.limit": 5.0,
    "gpu.pcie.width": 16.0,
    "gpu.pcie.width.limit": 16.0,
    "gpu.processes": 1.0,
    "gpu.processes.foreign": 0.0,
    "cpu.limit": 8.0,
    "cpu.throttled.time": 0.02,
    "memory.usage": 2e10,
    "memory.limit": 6.4e10,
    "pressure.io": 0.03,
}
CONSTANT = tuple(name for name in LEVELS if name.endswith(".limit") or name.startswith(("gpu.pcie.", "gpu.processes")))
"""Metrics without noise."""
MINUTELY = frozenset(name for name in CONSTANT if name.startswith(("gpu.pcie", "gpu.clock", "gpu.power")))
"""Metrics that an agent reads once a minute."""
BIASES = {
    "gpu.power": 0.03,
    "gpu.clock.sm": 0.004,
    "gpu.memory.usage": 0.005,
    "gpu.utilization": 0.01,
    **dict.fromkeys(CONSTANT, 0.0),
}
"""Relative differences between healthy devices. The default is 2 %."""
NOISE = {
    "gpu.utilization": 0.04,
    "gpu.power": 0.03,
    "gpu.clock.sm": 0.008,
    "gpu.memory.usage": 0.002,
    "gpu.temperature": 0.02,
    "memory.usage": 0.01,
    **dict.fromkeys(CONSTANT, 0.0),
}
"""Relative noise of the samples of one device. The default is 6 %."""
NVML = ("gpu.utilization", "gpu.power", "gpu.clock.sm", "gpu.memory.usage")
"""Metrics that are available without GPM or DCGM."""
Change = Callable[[str, int, np.ndarray, np.ndarray], np.ndarray]
"""Function of (metric, rank, times, values) that returns changed values."""


@dataclass
class Training:
    """Job that is sampled every ``interval`` seconds for ``length`` minutes, each rank at its own moment."""

    random: np.random.Generator
    ranks: int = 8
    interval: int = 20
    length: int = 60
    metrics: Sequence[str] = NVML
    state: JobState = JobState.RUNNING
    noise: float = 1.0
    pauses: bool = True
    noiseless_from: int = MAX_TIME_MS

    @property
    def start(self) -> int:
        """Start of the job."""
        return NOW - self.length * MINUTE

    def sampled(self, change: Change = lambda _metric, _rank, _time, value: value) -> Sampled:
        """Sample the job, with a change to the values of its ranks."""
        measured = {}
        for rank in range(self.ranks):
            time = self._times()
            saving = (time // MINUTE % 15 == 0) & self.pauses
            every = max(1, round(60 / self.interval))
            for metric in self.metrics:
                value = change(metric, rank, time, np.full(len(time), self._level(metric)))
                noise = self.noise * NOISE.get(metric, 0.06) * self.random.normal(size=len(time))
                value = value * np.where(time < self.noiseless_from, 1 + noise, 1)
                if metric not in {"gpu.clock.sm", "gpu.memory.usage"}:
                    value = np.where(saving, 0.15 * value, value)
                if CATALOG[metric].unit == "1":
                    value = np.minimum(value, 1.0)
                if CATALOG[metric].kind is Kind.COUNTER:
                    value = np.cumsum(np.maximum(value, 0) * np.diff(time, prepend=time[:1]) / SECOND)
                own = slice(None, None, every if metric in MINUTELY else 1)
                measured[metric, f"worker-{rank}"] = time[own], np.maximum(value, 0.0)[own]
        return Sampled(measured, self.start, state=self.state)

    def slow(self, factors: dict[str, float], rank: int, since: float = 0.0) -> Sampled:
        """Sample the job with one slow rank.

        From the share ``since`` of the job's life on, factors scale its metrics.
        """
        begin = self.start + since * self.length * MINUTE

        def change(metric: str, own: int, time: np.ndarray, value: np.ndarray) -> np.ndarray:
            return np.where((time >= begin) & (own == rank), value * factors.get(metric, 1.0), value)

        return self.sampled(change)

    def _times(self) -> np.ndarray:
        time = np.arange(self.start + int(self.random.integers(self.interval * SECOND)), NOW, self.interval * SECOND)
        time = np.unique(time + self.random.integers(-20, 21, len(time)))
        return time[self.random.random(len(time)) > 0.01]

    def _level(self, metric: str) -> float:
        return LEVELS[metric] * (1 + BIASES.get(metric, 0.02) * float(self.random.normal()))
