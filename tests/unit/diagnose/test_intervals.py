"""Tests of rules at any sampling interval, phase and jitter, over any length, with restarts and some gaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.diagnosed import Sampled, found
from tests.support.fakes import NOW

from jobmeter.model.job import JobState
from jobmeter.model.time import HOUR, MINUTE, SECOND

RANKS = 4


@st.composite
def sampling(draw, least=40 * MINUTE, most=12 * HOUR):
    """Return the sampling times of each replica as int64."""
    interval = draw(st.integers(1, 60)) * SECOND
    length = draw(st.integers(least // MINUTE, min(most, 20_000 * interval) // MINUTE)) * MINUTE
    jitter = draw(st.integers(0, interval // 12))
    phase = draw(st.integers(0, interval - 1))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gaps = draw(st.lists(st.tuples(st.integers(1, 98), st.integers(3, 8)), max_size=2))
    times = []
    for _ in range(RANKS):
        time = np.arange(NOW - length + phase, NOW, interval)
        time = np.unique(time + random.integers(-jitter, jitter + 1, len(time)))
        for at, lost in gaps:
            first = len(time) * at // 100
            time = np.delete(time, slice(first, first + min(lost, len(time) // 40)))
        times.append(time)
    return NOW - length, times, random


def busy(random, size):
    return np.clip(random.normal(0.9, 0.03, size), 0.0, 1.0)


@settings(max_examples=60, deadline=None)
@given(sampling(), st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.RUNNING]))
def test_a_device_that_never_works_is_found_at_any_interval(drawn, state):
    start, times, random = drawn
    measured = {
        ("gpu.utilization", f"worker-{rank}"): (time, np.zeros(len(time)) if rank == 2 else busy(random, len(time)))
        for rank, time in enumerate(times)
    }
    job = Sampled(measured, start, state=state)
    assert set(found(job.findings())) >= {("gpu_idle_allocated", "node-2/gpu0"), ("gpu_partly_unused", "j")}
    assert {name for rule, name in found(job.findings()) if rule == "gpu_idle_allocated"} == {"node-2/gpu0"}
    for signal in job.case.means["gpu.utilization"]:
        assert signal.coverage >= 0.9


@settings(max_examples=40, deadline=None)
@given(sampling(), st.sampled_from([JobState.SUCCEEDED, JobState.RUNNING]))
def test_a_healthy_job_has_no_finding_at_any_interval(drawn, state):
    start, times, random = drawn
    measured = {
        ("gpu.utilization", f"worker-{rank}"): (time, busy(random, len(time))) for rank, time in enumerate(times)
    }
    job = Sampled(measured, start, state=state)
    assert found(job.findings()) == []
    if state is JobState.RUNNING:
        assert found(job.findings_while_running()) == []


@pytest.mark.parametrize("seconds", [1, 7, 10, 20, 45])
def test_what_was_hardly_measured_is_not_judged(seconds):
    """Four fifths of the time must have samples."""
    time = np.arange(NOW - 2 * HOUR, NOW, seconds * SECOND)
    kept = (time - time[0]) // (2 * MINUTE) % 2 == 0  # two minutes of every four
    measured = {("gpu.utilization", "worker-0"): (time[kept], np.zeros(int(kept.sum())))}
    job = Sampled(measured, NOW - 2 * HOUR)
    assert "gpu_idle_allocated" not in dict(found(job.findings()))


def test_a_replica_that_was_restarted_elsewhere_is_judged_on_both_nodes():
    """A device of each node is idle for half of the job."""
    time = np.arange(NOW - 2 * HOUR, NOW, 20 * SECOND)
    half = len(time) // 2
    measured = {
        ("gpu.utilization", "worker-0"): (time[:half], np.zeros(half)),
        ("gpu.utilization", "worker-1"): (time[half:], np.zeros(len(time) - half)),
    }
    idle = [name for rule, name in found(Sampled(measured, NOW - 2 * HOUR).findings()) if rule == "gpu_idle_allocated"]
    assert sorted(idle) == ["node-0/gpu0", "node-1/gpu0"]
