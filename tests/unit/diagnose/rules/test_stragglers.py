"""Tests of stragglers at any size, interval and onset, by any available metrics; and of healthy jobs."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.diagnosed import Sampled, found
from tests.support.fakes import NOW
from tests.support.training import NVML, Training

from jobmeter.model.finding import Severity
from jobmeter.model.job import JobState
from jobmeter.model.time import HOUR, MINUTE, SECOND

ALL_METRICS = (*NVML, "gpu.sm.active", "gpu.tensor.active", "gpu.nvlink.transmit", "gpu.nvlink.receive")
FAULTS = {
    "half as busy": ({"gpu.utilization": 0.59, "gpu.power": 0.69}, ("gpu.utilization", "gpu.power"), 2),
    "by utilization alone": ({"gpu.utilization": 0.59}, ("gpu.utilization",), 2),
    "two fifths slower": ({"gpu.utilization": 0.6, "gpu.power": 0.7}, NVML, 4),
    "a lower clock": ({"gpu.clock.sm": 0.92, "gpu.power": 0.8}, NVML, 8),
    "a much lower clock": ({"gpu.clock.sm": 0.82}, NVML, 2),
    "a broken NVLink": ({"gpu.nvlink.transmit": 0.4, "gpu.nvlink.receive": 0.4}, ALL_METRICS, 4),
    "the others wait": ({"gpu.power": 1.5, "gpu.tensor.active": 1.6, "gpu.sm.active": 1.3}, ALL_METRICS, 4),
}  # fmt: skip


def training(draw, ranks, metrics):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    interval, length = draw(st.integers(5 if ranks < 32 else 15, 60)), draw(st.integers(50, 100))
    state = draw(st.sampled_from([JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED]))
    noise = draw(st.floats(0.5, 1.5))
    return Training(random, ranks, interval, length, metrics, state, noise, draw(st.booleans()))


@st.composite
def slow_jobs(draw):
    factors, metrics, fewest = FAULTS[draw(st.sampled_from(sorted(FAULTS)))]
    job = training(draw, draw(st.sampled_from([size for size in (2, 3, 4, 8, 16, 64) if size >= fewest])), metrics)
    rank = draw(st.integers(0, job.ranks - 1))
    since = draw(st.sampled_from([0.0, 0.4, 0.6]))
    return job.slow(factors, rank, since), rank, job.start + since * job.length * MINUTE


@settings(max_examples=30, deadline=None)
@given(slow_jobs())
def test_the_slow_device_is_named_and_no_other(drawn):
    job, rank, begin = drawn
    stragglers = [one for one in job.findings() if one.rule == "straggler_gpu"]
    assert [one.subject.name for one in stragglers] == [f"node-{rank}/gpu0"]
    [one] = stragglers
    assert one.severity is Severity.WARNING
    assert one.sentence.startswith(f"worker-{rank} (node-{rank}, gpu0) ")
    assert "the median is" in one.sentence
    # The first minutes are not evaluated, and a difference appears window by window.
    first_judged = begin if begin > job.view.job.start else begin + 10 * MINUTE
    assert first_judged - 5 * MINUTE <= one.start <= first_judged + 12 * MINUTE
    for piece in one.evidence:
        assert piece.value is not None
        assert piece.unit


@pytest.mark.parametrize(
    ("seed", "interval", "length", "rank"),
    [(1238359281, 50, 87, 7), (160453154, 36, 90, 1)],
)
def test_a_difference_begins_where_one_metric_shows_it_before_the_noise_lets_another_show_it(
    seed, interval, length, rank
):
    job = Training(np.random.default_rng(seed), 16, interval, length, NVML, JobState.SUCCEEDED)
    findings = job.slow({"gpu.clock.sm": 0.92, "gpu.power": 0.8}, rank).findings()
    [one] = [one for one in findings if one.rule == "straggler_gpu"]
    assert one.subject.name == f"node-{rank}/gpu0"
    assert one.start <= job.start + 22 * MINUTE


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(5, 7),
    st.integers(5, 60),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.4, 0.5, 0.6]),
    st.sampled_from([JobState.RUNNING, JobState.SUCCEEDED]),
)
def test_two_slow_devices_of_few_are_both_named(seed, ranks, interval, since, factor, state):
    random = np.random.default_rng(seed)
    job = Training(random, ranks, interval, 90, state=state)
    slow = sorted(random.choice(ranks, 2, replace=False).tolist())
    begin = job.start + since * job.length * MINUTE

    def change(metric, rank, time, value):
        is_slow = rank in slow and metric in {"gpu.utilization", "gpu.power"}
        return np.where((time >= begin) & is_slow, factor * value, value)

    stragglers = [one for one in found(job.sampled(change).findings()) if one[0] == "straggler_gpu"]
    assert sorted(stragglers) == [("straggler_gpu", f"node-{rank}/gpu0") for rank in slow]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 60), st.sampled_from([JobState.RUNNING, JobState.SUCCEEDED]))
@example(194455477, 5, JobState.RUNNING)  # the devices that were least busy on average shared work unevenly at first
@example(4213142193, 53, JobState.SUCCEEDED)
def test_one_that_was_slow_for_its_last_twenty_minutes_is_found_while_the_job_runs_and_after(seed, interval, state):
    job = Training(np.random.default_rng(seed), 16, interval, 90, state=state)
    sampled = job.slow({"gpu.utilization": 0.6, "gpu.power": 0.7}, 5, 70 / 90)
    assert found(sampled.findings()) == [("straggler_gpu", "node-5/gpu0")]
    if state is JobState.RUNNING:
        assert found(sampled.findings_while_running()) == [("straggler_gpu", "node-5/gpu0")]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(["alike", "groups", "phases", "server"]))
def test_healthy_jobs_have_no_straggler(data, kind):
    job = training(
        data.draw, data.draw(st.sampled_from([2, 4, 8, 16, 64])), data.draw(st.sampled_from([NVML, ALL_METRICS]))
    )
    levels = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).permutation(np.linspace(0.55, 1.0, 4))

    def change(metric, rank, time, value):
        if metric == "gpu.clock.sm" or kind == "alike":
            return value
        if kind == "groups" and job.ranks >= 8:
            return value * levels[rank * 4 // job.ranks]
        if kind == "phases":  # all of them train and evaluate in turn
            return np.where(time // (10 * MINUTE) % 3 == 0, 0.5 * value, value) if "memory" not in metric else value
        if kind == "server" and rank == 0:  # one device has another role with another load and other memory
            return value * (0.4 if "memory" in metric else 0.7)
        return value

    sampled = job.sampled(change)
    assert [one for one in found(sampled.findings()) if one[0].startswith("straggler")] == []
    if job.state is JobState.RUNNING:
        assert [one for one in found(sampled.findings_while_running()) if one[0].startswith("straggler")] == []


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 3, 5, 6, 7, 8, 9, 16, 64]),
    st.integers(5, 60),
    st.sampled_from([("gpu.memory.limit",), ("gpu.clock.sm.limit",), ("gpu.memory.limit", "gpu.clock.sm.limit")]),
    st.floats(0.4, 0.85),
    st.booleans(),
)
def test_devices_of_another_model_are_no_stragglers_and_a_slow_one_of_a_model_is(
    seed, ranks, interval, limits, factor, is_slow
):
    """An older model uses less power at a lower clock. A slow device is compared with devices of its own model."""
    random = np.random.default_rng(seed)
    job = Training(random, ranks, max(interval, ranks // 4), 60, (*NVML, "gpu.power.limit", *limits))
    older = set(random.choice(ranks, int(random.integers(1, ranks // 2 + 1)), replace=False).tolist())
    slow = max(older) if is_slow and len(older) >= 4 else -1

    def change(metric, rank, _time, value):
        if rank == slow and metric in {"gpu.utilization", "gpu.power"}:
            value = 0.6 * value
        lower = {"gpu.power", "gpu.power.limit", "gpu.clock.sm", *limits}
        return factor * value if rank in older and metric in lower else value

    stragglers = [one for one in found(job.sampled(change).findings()) if one[0].startswith("straggler")]
    assert stragglers == ([("straggler_gpu", f"node-{slow}/gpu0")] if slow >= 0 else [])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(15, 60), st.integers(12, 40), st.integers(0, 79),
    st.floats(0.5, 0.8), st.sampled_from([JobState.RUNNING, JobState.SUCCEEDED]),
)  # fmt: skip
def test_devices_that_take_turns_at_having_less_to_do_are_no_stragglers(
    seed, ranks, interval, period, phase, factor, state
):
    job = Training(np.random.default_rng(seed), ranks, interval, 6 * period, state=state)

    def change(metric, rank, time, value):
        rests = (((time - job.start) // MINUTE + phase) // period + rank) % 2 == 0
        return np.where(rests & (metric in {"gpu.utilization", "gpu.power"}), factor * value, value)

    assert "straggler_gpu" not in dict(found(job.sampled(change).findings()))


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_devices_that_hardly_work_are_no_stragglers(data):
    """The utilization of devices that wait for their input varies at random."""
    job = training(data.draw, data.draw(st.sampled_from([4, 8, 16])), ALL_METRICS)
    levels = 0.06 * np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).lognormal(0, 0.3, job.ranks)

    def change(metric, rank, _time, value):
        return np.full(len(value), levels[rank]) if metric in {"gpu.utilization", "gpu.sm.active"} else value

    assert "straggler_gpu" not in dict(found(job.sampled(change).findings()))


def batch(random, ranks, interval, length, state, level):
    """Sample the CPU of the ranks of a job without devices. ``level`` returns the level of a rank at some times."""
    start, measured = NOW - length * MINUTE, {}
    for rank in range(ranks):
        time = np.arange(start + int(random.integers(interval * SECOND)), NOW, interval * SECOND)
        value = level(rank, time) * (1 + 0.03 * random.normal()) * (1 + 0.12 * random.normal(size=len(time)))
        measured["cpu.usage", f"worker-{rank}"] = time, np.maximum(value, 0.0)
    return Sampled(measured, start, state=state)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([4, 8, 16, 64]),
    st.integers(2, 60),
    st.sampled_from([0.4, 0.59, 1.8, 4.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([JobState.RUNNING, JobState.SUCCEEDED]),
)
def test_a_rank_of_many_that_uses_other_amounts_of_cpu_is_named(seed, ranks, interval, factor, since, state):
    random = np.random.default_rng(seed)
    rank, begin = int(random.integers(ranks)), NOW - (1 - since) * HOUR
    job = batch(random, ranks, max(interval, ranks // 4), 60, state,
                lambda own, time: np.where((own == rank) & (time >= begin), 2.0 * factor, 2.0))  # fmt: skip
    assert found(job.findings()) == [("straggler_rank", f"worker-{rank}")]
    if state is JobState.RUNNING:
        assert found(job.findings_while_running()) == [("straggler_rank", f"worker-{rank}")]


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([4, 6, 8, 16]), st.integers(2, 20), st.integers(16, 60),
    st.floats(0.0, 0.1), st.booleans(),
)  # fmt: skip
def test_a_rank_that_computes_while_the_others_sleep_is_named(seed, ranks, interval, length, wakes, all_pause):
    """Sleeping ranks mostly use no CPU. The little that they use at times is no sign of work."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(ranks))

    def level(own, time):
        begin = time < NOW - (length - 3) * MINUTE
        sleeping = np.where(random.random(len(time)) < wakes, 0.03, 0.0)
        value = np.where(begin, 0.8, 0.9 if own == rank else sleeping)
        return np.where((time // MINUTE) % 20 < 2, 0.0, value) if all_pause else value

    job = batch(random, ranks, interval, length, JobState.SUCCEEDED, level)
    stragglers = [one for one in found(job.findings()) if one[0] == "straggler_rank"]
    assert stragglers == [("straggler_rank", f"worker-{rank}")]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([4, 6, 8, 16]), st.integers(20, 60), st.integers(8, 30))
def test_a_rank_is_named_beside_others_whose_traces_of_load_rise_and_fall(seed, ranks, interval, length):
    """All other ranks rest, with tiny loads that vary by orders of magnitude: none has a level of work."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(ranks))
    drift = 10 ** random.uniform(-5, -1.7, length + 1)

    def level(own, time):
        return np.full(len(time), 0.9) if own == rank else drift[(NOW - time) // MINUTE]

    job = batch(random, ranks, interval, length, JobState.SUCCEEDED, level)
    assert found(job.findings()) == [("straggler_rank", f"worker-{rank}")]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 3, 4, 7, 8, 9, 16, 64]),
    st.integers(5, 30),
    st.floats(0.05, 0.4),
    st.floats(4, 10),
    st.sampled_from([0.0, 0.003, 0.05]),
    st.sampled_from([JobState.RUNNING, JobState.SUCCEEDED]),
)
def test_a_rank_that_writes_checkpoints_or_evaluates_alone_is_no_straggler(
    seed, ranks, interval, share, cycle, rest, state
):
    """The other ranks rest meanwhile, with no CPU or tiny loads, for less than half of the time."""
    random = np.random.default_rng(seed)
    alone, length = float(random.choice([0.9, 2.0])), int(random.integers(40, 90))

    def level(rank, time):
        saves = (time / MINUTE) % cycle < share * cycle
        return np.where(saves, alone if rank == 0 else 2.0 * rest, 2.0)

    job = batch(random, ranks, max(interval, ranks // 4), length, state, level)
    assert found(job.findings()) == []
    if state is JobState.RUNNING:
        assert found(job.findings_while_running()) == []


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 4, 8, 16, 64]), st.integers(5, 60), st.booleans())
def test_ranks_that_differ_by_design_are_no_stragglers(seed, ranks, interval, halves):
    random = np.random.default_rng(seed)
    job = batch(random, ranks, interval, 60, JobState.SUCCEEDED,
                lambda rank, time: np.full(len(time), 0.6 if halves and rank % 2 else 2.0))  # fmt: skip
    assert found(job.findings()) == []


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(3, 8),
    st.sampled_from([1, 2, 8]),
    st.integers(15, 60),
    st.sampled_from([("gpu.utilization", "gpu.power", "gpu.memory.usage"), NVML, ALL_METRICS]),
)
def test_the_stages_of_a_pipeline_are_no_stragglers(seed, stages, replicas, interval, metrics):
    """Each stage has its own amount of work and of memory."""
    random = np.random.default_rng(seed)
    job = Training(random, stages * replicas, interval, 60, metrics)
    work = random.uniform(0.55, 1, stages)
    memory = random.permutation(np.linspace(0.4, 1, stages))

    def change(metric, rank, _time, value):
        if metric == "gpu.memory.usage":
            return value * memory[rank // replicas]
        return value if metric in {"gpu.clock.sm", "gpu.utilization"} else value * work[rank // replicas]

    assert "straggler_gpu" not in dict(found(job.sampled(change).findings()))


@pytest.mark.parametrize("ranks", [8, 64, 128])
def test_the_job_of_the_pictures_has_its_finding(ranks):
    """A single rank stays at 55 % for an hour, and the others at 93 %."""
    job = Training(np.random.default_rng(3), ranks, 20, 55, ("gpu.utilization", "gpu.power"))
    sampled = job.slow({"gpu.utilization": 0.55 / 0.93, "gpu.power": 412 / 601}, 7)
    for findings in (sampled.findings(), sampled.findings_while_running()):
        [one] = findings
        assert (one.rule, one.subject.name, one.severity) == ("straggler_gpu", "node-7/gpu0", Severity.WARNING)
        assert re.fullmatch(r"worker-7 \(node-7, gpu0\) computes at 5\d %; the median is (8[5-9]|9\d) %", one.sentence)
