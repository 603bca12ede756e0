"""Figures of a job's summary, computed from its samples in bounded memory."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from jobmeter.collect.base import Samples
from jobmeter.model.series import Series
from jobmeter.model.steps import STEPS, SUMMARY_BUCKETS
from jobmeter.model.time import floor_to

_MOST_POINTS = 512


class StepFigures:
    """Amounts and weights in steps aligned to the epoch, like a job's summary on the server.

    If there are too many steps, they become longer. Each step has one pair for every ``part``.
    """

    def __init__(self) -> None:
        self._lengths = iter(STEPS)
        self._length = next(self._lengths)
        self._used: dict[int, dict[Series | None, tuple[float, float]]] = {}

    def add(self, time_ms: int, amount: float, weight: float, part: Series | None = None) -> None:
        """Add an amount at a time."""
        self._put(time_ms, part, amount, weight)
        while max(self._used) - min(self._used) >= SUMMARY_BUCKETS * self._length:
            used, self._used, self._length = self._used, {}, next(self._lengths, 2 * self._length)
            for start, parts in used.items():
                for one, (before, length) in parts.items():
                    self._put(start, one, before, length)

    def _put(self, time_ms: int, part: Series | None, amount: float, weight: float) -> None:
        parts = self._used.setdefault(floor_to(time_ms, self._length), {})
        before, length = parts.get(part, (0.0, 0.0))
        parts[part] = before + amount, length + weight

    @property
    def highest(self) -> float:
        """Highest step of a rate, whose weights are seconds."""
        return max((sum(parts) for parts in self._average_steps()), default=0.0)

    def compute_mean(self, *, adds_up: bool) -> float:
        """Return the mean of the steps, as ``job_mean`` of the server's summary: the number of samples does not count.

        A step has the sum of its parts if they add up, else their mean.
        """
        steps = [sum(parts) if adds_up else sum(parts) / len(parts) for parts in self._average_steps()]
        return sum(steps) / len(steps) if steps else 0.0

    def _average_steps(self) -> list[list[float]]:
        """Return the mean of each part, for each step."""
        return [[amount / weight for amount, weight in parts.values()] for parts in self._used.values()]


@dataclass(slots=True)
class Figure:
    """Value over time: ``mean``, ``peak``, and points for a drawing.

    The mean of a rate is weighted by time; its peak is the highest of the steps of ``rate``. The mean of several series
    in ``values`` is the mean of their steps. The peak of anything but a rate is the highest value.
    """

    rate: StepFigures | None = None
    values: StepFigures | None = None
    adds_up: bool = False
    points: list[float] = field(default_factory=list)
    _peak: float = 0.0
    _sum: float = 0.0
    _weight: float = 0.0
    _stride: int = 1
    _pending: list[float] = field(default_factory=list)

    @property
    def peak(self) -> float:
        """Highest value."""
        return self.rate.highest if self.rate else self._peak

    @property
    def mean(self) -> float:
        """Mean of the steps, or weighted by time for a rate and a bare figure."""
        if self.values:
            return self.values.compute_mean(adds_up=self.adds_up)
        return self._sum / self._weight if self._weight else 0.0

    def add_value(self, series: Series, time_ms: int, value: float) -> None:
        """Add a sample of one of the combined series."""
        if self.values:
            self.values.add(time_ms, value, 1.0, series)

    def add(self, value: float, weight: float = 1.0, time_ms: int = 0) -> None:
        """Add a value that held for ``weight`` until ``time_ms``: seconds for a rate."""
        if self.rate:
            self.rate.add(time_ms, value * weight, weight)
        self._peak = max(self._peak, value)
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
"""Least seconds between two samples for a meaningful rate."""


@dataclass(slots=True)
class _Counter:
    first: float
    latest: float
    rated_ms: int
    rated: float


def collect_traffic(samples: Samples, collect: Callable[[int], Samples]) -> Samples:
    """Collect the machine's traffic at the time of the newest sample; empty for a command that ended unmeasured."""
    return collect(samples[-1].time_ms) if samples else []


class RunFigures:
    """Usage of a job by figure: ``cpu`` (cores), ``memory``, ``gpu``, ``disk.read``, and so on. Not thread-safe."""

    def __init__(self) -> None:
        self.by_name: dict[str, Figure] = {}
        self.memory_peak = 0.0
        """Peak memory of one replica, as in ``memory.peak``."""
        self._counters: dict[Series, _Counter] = {}
        self._last_ms: int | None = None

    def begin(self, series: Series, time_ms: int) -> None:
        """Note that a counter was 0 at a time, so that its first sample counts as usage."""
        self._counters[series] = _Counter(0.0, 0.0, time_ms, 0.0)

    def sum_growth(self, metric: str) -> float:
        """Return the growth of the counters of a metric."""
        return sum(
            counter.latest - counter.first for series, counter in self._counters.items() if series.metric == metric
        )

    def watch(self, samples: Samples) -> None:
        """Add the samples of one tick. A counter's first reading may be preceded by its zero."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        weights: dict[str, float] = {}
        for series, time_ms, value in samples:
            metric = series.metric
            if metric in _RATES:
                step = self._measure_step(series, time_ms, value)
                if step:
                    name = _RATES[metric]
                    found[name].append(step[0])
                    weights[name] = max(step[1], weights.get(name, 0.0))
            elif metric in _SUMS or metric in _MEANS:
                name = _SUMS.get(metric) or _MEANS[metric]
                found[name].append(value)
                self._get_figure(name).add_value(series, time_ms, value)
            elif metric == "memory.peak":
                self.memory_peak = max(self.memory_peak, value)
        now_ms = samples[-1].time_ms if samples else 0
        passed = (now_ms - self._last_ms) / 1000 if self._last_ms is not None else _LEAST_SECONDS
        self._last_ms = now_ms
        for name, values in found.items():
            value = sum(values) / len(values) if name in _MEANS.values() else sum(values)
            self._get_figure(name).add(value, weights.get(name, passed), now_ms)

    def _get_figure(self, name: str) -> Figure:
        if name not in self.by_name:
            adds_up = name in _SUMS.values()
            gauge = adds_up or name in _MEANS.values()
            self.by_name[name] = Figure(values=StepFigures(), adds_up=adds_up) if gauge else Figure(rate=StepFigures())
        return self.by_name[name]

    def _measure_step(self, series: Series, time_ms: int, value: float) -> tuple[float, float] | None:
        """Return the rate and the seconds since the last sample; None without one, or if it is too close."""
        counter = self._counters.setdefault(series, _Counter(value, value, time_ms, value))
        counter.latest = value
        seconds = (time_ms - counter.rated_ms) / 1000
        if seconds < _LEAST_SECONDS:
            return None
        rate = max(value - counter.rated, 0.0) / seconds
        counter.rated_ms, counter.rated = time_ms, value
        return rate, seconds
