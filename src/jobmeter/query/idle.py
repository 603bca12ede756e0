"""Idle time of a job's devices while it had them.

A device is idle while its utilization and its active multiprocessors are at most ``IDLE`` for ``HOLD_MS`` or longer.
The fleet view and the rule ``gpu_idle_allocated`` use these values too. Unmeasured time is not idle.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.model.job import JobView
from jobmeter.model.question import Question
from jobmeter.model.time import MAX_TIME_MS, MINUTE, TimeRange, ceil_to, floor_to, intersect_ranges
from jobmeter.query import selection
from jobmeter.query.buckets import read
from jobmeter.query.defaults import choose_step, compute_life
from jobmeter.query.inventory import Inventory
from jobmeter.query.meter import Meter
from jobmeter.query.request import By, JobRef
from jobmeter.query.selected_series import SelectedSeries
from jobmeter.query.source import Source
from jobmeter.query.stretches import find_sustained
from jobmeter.registry.base import Registry

ACTIVE = ("gpu.sm.active", "npu.sm.active")
WORK = ("gpu.utilization", "gpu.sm.active", "npu.utilization", "npu.sm.active")
"""Metrics that say whether devices work. A MIG instance has no utilization."""
IDLE = 0.01
HOLD_MS = 15 * MINUTE
_MOST_STEPS, _FEWEST_STEPS, _POINTS = 1_440, 96, 1_000_000
_BATCH_POINTS, _BATCH_DEVICES = 1_000_000, 10_000
_SERIES = 10
"""Factor on the series limit, because a question about many jobs reads few values of each series."""
_LEAST_STEP_MS = MINUTE

Device = tuple[str, str]
"""Device: (node, or replica if the node is unknown; name)."""
Steps = tuple[Int64s, Float64s]
"""Start times of the measured steps, ascending, and the highest value of each step."""
UseByDevice = Mapping[Device, Steps]
Measure = Callable[[Sequence[JobView], TimeRange, int], Mapping[str, UseByDevice]]
"""Function that measures the devices of jobs in a span, in steps, by ``name_owner``; see ``measure_devices``."""


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


class _Life(msgspec.Struct, frozen=True):
    """Life of a job, the periods of each allocated device, and the length of a step."""

    view: JobView
    span: TimeRange
    allocated: Mapping[Device, Periods]
    step_ms: int

    @property
    def steps(self) -> TimeRange:
        """Life widened to whole steps. So a job has the same values when measured alone or with other jobs."""
        end = ceil_to(self.span.end_ms, self.step_ms)
        return TimeRange(floor_to(self.span.start_ms, self.step_ms), min(end, MAX_TIME_MS))

    @property
    def points(self) -> int:
        """Upper bound of the number of values of its devices."""
        return max(len(self.allocated), 1) * (self.steps.length_ms // self.step_ms + 1)


def measure_idle_times(
    views: Iterable[JobView], now_ms: int, measure: Measure, types: Callable[[JobView], Inventory]
) -> Iterator[IdleTime]:
    """Yield the answer to an ``IdleQuestion`` for each job, in any order.

    Many jobs share a query of the store. ``types`` returns the nodes of a job.
    """
    by_step: dict[int, list[_Life]] = {}
    for view in views:
        one = _life(view, now_ms)
        by_step.setdefault(one.step_ms, []).append(one)
    for step_ms, lives in by_step.items():
        for some in _batches(sorted(lives, key=lambda one: one.span.start_ms)):
            whole = TimeRange(min(one.steps.start_ms for one in some), max(one.steps.end_ms for one in some))
            used = measure([one.view for one in some], whole, step_ms)
            for one in some:
                yield _measure_idle_time(one, used.get(selection.name_owner(one.view.job), {}), types(one.view))


def measure_devices(
    registry: Registry, source: Source, meter: Meter, views: Sequence[JobView], span: TimeRange, step_ms: int
) -> Mapping[str, UseByDevice]:
    """Read the highest value of the metrics ``WORK`` in each step, by job (``name_owner``) and device."""
    nodes = partial(registry.list_nodes, frozenset(view.job.project for view in views))
    most = _SERIES * meter.limits.query_series
    entries = selection.select_jobs(source.store, views, frozenset(WORK), span, meter.limits, nodes, most, by=By.DEVICE)
    shape = SelectedSeries(entries)
    columns = read(shape, source, span, step_ms, meter)
    bounds = np.searchsorted(columns.index, np.arange(len(shape.entries) + 1)).tolist()
    found: dict[str, dict[Device, list[slice]]] = {}
    for at, number in enumerate(shape.member.tolist()):
        member, rows = shape.members[number], slice(bounds[at], bounds[at + 1])
        if member.device and rows.start < rows.stop:
            key = (shape.nodes[number] or member.replica, member.device)
            found.setdefault(member.job, {}).setdefault(key, []).append(rows)
    return {
        job: {
            key: _merge_highest([(columns.time[one], columns.maximum[one]) for one in rows])
            for key, rows in own.items()
        }
        for job, own in found.items()
    }


def _merge_highest(parts: Sequence[Steps]) -> Steps:
    """Merge steps of one device. Return ascending times with the highest value at each time."""
    if len(parts) == 1:
        return parts[0]
    time, at = np.unique(np.concatenate([time for time, _ in parts]), return_inverse=True)
    value = np.full(len(time), -np.inf)
    np.maximum.at(value, at, np.concatenate([value for _, value in parts]))
    return time, value


def _life(view: JobView, now_ms: int) -> _Life:
    span = compute_life(view.job, now_ms)
    allocated = _find_allocated(view, span)
    steps = int(np.clip(_POINTS // max(len(allocated), 1), _FEWEST_STEPS, _MOST_STEPS))
    return _Life(view, span, allocated, max(choose_step(span, steps), _LEAST_STEP_MS))


def _batches(lives: Iterable[_Life]) -> Iterator[list[_Life]]:
    """Split jobs into batches of at most ``_BATCH_POINTS`` values and ``_BATCH_DEVICES`` devices, or of one job."""
    batch: list[_Life] = []
    points = devices = 0
    for one in lives:
        points, devices = points + one.points, devices + len(one.allocated)
        if batch and (points > _BATCH_POINTS or devices > _BATCH_DEVICES):
            yield batch
            batch, points, devices = [], one.points, len(one.allocated)
        batch.append(one)
    if batch:
        yield batch


def _measure_idle_time(one: _Life, used: UseByDevice, types: Inventory) -> IdleTime:
    measured = {key: inside for key, steps in used.items() if len((inside := _cut_steps(steps, one.steps))[0])}
    devices = [
        _device(key, one.allocated.get(key), measured.get(key), one.span, one.step_ms, _type(one.view, types, key))
        for key in sorted({*one.allocated, *measured})
    ]
    return IdleTime(one.view, one.span, one.step_ms, devices)


def _cut_steps(steps: Steps, span: TimeRange) -> Steps:
    time, value = steps
    rows = slice(*np.searchsorted(time, (span.start_ms, span.end_ms)).tolist())
    return time[rows], value[rows]


def _find_allocated(view: JobView, span: TimeRange) -> Mapping[Device, Periods]:
    """Return the allocated periods of each device; time shared by several replicas counts once."""
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


def _device(
    key: Device,
    allocated: Periods | None,
    measured: Steps | None,
    span: TimeRange,
    step_ms: int,
    name: str,
) -> IdleDevice:
    if measured is None:
        return IdleDevice(*key, name, allocated or (), (), ())
    time, value = measured
    seen = list(_find_stretches(time, np.full(len(time), True), span, step_ms, 0))
    idle = _find_stretches(time, value <= IDLE, span, step_ms, HOLD_MS)
    # A device without an allocation belonged to the job while it was measured for it.
    had = seen if allocated is None else allocated
    return IdleDevice(*key, name, had, intersect_ranges(seen, had), intersect_ranges(idle, had))


def _find_stretches(time: Int64s, true: Bools, span: TimeRange, step_ms: int, hold_ms: int) -> Iterator[TimeRange]:
    """Return the stretches, cut to the span. In a job of a single step the step is the interval."""
    if len(time) == 1:
        found = [(int(time[0]), int(time[0]) + step_ms)] if true[0] and step_ms >= hold_ms else []
    else:
        found = [(one.start, one.end) for one in find_sustained(time, true, hold_ms)]
    for start, end in found:
        inside = max(start, span.start_ms), min(end, span.end_ms)
        if inside[1] - inside[0] >= max(hold_ms, 1):
            yield TimeRange(*inside)


def _type(view: JobView, types: Inventory, key: Device) -> str:
    kind = view.job.instance_type
    return types.find_type(*key) or ("" if kind is None else kind.gpu_type)
