"""The figures of a job's summary, taken from its samples as they pass by. Bounded, however long the job runs."""

from collections import defaultdict
from dataclasses import dataclass, field

from jobmeter.collect.base import Samples
from jobmeter.model.series import Series

_MOST_POINTS = 512


@dataclass(slots=True)
class Figure:
    """One value over time: ``mean`` over the time in which it was known, ``peak``, and points for a drawing.

    A value that held for less than ``shortest`` makes no peak where longer ones do: a rate over a moment is noise.
    """

    shortest: float = 0.0

    points: list[float] = field(default_factory=list)
    _peak: float = 0.0
    _brief_peak: float = 0.0
    _sum: float = 0.0
    _weight: float = 0.0
    _stride: int = 1
    _pending: list[float] = field(default_factory=list)

    @property
    def peak(self) -> float:
        """The highest value."""
        return self._peak or self._brief_peak

    @property
    def mean(self) -> float:
        """Mean, weighted by time."""
        return self._sum / self._weight if self._weight else 0.0

    def add(self, value: float, weight: float = 1.0) -> None:
        """Take in a value that held for ``weight``."""
        if weight >= self.shortest:
            self._peak = max(self._peak, value)
        self._brief_peak = max(self._brief_peak, value)
        self._sum += value * weight
        self._weight += weight
        self._pending.append(value)
        if len(self._pending) < self._stride:
            return
        self.points.append(sum(self._pending) / len(self._pending))
        self._pending.clear()
        if len(self.points) > _MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [(left + right) / 2 for left, right in pairs]
            self._stride *= 2


_RATES = {
    "cpu.time": "cpu",
    "disk.read": "disk.read",
    "disk.write": "disk.write",
    "network.receive": "network.receive",
    "network.transmit": "network.transmit",
    "node.network.receive": "node.network.receive",
    "node.network.transmit": "node.network.transmit",
}
_SUMS = {"memory.usage": "memory", "gpu.memory.usage": "gpu.memory", "gpu.power": "gpu.power"}
_MEANS = {"gpu.utilization": "gpu"}
_LEAST_SECONDS = 0.05
"""Two samples closer than this make no rate that means anything."""


@dataclass(slots=True)
class _Counter:
    first: float
    latest: float
    rated_ms: int
    rated: float


class Figures:
    """What a job used, by figure: ``cpu`` (cores), ``memory``, ``gpu``, ``disk.read``, ... Not safe for threads."""

    def __init__(self, interval_ms: int = 0) -> None:
        """``interval_ms`` is the time between two samples."""
        self.by_name: dict[str, Figure] = {}
        self.memory_peak = 0.0
        """Most memory of one replica at once, as ``memory.peak`` has it."""
        self._shortest = interval_ms / 2000
        self._counters: dict[Series, _Counter] = {}
        self._last_ms: int | None = None

    def begin(self, series: Series, time_ms: int) -> None:
        """Say that a counter stood at 0 then: what it shows at its first sample counts as used."""
        self._counters[series] = _Counter(0.0, 0.0, time_ms, 0.0)

    def total(self, metric: str) -> float:
        """How much the counters of that metric grew, all together."""
        return sum(
            counter.latest - counter.first for series, counter in self._counters.items() if series.metric == metric
        )

    def watch(self, samples: Samples) -> None:
        """Take in the samples of one moment."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        weights: dict[str, float] = {}
        for series, time_ms, value in samples:
            metric = series.metric
            if metric in _RATES:
                step = self._step(series, time_ms, value)
                if step:
                    name = _RATES[metric]
                    found[name].append(step[0])
                    weights[name] = max(step[1], weights.get(name, 0.0))
            elif metric in _SUMS or metric in _MEANS:
                found[_SUMS.get(metric) or _MEANS[metric]].append(value)
            elif metric == "memory.peak":
                self.memory_peak = max(self.memory_peak, value)
        now_ms = samples[0].time_ms if samples else 0
        passed = (now_ms - self._last_ms) / 1000 if self._last_ms is not None else _LEAST_SECONDS
        self._last_ms = now_ms
        for name, values in found.items():
            value = sum(values) / len(values) if name in _MEANS.values() else sum(values)
            figure = self.by_name.setdefault(name, Figure(self._shortest if name in weights else 0.0))
            figure.add(value, weights.get(name, passed))

    def _step(self, series: Series, time_ms: int, value: float) -> tuple[float, float] | None:
        """The rate since the last sample and the seconds since then; None where there is none or it is too close."""
        counter = self._counters.setdefault(series, _Counter(value, value, time_ms, value))
        counter.latest = value
        seconds = (time_ms - counter.rated_ms) / 1000
        if seconds < _LEAST_SECONDS:
            return None
        rate = max(value - counter.rated, 0.0) / seconds
        counter.rated_ms, counter.rated = time_ms, value
        return rate, seconds
