"""Tests of device time by period: the periods sum to the total of the range, which is the sum over its jobs."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError, QueryTimeoutError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.job import Allocation, Job, JobState, JobView
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange
from jobmeter.query.device_hours import MOST_BUCKETS, MOST_GROUPS, DeviceHoursQuestion, HoursBy, compute_device_hours
from jobmeter.query.execute import Executor
from jobmeter.query.idle import IdleQuestion, measure_idle_times
from jobmeter.query.inventory import Inventory
from jobmeter.query.meter import Meter
from jobmeter.query.request import JobRef
from jobmeter.query.selection import name_owner
from jobmeter.settings import Limits

FIRST = NOW - 10 * DAY
MINUTES = st.integers(0, 10 * 24 * 60)
DEVICES = ("gpu0", "gpu1", "gpu2")


def moment(minute):
    return FIRST + minute * MINUTE


def view_of(name, start, end, *periods, project="p", user="u"):
    """Return the view of a job, with allocations of (device, first minute, last minute)."""
    allocations = [
        Allocation(replica="w", node="n", device=device, start=moment(first), end=moment(last))
        for device, first, last in periods
    ]
    state = JobState.RUNNING if end is None else JobState.SUCCEEDED
    job = Job(
        id=name,
        project=project,
        user=user,
        state=state,
        start=moment(start),
        end=None if end is None else moment(end),
    )
    return JobView(job=job, replicas=[], allocations=allocations)


@st.composite
def jobs(draw):
    """Draw a job and its devices' steps: some have no samples, some samples are outside of the allocations."""
    start, end = sorted((draw(MINUTES), draw(MINUTES)))
    periods = draw(
        st.lists(st.tuples(st.sampled_from(DEVICES), MINUTES, MINUTES).map(lambda one: (one[0], *sorted(one[1:]))))
    )
    view = view_of(
        draw(st.uuids()).hex,
        start,
        draw(st.sampled_from([end, None])),
        *periods,
        project=draw(st.sampled_from("pq")),
        user=draw(st.sampled_from(["", "u", "v"])),
    )
    steps = {}
    for device in draw(st.sets(st.sampled_from(DEVICES))):
        count, first = draw(st.integers(1, 200)), draw(MINUTES)
        time = moment(first) + np.arange(count) * draw(st.sampled_from([1, 5, 30])) * MINUTE
        busy = draw(st.sets(st.integers(0, count - 1), max_size=5))
        value = np.array([float(at in busy) for at in range(count)])
        steps["n", device] = time, value
    return view, steps


def answered(found, span, every_ms, by=HoursBy.PROJECT, scope=None, clock=None):
    registry = FakeRegistry()
    registry.views = {(view.job.project, view.job.id): view for view, _ in found}
    question = DeviceHoursQuestion(range=span, every_ms=every_ms, by=by)
    meter = Meter(clock or SetClock(), Limits())
    return compute_device_hours(
        registry, question, scope or Scope(None), NOW, meter, lambda views: idle_of(found, views)
    )


def idle_of(found, views):
    steps = {name_owner(view.job): own for view, own in found}
    return measure_idle_times(views, NOW, lambda *_: steps, lambda _: Inventory(()))


def totals(answer, buckets=slice(None)):
    return {
        group.name: tuple(
            sum(sum(times[buckets]) for times in column)
            for column in zip(*((own.allocated_ms, own.measured_ms, own.idle_ms) for own in group.types), strict=True)
        )
        for group in answer.groups
    }


@given(
    found=st.lists(jobs(), max_size=4),
    span=st.tuples(MINUTES, MINUTES).map(sorted),
    every_ms=st.sampled_from([HOUR, DAY, 7 * DAY]),
    by=st.sampled_from(HoursBy),
)
def test_each_bucket_has_the_total_of_its_range_and_all_add_up_to_the_whole(found, span, every_ms, by):
    span = TimeRange(*map(moment, span))
    answer = answered(found, span, every_ms, by)
    bounds = answer.bounds
    assert (bounds[0], bounds[-1]) == (span.start_ms, span.end_ms)
    assert max(np.diff(bounds)) <= every_ms
    whole = totals(answered(found, span, 100 * DAY, by))
    assert totals(answer) == whole
    for at in range(0, len(bounds) - 1, 1 + len(bounds) // 4):
        alone = totals(answered(found, TimeRange(bounds[at], bounds[at + 1]), every_ms, by))
        mine = totals(answer, slice(at, at + 1))
        assert {name: one for name, one in mine.items() if one[0]} == alone


@given(found=st.lists(jobs(), max_size=4))
def test_a_range_that_covers_every_job_has_the_time_of_each(found):
    expected: Any = defaultdict(lambda: np.zeros(3, np.int64))
    for view, _ in found:
        (idle,) = idle_of(found, [view])
        for one in idle.devices if view.allocations else []:
            assert one.idle_ms <= one.measured_ms <= one.allocated_ms
            expected[view.job.project] += (one.allocated_ms, one.measured_ms, one.idle_ms)
    answer = answered(found, TimeRange(FIRST, NOW + DAY), DAY)
    assert totals(answer) == {name: tuple(times) for name, times in expected.items() if times[0]}


@given(
    periods=st.lists(st.tuples(st.sampled_from(DEVICES), MINUTES, MINUTES), min_size=1),
    life=st.tuples(MINUTES, MINUTES).map(sorted),
)
def test_allocated_time_equals_a_count_minute_by_minute(periods, life):
    view = view_of("j", *life, *((device, *sorted(times)) for device, *times in periods))
    own = range(*life)
    minutes = {(device, minute) for device, *times in periods for minute in range(*sorted(times)) if minute in own}
    answer = answered([(view, {})], TimeRange(FIRST, NOW), HOUR)
    expected = np.zeros(len(answer.bounds) - 1, np.int64)
    for _, minute in minutes:
        expected[np.searchsorted(answer.bounds, moment(minute), side="right") - 1] += MINUTE
    found: Any = answer.groups[0].types[0].allocated_ms if answer.groups else np.zeros(len(expected))
    # A job counts until one millisecond after its end.
    assert np.abs(np.array(found) - expected).max() <= len(DEVICES)


def test_weeks_begin_on_a_monday_and_days_at_midnight():
    monday = 4 * DAY + 2_900 * 7 * DAY
    span = TimeRange(monday - 10 * DAY + HOUR, monday + 5)
    assert list(answered([], span, 7 * DAY).bounds) == [span.start_ms, monday - 7 * DAY, monday, monday + 5]
    assert list(answered([], TimeRange(monday, monday + 2 * DAY), DAY).bounds) == [
        monday,
        monday + DAY,
        monday + 2 * DAY,
    ]


def test_more_buckets_than_the_limit_are_refused():
    assert len(answered([], TimeRange(0, MOST_BUCKETS * DAY), DAY).bounds) == MOST_BUCKETS + 1
    with pytest.raises(LimitExceededError, match="longer"):
        answered([], TimeRange(0, MOST_BUCKETS * DAY + 1), DAY)


def test_more_jobs_than_the_limit_are_refused_before_all_are_read(monkeypatch):
    read = []

    def group_jobs(*_):
        for number in range(100):
            read.append(number)
            yield view_of(f"j{number}", 0, 600, *[("gpu0", 0, 60)] * (number % 2))

    monkeypatch.setattr("jobmeter.query.device_hours.MOST_JOBS", 3)
    monkeypatch.setattr(FakeRegistry, "group_jobs", group_jobs)
    with pytest.raises(LimitExceededError, match="more than 3 jobs"):
        answered([], TimeRange(FIRST, NOW), DAY)
    assert len(read) == 8


def test_jobs_are_read_until_the_time_of_the_question_is_over(monkeypatch):
    clock, read = SetClock(), []

    def group_jobs(*_):
        for number in range(100):
            clock.time_ms += 4 * SECOND
            read.append(number)
            yield view_of(f"j{number}", 0, 600)

    monkeypatch.setattr(FakeRegistry, "group_jobs", group_jobs)
    with pytest.raises(QueryTimeoutError, match="longer than 30 s"):
        answered([], TimeRange(FIRST, NOW), DAY, clock=clock)
    assert len(read) == 8


def test_groups_beyond_the_limit_are_summed_and_counted():
    found: list[Any] = [
        (view_of(f"j{at}", 0, 600, ("gpu0", 0, 60 + at), user=f"u{at}"), {}) for at in range(MOST_GROUPS + 3)
    ]
    answer = answered(found, TimeRange(FIRST, NOW), DAY, HoursBy.USER)
    assert [one.name for one in answer.groups] == [f"u{at}" for at in range(MOST_GROUPS + 2, 2, -1)]
    assert (answer.combined, answer.others.jobs) == (3, 3)
    assert sum(answer.others.types[0].allocated_ms) == (60 + 61 + 62) * MINUTE


def test_a_job_outside_the_scope_or_deleted_since_is_left_out(monkeypatch):
    found: list[Any] = [(view_of(f"j{name}", 0, 600, ("gpu0", 0, 60), project=name), {}) for name in "pq"]
    span = TimeRange(FIRST, NOW)
    assert totals(answered(found, span, DAY, scope=Scope(frozenset({"p"})))) == {"p": (HOUR, 0, 0)}
    # Views of jobs that started before the range are read again, in full.
    monkeypatch.setattr(FakeRegistry, "list_job_views", lambda *_: [])
    assert answered(found, TimeRange(FIRST + HOUR // 2, NOW), DAY).groups == []


@given(
    found=st.lists(jobs(), max_size=5),
    labelled=st.sets(st.sampled_from(DEVICES)),
    points=st.sampled_from([1, 500, 1_000_000]),
)
def test_many_jobs_together_have_the_same_times_as_each_job_alone(found, labelled, points):
    """Samples of some devices name the job. Samples of the other devices belong to the job by its allocations."""
    registry, store = FakeRegistry(), MemoryStore()
    registry.views = {(view.job.project, view.job.id): view for view, _ in found}
    for view, steps in found:
        for (node, device), (time, value) in steps.items():
            own = {"job": view.job.id, "replica": "w"} if device in labelled else {}
            series = Series("gpu.utilization", project=view.job.project, node=node, device=device, **own)
            store.append_all((SampleBatch([series], np.zeros(len(time), np.uint32), time, value),))
    executor, everyone = Executor(store, registry, SetClock(NOW), Limits()), Scope(None)
    expected: Any = defaultdict(lambda: np.zeros(3, np.int64))
    for view, _ in found:
        alone = executor.run(IdleQuestion(JobRef(view.job.id, view.job.project)), everyone)
        for one in alone.devices if view.allocations else []:
            expected[view.job.project] += (one.allocated_ms, one.measured_ms, one.idle_ms)
    question = DeviceHoursQuestion(range=TimeRange(FIRST - DAY, NOW + DAY), every_ms=DAY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jobmeter.query.idle._BATCH_POINTS", points)
        answer = executor.run(question, everyone)
    assert totals(answer) == {name: tuple(times) for name, times in expected.items() if times[0]}
