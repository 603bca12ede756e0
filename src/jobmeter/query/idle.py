"""Idle time of a job's devices while it had them.

A device is idle while its utilization and its active multiprocessors are at most ``IDLE`` for ``HOLD_MS`` or longer.
The fleet view and the rule ``gpu_idle_allocated`` use these values too. Unmeasured time is not idle.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np

from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.model.job import JobView
from jobmeter.model.question import Question
from jobmeter.model.time import MINUTE, TimeRange
from jobmeter.query.defaults import default_step, life
from jobmeter.query.inventory import Inventory
from jobmeter.query.request import By, JobRef, Line, MetricQuery, Statistic
from jobmeter.query.stretches import sustained

ACTIVE = ("gpu.sm.active", "npu.sm.active")
WORK = ("gpu.utilization", "gpu.sm.active", "npu.utilization", "npu.sm.active")
"""Metrics that say whether devices work. A MIG instance has no utilization."""
IDLE = 0.01
HOLD_MS = 15 * MINUTE
_MOST_STEPS, _FEWEST_STEPS, _POINTS = 1_440, 96, 1_000_000
_LEAST_STEP_MS = MINUTE

Device = tuple[str, str]
"""Device: (node, or replica if the node is unknown; name)."""


class IdleQuestion(msgspec.Struct, Question["IdleTime"], frozen=True):
    """Question for the idle time of a job's devices over its life."""

    by_resource = of_job = True

    ref: JobRef


Periods = Sequence[TimeRange]
"""Disjoint ranges in order of time."""


class IdleDevice(msgspec.Struct, frozen=True):
    """Device with the periods in which it was allocated to a job, and their measured and idle parts."""

    node: str
    device: str
    type: str
    allocated: Periods
    measured: Periods
    idle: Periods

    @property
    def allocated_ms(self) -> int:
        """Allocated time in milliseconds."""
        return _length(self.allocated)

    @property
    def measured_ms(self) -> int:
        """Measured time in milliseconds."""
        return _length(self.measured)

    @property
    def idle_ms(self) -> int:
        """Idle time in milliseconds."""
        return _length(self.idle)


def _length(periods: Periods) -> int:
    return sum(one.length_ms for one in periods)


class IdleTime(msgspec.Struct, frozen=True):
    """Devices of a job over its life, evaluated in steps of ``step_ms``: a step with one busy sample is busy."""

    view: JobView
    span: TimeRange
    step_ms: int
    devices: Sequence[IdleDevice]


def idle_time(
    view: JobView, now_ms: int, lines_of: Callable[[MetricQuery], Iterable[Line]], types: Inventory
) -> IdleTime:
    """Answer an ``IdleQuestion``. ``lines_of`` returns the lines of a query about the job; ``types`` has its nodes."""
    span = life(view.job, now_ms)
    allocated = _allocated(view, span)
    steps = int(np.clip(_POINTS // max(len(allocated), 1), _FEWEST_STEPS, _MOST_STEPS))
    step_ms = max(default_step(span, steps), _LEAST_STEP_MS)
    ref = JobRef(view.job.id, view.job.project)
    lines = lines_of(
        MetricQuery(subject=ref, metrics=WORK, range=span, step_ms=step_ms, by=By.DEVICE, statistic=Statistic.MAX)
    )
    measured = dict(_measured(lines))
    devices = [
        _device(key, allocated.get(key), measured.get(key), span, step_ms, _type(view, types, key))
        for key in sorted({*allocated, *measured})
    ]
    return IdleTime(view, span, step_ms, devices)


def _allocated(view: JobView, span: TimeRange) -> Mapping[Device, Periods]:
    """Allocated periods of each device; time shared by several replicas counts once."""
    found: dict[Device, list[tuple[int, int]]] = {}
    for one in view.allocations:
        start, end = max(one.start, span.start_ms), span.end_ms if one.end is None else min(one.end, span.end_ms)
        found.setdefault((one.node or one.replica, one.device), []).append((start, max(start, end)))
    return {key: list(_union(intervals)) for key, intervals in found.items()}


def _union(intervals: list[tuple[int, int]]) -> Iterator[TimeRange]:
    last = 0
    for start, end in sorted(intervals):
        if max(start, last) < end:
            yield TimeRange(max(start, last), end)
            last = end


def _inside(periods: Iterable[TimeRange], others: Periods) -> Iterator[TimeRange]:
    """Cut periods to the parts inside other periods."""
    at = 0
    for one in periods:
        while at < len(others) and others[at].end_ms <= one.start_ms:
            at += 1
        for other in islice(others, at, None):
            common = one.intersect(other)
            if common is None:
                break
            yield common


def _measured(lines: Iterable[Line]) -> Iterator[tuple[Device, tuple[Int64s, Float64s]]]:
    """Return the steps of each device, ascending, with the highest value of any line."""
    found: dict[Device, list[Line]] = {}
    for line in lines:
        if line.device and len(line.time):
            found.setdefault((line.node or line.replica, line.device), []).append(line)
    for key, same in found.items():
        time, at = np.unique(np.concatenate([line.time for line in same]), return_inverse=True)
        value = np.full(len(time), -np.inf)
        np.maximum.at(value, at, np.concatenate([line.value for line in same]))
        yield key, (time, value)


def _device(
    key: Device,
    allocated: Periods | None,
    measured: tuple[Int64s, Float64s] | None,
    span: TimeRange,
    step_ms: int,
    name: str,
) -> IdleDevice:
    if measured is None:
        return IdleDevice(*key, name, allocated or (), (), ())
    time, value = measured
    seen = list(_within(time, np.full(len(time), True), span, step_ms, 0))
    idle = _within(time, value <= IDLE, span, step_ms, HOLD_MS)
    # A device without an allocation belonged to the job while it was measured for it.
    had = seen if allocated is None else allocated
    return IdleDevice(*key, name, had, list(_inside(seen, had)), list(_inside(idle, had)))


def _within(time: Int64s, true: Bools, span: TimeRange, step_ms: int, hold_ms: int) -> Iterator[TimeRange]:
    """Return the stretches, cut to the span. In a job of a single step the step is the interval."""
    if len(time) == 1:
        found = [(int(time[0]), int(time[0]) + step_ms)] if true[0] and step_ms >= hold_ms else []
    else:
        found = [(one.start, one.end) for one in sustained(time, true, hold_ms)]
    for start, end in found:
        inside = max(start, span.start_ms), min(end, span.end_ms)
        if inside[1] - inside[0] >= max(hold_ms, 1):
            yield TimeRange(*inside)


def _type(view: JobView, types: Inventory, key: Device) -> str:
    kind = view.job.instance_type
    return types.type_of(*key) or ("" if kind is None else kind.gpu_type)
