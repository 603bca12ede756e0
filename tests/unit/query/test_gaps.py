"""Tests of gaps, compared with pandas' analysis of the same samples."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.model.batch import SampleBatch
from jobmeter.model.job import Job, JobState, Replica
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND
from jobmeter.query.execute import Executor
from jobmeter.query.gaps import Presence, find_gaps
from jobmeter.query.quality import QualityQuestion
from jobmeter.query.request import JobRef
from jobmeter.settings import Limits

ALL = Scope(None)


def quality(times_of, start, end, metric="cpu.time"):
    """Return the data quality of a job whose replicas were sampled at those times."""
    store, registry = MemoryStore(), FakeRegistry()
    series = [Series(metric, "lab", node="n1", job="j", replica=name) for name in times_of]
    times = [np.asarray(one, np.int64) for one in times_of.values()]
    index = np.repeat(np.arange(len(series), dtype=np.uint32), [len(one) for one in times])
    everything = np.concatenate(times)
    store.append_all((SampleBatch(series, index, everything, np.zeros(len(everything))),))
    replicas = [Replica(name=name, node="n1", start=start, end=end) for name in times_of]
    job = Job(id="j", project="lab", state=JobState.SUCCEEDED, start=start, end=end, recorded=True)
    registry.add_job(job, replicas)
    return Executor(store, registry, SetClock(NOW), Limits()).run(QualityQuestion(JobRef("j")), ALL)


@st.composite
def sampled(draw, most=600, least=60):
    """Draw times of samples at an interval, each slightly early or late, with spans without samples."""
    interval = draw(st.sampled_from([SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 57 * SECOND]))
    count = draw(st.integers(least, most))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    times = NOW - DAY + np.arange(count) * interval + generator.integers(-interval // 10, interval // 10 + 1, count)
    there = np.ones(count, np.bool_)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(1, count - 2))
        there[at : min(at + draw(st.integers(1, 40)), count - 1)] = False
    return interval, times[there]


@settings(max_examples=150, deadline=None)
@given(st.lists(sampled(), min_size=1, max_size=3))
def test_gaps_are_those_that_pandas_finds(drawn):
    times_of = {f"w-{at}": times for at, (_, times) in enumerate(drawn)}
    start = min(times[0] for times in times_of.values())
    end = max(times[-1] for times in times_of.values())
    found = quality(times_of, int(start), int(end))
    expected = []
    for (name, times), (interval, _) in zip(times_of.items(), drawn, strict=True):
        [own] = [one for one in found.replicas if one.replica == name]
        assert own.samples == len(times)
        if own.interval is None:  # its life is short compared with the steps of the job
            assert len(np.unique(times // found.step)) < 8
            assert own.gaps == 0
            continue
        frame = pd.DataFrame({"end": times, "pause": pd.Series(times).diff(), "start": pd.Series(times).shift()})
        long = frame[frame.pause > 2.5 * interval]
        expected += [(name, int(row.start), int(row.end), round(row.pause / interval) - 1) for row in long.itertuples()]
        assert own.interval == pytest.approx(interval, rel=0.2)
        lost = sum(interval * missing for who, _, _, missing in expected if who == name)
        assert own.coverage == pytest.approx(1 - lost / (times[-1] - times[0] + interval), abs=0.05)
    if not all(gap.exact for gap in found.gaps):
        assert sum(gap.missing for gap in found.gaps) == pytest.approx(sum(row[3] for row in expected), abs=3)
        return
    near = {(name, start, end) for name, start, end, _ in expected}
    reported = {(gap.replica, gap.start, gap.end) for gap in found.gaps}
    # A pause of about two and a half intervals is a borderline case: estimates of the interval may differ.
    edge = {
        row for row in near ^ reported if (row[2] - row[1]) <= 3 * dict(zip(times_of, drawn, strict=True))[row[0]][0]
    }
    assert near - edge == reported - edge
    if any(one.interval is not None for one in found.replicas):
        assert found.complete is (not reported)
    assert bool(found.sentences) is bool(reported)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(sampled(most=5000, least=1000), st.sampled_from([MINUTE, 5 * MINUTE, HOUR]))
def test_in_long_steps_what_is_missing_is_counted_all_the_same(drawn, step):
    interval, times = drawn
    frame = pd.DataFrame({"time": times, "step": times // step})
    # A query has hundreds of steps, thirty for a very large job; two steps are too few to tell the usual one.
    assume(frame.step.nunique() >= 10)
    steps = frame.groupby("step").time.agg(["first", "last", "count"])
    found = find_gaps(Presence(*(steps[name].to_numpy(np.int64) for name in ("first", "last", "count"))))
    pauses = np.diff(times) / interval
    expected = np.rint(pauses[pauses > 2.5]).astype(int) - 1
    per_step = max(step // interval, 1)
    # Less than a hundredth of a step is within the jitter of its interval, and lone samples add up inside a step.
    lone = int(((pauses > 1.5) & (pauses <= 2.5)).sum())
    assert found.missing.sum() <= expected.sum() + lone + 2 + 0.02 * len(times)
    assert found.interval == pytest.approx(interval, rel=0.15)
    if len(expected) and expected.max() > max(0.03 * per_step, 3):
        largest = int(np.flatnonzero(pauses == pauses.max())[0])
        assert any(
            start <= times[largest] and times[largest + 1] <= end
            for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True)
        )


def test_an_interval_that_was_changed_is_no_gap():
    fast = np.arange(NOW - 2 * HOUR, NOW - HOUR, SECOND)
    slow = np.arange(NOW - HOUR, NOW, 30 * SECOND)
    found = quality({"w": np.concatenate([fast, slow])}, NOW - 2 * HOUR, NOW)
    assert found.gaps == []
    assert found.complete is True


def test_a_month_is_looked_at_in_long_steps_and_a_day_that_is_missing_is_reported():
    times = np.arange(NOW - 30 * DAY, NOW, MINUTE)
    gone = (times >= NOW - 10 * DAY) & (times < NOW - 9 * DAY)
    found = quality({"w": times[~gone]}, NOW - 30 * DAY, NOW)
    [gap] = found.gaps
    assert (gap.start, gap.end, gap.missing, gap.exact) == (NOW - 10 * DAY - MINUTE, NOW - 9 * DAY, 1440, True)
    assert found.step == HOUR
    assert found.coverage == pytest.approx(29 / 30, abs=1e-3)


def test_three_samples_have_no_interval_and_nothing_is_claimed():
    found = quality({"w": [NOW - HOUR, NOW - HOUR + SECOND, NOW - 1]}, NOW - HOUR, NOW)
    assert (found.gaps, found.complete, found.coverage, found.sentences) == ([], None, None, [])


def test_a_replica_that_lived_for_a_few_steps_of_a_long_job_is_not_judged():
    brief = np.concatenate(
        [
            np.arange(NOW - HOUR, NOW - HOUR + MINUTE, SECOND),
            np.arange(NOW - HOUR + 2 * MINUTE, NOW - HOUR + 3 * MINUTE, SECOND),
        ]
    )
    found = quality({"long": np.arange(NOW - 30 * DAY, NOW, MINUTE), "brief": brief}, NOW - 30 * DAY, NOW)
    own = {one.replica: one for one in found.replicas}
    assert (own["brief"].interval, own["brief"].coverage, own["brief"].samples) == (None, None, 120)
    assert own["long"].interval == MINUTE
    assert found.gaps == []


@settings(max_examples=150, deadline=None)
@given(sampled(least=20), st.sampled_from([SECOND, 10 * SECOND, 15 * SECOND, MINUTE]))
def test_steps_stand_for_the_time_in_which_there_were_samples(drawn, step):
    """Steps of any length stand for the whole time except the gaps between samples."""
    interval, times = drawn
    assume(len(times) > 40)
    number = times // step
    starts = np.flatnonzero(np.append(True, np.diff(number) > 0))
    ends = np.append(starts[1:], len(times)) - 1
    presence = Presence(times[starts], times[ends], ends - starts + 1)
    until = presence.until
    assert (until > presence.first).all()
    assert (until[:-1] <= presence.first[1:]).all()
    pauses = pd.Series(times).diff().dropna()
    # A pause of about two and a half intervals may be a gap or not; few steps with many samples show no gaps inside.
    assume(not ((pauses > 2.2 * interval) & (pauses < 2.8 * interval)).any())
    assume(step <= 4 * interval or (len(starts) > 40 and not (pauses > 2.5 * interval).any()))
    lost = (pauses[pauses > 2.5 * interval] - interval).sum()
    whole = int(until[-1] - times[0])
    assert (until - presence.first).sum() / whole == pytest.approx(1 - lost / whole, abs=0.06)


def test_a_single_sample_stands_for_no_time():
    one = np.array([NOW], np.int64)
    assert Presence.from_samples(one).until.tolist() == [NOW]
    assert Presence.from_samples(one[:0]).until.tolist() == []
