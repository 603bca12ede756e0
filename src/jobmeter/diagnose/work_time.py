"""Splits the training time of two jobs into input, communication, computing and a lower clock.

Each sample of the devices' utilization stands for some time. Its idle share is waiting for input while the CPU or the
storage was busy. Its busy share is communication while links carried data and multiprocessors were less active than at
best. The rest is computing. Computing at a lower clock than in the other job takes longer in proportion.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from jobmeter.model.batch import Bools, Float64s
from jobmeter.model.phase import PhaseCause
from jobmeter.query.course import Course, Interval
from jobmeter.query.idle import WORK

SIGNS = ("pressure.io", "pressure.cpu", "cpu.utilization")
"""Shares of time in which the host was busy for the devices: the highest one counts."""
ACTIVITY = ("gpu.sm.active", "gpu.tensor.active", "npu.sm.active", "npu.tensor.active")
LINKS = ("gpu.nvlink.transmit", "gpu.nvlink.receive", "network.transmit", "network.receive")
CLOCK = "gpu.clock.sm"
FIGURES = ("gpu.power", "gpu.throttle.power", "gpu.throttle.thermal.hardware", "gpu.throttle.thermal.software")
METRICS = tuple(dict.fromkeys((*WORK, *SIGNS, *ACTIVITY, *LINKS, CLOCK, *FIGURES)))
"""Everything that the split and its texts read."""
_BEST = 0.9
"""Quantile of activity that counts as the best: the highest sample may be an outlier."""
_CARRIES, _LEAST_TRAFFIC = 0.05, 2.0**20
"""Links carry data from this share of their high rate in either job on, and from this rate in bytes a second."""
_BUSY = 0.5

Courses = Mapping[str, Course]


class WorkTime(msgspec.Struct, frozen=True, eq=False):
    """The training time of one job in milliseconds by cause, and the means of its metrics in that time."""

    parts: Mapping[PhaseCause, float]
    means: Mapping[str, float]


class _Points(msgspec.Struct, frozen=True, eq=False):
    """Points of a job in its training: their ``width`` in ms, ``busy`` share 0 to 1, and values by metric."""

    width: Float64s
    busy: Float64s
    values: Mapping[str, Float64s]
    total: int

    def compute_high(self, metric: str, per_busy: Callable[[Float64s, Float64s], Float64s]) -> float:
        """Return a high value of a metric among busy points; 0 without busy points."""
        value = per_busy(self.values[metric], self.busy)
        chosen = np.isfinite(value) & (self.busy > _BUSY)
        return float(np.quantile(value[chosen], _BEST)) if chosen.any() else 0.0

    def compute_mean(self, metric: str, weight: Float64s) -> float | None:
        """Return the weighted mean of a metric over its points; None without samples."""
        value = self.values[metric]
        valid = np.isfinite(value) & (weight > 0)
        return float(np.average(value[valid], weights=weight[valid])) if valid.any() else None


class _Methods(msgspec.Struct, frozen=True):
    """Metrics of both jobs, by their use; empty without common metrics."""

    work: str
    signs: tuple[str, ...]
    activity: str
    links: tuple[str, ...]
    clock: str


def split_work(
    courses: Sequence[Courses], training: Sequence[Sequence[Interval]], *, same_devices: bool
) -> tuple[list[WorkTime], dict[str, str]]:
    """Return the training time of two jobs by cause, and causes that cannot be judged, each with the reason.

    ``courses`` and ``training`` have an item for each job. ``same_devices`` False: their clocks are not compared.
    """
    methods, unknown = _methods(courses, same_devices=same_devices)
    if not methods.work:
        lengths = [sum(end - start for start, end in spans) for spans in training]
        return [WorkTime({PhaseCause.UNATTRIBUTED: float(length)}, {}) for length in lengths], unknown
    points = [_points(own, methods.work, spans) for own, spans in zip(courses, training, strict=True)]
    best = (
        max((one.compute_high(methods.activity, _divide_by_busy) for one in points), default=0.0)
        if methods.activity
        else 0.0
    )
    rates = {name: max(one.compute_high(name, lambda value, _: value) for one in points) for name in methods.links}
    parts = [_parts(one, methods, best, rates) for one in points]
    if methods.clock:
        clocks = [one.compute_mean(CLOCK, one.width * one.busy) or 0.0 for one in points]
        for own, clock in zip(parts, clocks, strict=True):
            # A job that was not measured while it computed has no clock, and nothing to compare it with.
            own[PhaseCause.CLOCK] = own[PhaseCause.COMPUTE] * (1.0 - clock / max(clocks)) if all(clocks) else 0.0
            own[PhaseCause.COMPUTE] -= own[PhaseCause.CLOCK]
    found = [WorkTime(own, _means(one)) for own, one in zip(parts, points, strict=True)]
    return found, unknown


def _methods(courses: Sequence[Courses], *, same_devices: bool) -> tuple[_Methods, dict[str, str]]:
    """Return the metrics that both jobs have, and the causes that cannot be judged without the others."""

    def shared(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if all(name in own and len(own[name].time) for own in courses))

    work, signs, activity, links = shared(WORK), shared(SIGNS), shared(ACTIVITY), shared(LINKS)
    clock = shared((CLOCK,))
    unknown: dict[str, str] = {}
    if not work:
        reason = "the utilization of devices was not measured in both"
        return _Methods("", (), "", (), ""), dict.fromkeys(_SPLIT, reason)
    if not signs:
        unknown[PhaseCause.INPUT] = "neither CPU in use nor pressure was measured in both"
    if not activity:
        unknown[PhaseCause.COMMUNICATION] = (
            "the activity of multiprocessors was not measured in both: it is part of compute"
        )
    elif not links:
        unknown[PhaseCause.COMMUNICATION] = "the traffic of links was not measured in both: it is part of compute"
    if not clock:
        unknown[PhaseCause.CLOCK] = "clocks were not measured in both: it is part of compute"
    elif not same_devices:
        unknown[PhaseCause.CLOCK] = "their devices are of different types: it is part of compute"
        clock = ()
    return _Methods(work[0], signs, (*activity, "")[0] if links else "", links, "".join(clock)), unknown


_SPLIT = (PhaseCause.INPUT.value, PhaseCause.COMMUNICATION.value, PhaseCause.COMPUTE.value, PhaseCause.CLOCK.value)


def _points(courses: Courses, work: str, training: Sequence[Interval]) -> _Points:
    course = courses[work]
    width = np.zeros(len(course.time))
    for start, end in training:
        first, last = np.searchsorted(course.until, start, side="right"), np.searchsorted(course.time, end)
        part = slice(int(first), int(last))
        width[part] += np.maximum(np.minimum(course.until[part], end) - np.maximum(course.time[part], start), 0)
    inside = width > 0
    time = course.time[inside]
    values = {name: own.read_at(time) for name, own in courses.items()}
    busy = np.clip(course.value[inside], 0.0, 1.0)
    return _Points(width[inside], busy, values, sum(end - start for start, end in training))


def _divide_by_busy(value: Float64s, busy: Float64s) -> Float64s:
    """Divide a value by the busy share of its point."""
    return value / np.maximum(busy, _BUSY)


def _parts(points: _Points, methods: _Methods, best: float, rates: Mapping[str, float]) -> dict[PhaseCause, float]:
    """Return the time of each cause; time without samples is unattributed."""
    busy, idle = points.busy, 1.0 - points.busy
    signs = [np.nan_to_num(points.values[name]) for name in methods.signs]
    waits = np.minimum(idle, np.max(signs, axis=0)) if signs else np.zeros(len(idle))
    quiet = np.zeros(len(busy))
    if best > 0:
        active = points.values[methods.activity] / best
        quiet = np.where(np.isfinite(active), np.maximum(busy - np.maximum(active, 0.0), 0.0), 0.0)
    communicates = quiet * _carries(points, rates)
    found = {
        PhaseCause.INPUT: float((waits * points.width).sum()),
        PhaseCause.COMMUNICATION: float((communicates * points.width).sum()),
        PhaseCause.COMPUTE: float(((busy - communicates) * points.width).sum()),
    }
    found[PhaseCause.UNATTRIBUTED] = points.total - sum(found.values())
    return found


def _carries(points: _Points, rates: Mapping[str, float]) -> Bools:
    """Return the points at which a link carries data."""
    carries = np.zeros(len(points.busy), np.bool_)
    for name, high in rates.items():
        rate = points.values[name]
        carries |= np.isfinite(rate) & (rate >= max(_CARRIES * high, _LEAST_TRAFFIC))
    return carries


def _means(points: _Points) -> dict[str, float]:
    found = {name: points.compute_mean(name, points.width) for name in points.values}
    return {name: mean for name, mean in found.items() if mean is not None}
