"""A series as arrays, and the arithmetic that rules share."""

from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.model.batch import Bools, Float64s, Int64s, find_runs
from jobmeter.model.finding import Evidence, Subject
from jobmeter.query.gaps import Presence
from jobmeter.query.stretches import GAP_INTERVALS, Stretch, find_steady_stretches, find_usual_interval

_MOST_PAIRS = 300

Member = tuple[str, str, str]
"""Replica, node and device of a series; an empty text for each that it does not have."""


class Signal(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A series of a job or a node, in points that each stand for the time from ``time`` to ``until``.

    ``time`` int64[k] is the time of the first sample of a point, in ms, strictly ascending. ``value`` float64[k] is the
    mean of its samples, finite. Missing points are absent. ``part`` names one of several things of a node, for example
    a mount point. Without ``with_ends`` each point is one sample.
    """

    metric: str
    time: Int64s
    value: Float64s
    replica: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None
    part: str = ""

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def until(self) -> Int64s:
        """End of the time of each point: the next point, or the start of a gap; int64[k] ms."""
        return Presence.from_samples(self.time).until

    def with_ends(self, until: Int64s) -> "Signal":
        """Set the ends ``until`` of points from the times of their samples. Other points lose the ends."""
        self.__dict__["until"] = until
        return self

    @cached_property
    def interval(self) -> int:
        """The usual distance of two points, in ms; 0 for fewer than two."""
        return find_usual_interval(self.time)

    @property
    def member(self) -> Member:
        """The member of the job that the series belongs to."""
        return self.replica, self.node, self.device

    @property
    def device_name(self) -> str:
        """``node-1/gpu0``; without a node the replica takes its place."""
        return f"{self.node or self.replica}/{self.device}"

    @property
    def span(self) -> tuple[int, int]:
        """Range from the first point to the end of the last one. Needs points."""
        return int(self.time[0]), int(self.until[-1])

    def cut(self, start_ms: int, end_ms: int) -> "Signal":
        """Return the part in ``[start, end)``."""
        if len(self.time) and start_ms <= self.time[0] and self.time[-1] < end_ms:
            return self
        part = slice(*self.time.searchsorted((start_ms, end_ms)).tolist())
        return replace(self, time=self.time[part], value=self.value[part]).with_ends(self.until[part])

    @property
    def mean(self) -> float:
        """Mean, weighted by the time of the points. Needs points."""
        width = self.until - self.time
        return float(np.average(self.value, weights=width if width.any() else None))

    @cached_property
    def coverage(self) -> float:
        """The share of its own life with samples, 0 to 1, by the interval of the samples."""
        if not len(self.time):
            return 0.0
        start, end = self.span
        return float((self.until - self.time).sum()) / max(end - start, 1)

    def average_over(self, length_ms: float) -> "Signal":
        """Average over windows of a length, to reduce noise; unchanged if the points are no closer."""
        if len(self.time) < 2 or length_ms < 2 * self.interval:
            return self
        number = (self.time - self.time[0]) // max(int(length_ms), 1)
        starts = find_runs(number)
        width = np.maximum(self.until - self.time, 1)
        value = np.add.reduceat(self.value * width, starts) / np.add.reduceat(width, starts)
        until = self.until[np.append(starts[1:], len(self.time)) - 1]
        return replace(self, time=self.time[starts], value=value).with_ends(until)

    def read_at(self, time: Int64s) -> Float64s:
        """Return the last value at or before each time, NaN before the first one and in a gap."""
        if not len(self.time):
            return np.full(len(time), np.nan)
        if len(time) == len(self.time) and bool((time == self.time).all()):
            return self.value
        place = np.searchsorted(self.time, time, side="right") - 1
        value = self.value[np.maximum(place, 0)]
        age = time - self.time[np.maximum(place, 0)]
        stale = age > GAP_INTERVALS * max(self.interval, 1)
        return np.where((place < 0) | stale, np.nan, value)

    def find_stretches(self, true: Bools, hold_ms: float, share: float) -> list[Stretch]:
        """Return the stretches of at least ``hold_ms`` in which a condition held for ``share`` of the time."""
        return find_steady_stretches(self.time, self.until, true, hold_ms, share)

    def select_values(self, stretch: Stretch) -> Float64s:
        """Return its values in one of its stretches."""
        return self.value[stretch.points]

    def cite(self, text: str, value: float, limit: float | None, unit: str, *, time: int | None = None) -> Evidence:
        """Make evidence of its metric, about its replica; see ``make_metric_evidence``."""
        return make_metric_evidence(self.metric, text, value, limit, unit, time=time, replica=self.replica)


def name_device(signal: Signal) -> Subject:
    """Return the device of a signal as a subject."""
    return Subject("device", signal.device_name)


def name_replica(signal: Signal) -> Subject:
    """Return the replica of a signal as a subject."""
    return Subject("replica", signal.replica)


def make_metric_evidence(
    metric: str, text: str, value: float, limit: float | None, unit: str, *, time: int | None = None, replica: str = ""
) -> Evidence:
    """Make evidence of a metric: the observed value, and the limit."""
    rounded = float(f"{value:.6g}")
    return Evidence(
        kind="metric", text=text, metric=metric, value=rounded, limit=limit, unit=unit, time=time, replica=replica
    )


def align_signals(signals: list[Signal]) -> tuple[Int64s, Float64s]:
    """Return the times of the densest signal, and float64[signal, time] at these times, NaN for a missing value."""
    if not signals:
        return np.empty(0, np.int64), np.empty((0, 0))
    time = max(signals, key=len).time
    return time, np.vstack([signal.read_at(time) for signal in signals])


def compute_median(values: Float64s, axis: int = 0) -> Float64s:
    """Return the median along an axis without NaN values; NaN if all are NaN."""
    if not values.shape[axis]:
        return np.full(np.delete(values.shape, axis), np.nan)
    # Several times as quick as NumPy's median of small arrays with gaps.
    ordered = np.sort(values, axis=axis)  # NaN values come last
    count = np.expand_dims((~np.isnan(values)).sum(axis=axis), axis)
    low, high = (np.take_along_axis(ordered, at, axis) for at in (np.maximum(count - 1, 0) // 2, count // 2))
    middle: Float64s = np.squeeze((low + high) / 2, axis)
    return middle


class Trend(msgspec.Struct, frozen=True):
    """A straight line: ``slope`` a second, ``fit`` the share of the points' variance that it explains (R squared)."""

    slope: float
    start: float
    fit: float


def compute_trend(time: Int64s, value: Float64s) -> Trend:
    """Compute the Theil-Sen line: the median slope between distant points, which few odd points do not bend.

    At least 4 points are needed; with fewer the slope is 0.
    """
    if len(time) < 4:
        return Trend(0.0, float(value[0]) if len(value) else 0.0, 0.0)
    pick = np.unique(np.linspace(0, len(time) - 1, _MOST_PAIRS).astype(np.int64))
    x, y = (time[pick] - time[0]) / 1000.0, value[pick]
    left, right = np.triu_indices(len(x), k=max(1, len(x) // 3))
    slope = float(np.median((y[right] - y[left]) / (x[right] - x[left])))
    start = float(np.median(y - slope * x))
    spread = float(np.sum((y - y.mean()) ** 2))
    fit = 1.0 - float(np.sum((y - start - slope * x) ** 2)) / spread if spread > 0 else 0.0
    return Trend(slope, start, fit)
