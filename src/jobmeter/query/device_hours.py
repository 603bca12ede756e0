"""History of device time: by period and by project or user, the time allocated, measured and idle.

``IdleQuestion`` gives the times of a job, and this module cuts them to the periods. So the sum over the periods is the
total of the range for any length of period. Devices that several jobs share count for each job.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import compress, islice
from operator import not_

import msgspec
import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import Int64s
from jobmeter.model.job import JobView
from jobmeter.model.question import Question
from jobmeter.model.time import DAY, MINUTE, TimeRange, ceil_to
from jobmeter.query.defaults import compute_life
from jobmeter.query.idle import IdleTime, Periods
from jobmeter.query.meter import Meter
from jobmeter.query.selection import EVER
from jobmeter.query.subjects import is_shown
from jobmeter.registry.base import Registry

MOST_BUCKETS, MOST_JOBS, MOST_GROUPS = 400, 20_000, 20
"""Most buckets of a question, most jobs of a question, and most groups that an answer names."""
_WEEK = 7 * DAY
_MONDAY = 4 * DAY
"""First Monday after the epoch."""
_LATE_MS = MINUTE
"""Time in ms for which a job is measured after its recorded end; see ``jobmeter.query.defaults.compute_life``."""


class HoursBy(StrEnum):
    """Field of a job that device time is grouped by."""

    PROJECT = "project"
    USER = "user"


class DeviceHoursQuestion(msgspec.Struct, Question["DeviceHours"], frozen=True, kw_only=True):
    """Question for the device time of all visible jobs in a range, in buckets of ``every_ms``.

    Buckets begin at multiples of ``every_ms`` since the epoch; whole weeks begin on a Monday. The range cuts the first
    and the last bucket. Raises LimitExceededError for more than ``MOST_BUCKETS`` buckets, or more than ``MOST_JOBS``
    jobs with devices.
    """

    by_resource = True

    range: TimeRange
    every_ms: int
    by: HoursBy = HoursBy.PROJECT
    projects: frozenset[str] | None = None


class DeviceTypeTime(msgspec.Struct, frozen=True):
    """Times of the devices of one type in milliseconds, by bucket."""

    type: str
    allocated_ms: list[int]
    measured_ms: list[int]
    idle_ms: list[int]


class DeviceTimeGroup(msgspec.Struct, frozen=True):
    """Device time of one project or user, by type of device, and the number of its jobs that had devices."""

    name: str
    jobs: int
    types: Sequence[DeviceTypeTime]


class DeviceHours(msgspec.Struct, frozen=True):
    """Device time by group, the longest idle time first.

    ``bounds`` are the starts of the buckets, and the end of the last bucket. ``others`` is the sum of the ``combined``
    groups beyond the first ``MOST_GROUPS``; None without any.
    """

    bounds: Sequence[int]
    groups: Sequence[DeviceTimeGroup]
    others: DeviceTimeGroup | None = None
    combined: int = 0


class _Sums(msgspec.Struct):
    """Number of jobs, and device time by type: int64[3, buckets] for allocated, measured, idle."""

    jobs: int = 0
    types: dict[str, Int64s] = msgspec.field(default_factory=dict)

    def add(self, jobs: int, types: Mapping[str, Int64s]) -> None:
        """Add the sums of other jobs."""
        self.jobs += jobs
        for name, times in types.items():
            self.types[name] = self.types[name] + times if name in self.types else times

    def rank(self) -> tuple[int, int]:
        """Return the idle and the allocated time, negative so that the longest sorts first."""
        total = sum(times.sum(axis=1) for times in self.types.values())
        return -int(total[2]), -int(total[0])

    def make_group(self, name: str) -> DeviceTimeGroup:
        """Return the sums under a name."""
        types = [DeviceTypeTime(kind, *times.tolist()) for kind, times in sorted(self.types.items())]
        return DeviceTimeGroup(name, self.jobs, types)


def compute_device_hours(
    registry: Registry,
    question: DeviceHoursQuestion,
    scope: Scope,
    now_ms: int,
    meter: Meter,
    idle_times_of: Callable[[Iterable[JobView]], Iterable[IdleTime]],
) -> DeviceHours:
    """Answer a ``DeviceHoursQuestion``. ``idle_times_of`` answers an ``IdleQuestion`` for each job.

    Raises LimitExceededError or QueryTimeoutError.
    """
    bounds = _bounds(question.range, question.every_ms)
    found: dict[str, _Sums] = {}
    for idle in idle_times_of(_jobs(registry, question, scope, now_ms, meter)):
        job, own = idle.view.job, _Sums()
        for device in idle.devices:
            times = np.stack([_cut(periods, bounds) for periods in (device.allocated, device.measured, device.idle)])
            if times[0].any():
                own.add(0, {device.type: times})
        if own.types:
            name = job.user if question.by is HoursBy.USER else job.project
            found.setdefault(name, _Sums()).add(1, own.types)
    names = sorted(found, key=lambda name: (*found[name].rank(), name))
    rest = _Sums()
    for name in names[MOST_GROUPS:]:
        rest.add(found[name].jobs, found[name].types)
    return DeviceHours(
        bounds.tolist(),
        [found[name].make_group(name) for name in names[:MOST_GROUPS]],
        rest.make_group("") if rest.jobs else None,
        len(names[MOST_GROUPS:]),
    )


def _bounds(span: TimeRange, every_ms: int) -> Int64s:
    first = _MONDAY % every_ms if every_ms % _WEEK == 0 else 0
    inner = range(ceil_to(span.start_ms + 1 - first, every_ms) + first, span.end_ms, every_ms)
    if len(inner) >= MOST_BUCKETS:
        raise LimitExceededError(f"an answer may have {MOST_BUCKETS} buckets: ask for longer ones", "every")
    return np.array([span.start_ms, *inner, span.end_ms], np.int64)


def _jobs(
    registry: Registry, question: DeviceHoursQuestion, scope: Scope, now_ms: int, meter: Meter
) -> Sequence[JobView]:
    """List the visible jobs that had devices in the range. Samples of a device allocate it to their job."""
    projects = scope.intersect_projects(question.projects)
    if projects is not None and not projects:
        return []
    around = TimeRange(max(0, question.range.start_ms - _LATE_MS), question.range.end_ms)
    views = _yield_within_deadline(registry.group_jobs(projects, None, around, now_ms), meter)
    # The jobs of a long range need not fit into memory.
    found = list(islice((view for view in views if view.allocations and is_shown(view, scope)), MOST_JOBS + 1))
    if len(found) > MOST_JOBS:
        raise LimitExceededError(
            f"more than {MOST_JOBS} jobs had devices in this range: choose a shorter range or a project", "range"
        )
    # The idle time of a job depends on its whole life. A view of the range lacks the allocations outside the range.
    whole = [around.intersect(span) == span for span in (compute_life(view.job, now_ms) for view in found)]
    partly = [(view.job.project, view.job.id) for view in compress(found, map(not_, whole))]
    return [*compress(found, whole), *registry.list_job_views(partly, EVER, now_ms)]


def _yield_within_deadline(views: Iterable[JobView], meter: Meter) -> Iterator[JobView]:
    """Yield the jobs. Raises QueryTimeoutError once the time of the question is over."""
    for view in views:
        meter.make_budget()
        yield view


def _cut(periods: Periods, bounds: Int64s) -> Int64s:
    """Return the time of the periods between successive bounds in milliseconds, int64[bounds - 1]."""
    if not periods:
        return np.zeros(len(bounds) - 1, np.int64)
    start, end = np.array([(one.start_ms, one.end_ms) for one in periods], np.int64).T
    begun = np.searchsorted(start, bounds, side="right")
    total = np.concatenate(([0], np.cumsum(end - start)))[begun]
    ahead = np.where(begun > 0, np.maximum(end[np.maximum(begun, 1) - 1] - bounds, 0), 0)
    lengths: Int64s = np.diff(total - ahead)
    return lengths
