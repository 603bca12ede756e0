"""Tests of device rules that compare times, neighbours, or counters."""

import numpy as np
import pytest
from benchmarks.faults.build import START, draw_shape
from benchmarks.faults.gpu_faults import GPU_CLEAN, GPU_FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.diagnosed import Sampled, found
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore
from tests.support.training import LEVELS, NVML, Training

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.stored import evaluate_nodes
from jobmeter.diagnose.thresholds import load
from jobmeter.model.batch import SampleBatch
from jobmeter.model.finding import Severity
from jobmeter.model.job import JobState, Node
from jobmeter.model.series import Series
from jobmeter.model.task import DiagnosticTask, TaskState, TaskType
from jobmeter.model.time import HOUR, MINUTE, SECOND
from jobmeter.query.execute import Executor
from jobmeter.settings import Limits

WORK = frozenset({"gpu.utilization", "gpu.sm.active", "gpu.tensor.active", "gpu.power"})
DEVICE = tuple(metric for metric in LEVELS if metric.startswith("gpu.") and "nvlink" not in metric)
seeds = st.integers(0, 2**32 - 1)


def job(seed, ranks, interval, length=90, metrics=DEVICE, state=JobState.SUCCEEDED):
    return Training(np.random.default_rng(seed), ranks, interval, length, metrics, state, 0.8, pauses=False)


def rules_of(sampled):
    return [rule for rule, _ in found(sampled.findings())]


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from([1, 2, 8, 32]), st.integers(5, 60), st.floats(0.3, 0.65), st.data())
def test_devices_that_wait_for_each_batch_swing(seed, ranks, interval, rest, data):
    made = job(seed, ranks, max(interval, ranks))
    step = max(10, made.interval)
    period = data.draw(st.floats(max(25.0, 1.5 * step / min(rest, 1 - rest)), 295.0)) * SECOND

    def change(metric, _rank, time, value):
        return np.where(time % period < rest * period, 0.02 * value, value) if metric in WORK else value

    [one] = made.sampled(change).findings()
    assert (one.rule, one.subject.name) == ("gpu_fluctuating", "j")
    assert one.severity is (Severity.WARNING if one.evidence[0].value >= 0.3 else Severity.INFO)
    assert one.evidence[0].value == pytest.approx(rest, abs=0.12)
    assert one.sentence.startswith(f"{ranks} device")


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from([1, 4, 8]), st.integers(5, 60), st.floats(10, 45), st.floats(0.05, 0.2))
def test_checkpoints_and_evaluations_are_no_fluctuation(seed, ranks, interval, period, share):
    def change(metric, _rank, time, value):
        rests = time % (period * MINUTE) < share * period * MINUTE
        return np.where(rests, 0.1 * value, value) if metric in WORK else value

    assert rules_of(job(seed, ranks, interval, 180).sampled(change)) == []


@settings(max_examples=8, deadline=None)
@given(seeds, st.integers(5, 60), st.floats(0.02, 0.14), st.floats(1e9, 9e9), st.floats(0.2, 1.0))
def test_a_small_program_on_a_whole_device_needs_a_slice(seed, interval, busy, memory, cores):
    levels = {"gpu.memory.usage": memory, "cpu.usage": cores, "cpu.limit": 1.5, "memory.usage": 8e9}
    made = job(seed, 1, interval, metrics=(*DEVICE, "cpu.usage", "cpu.limit", "memory.usage"))

    def change(metric, _rank, _time, value):
        if metric in WORK:
            return value * busy / LEVELS["gpu.utilization"]
        return np.full(len(value), levels.get(metric, value[0]))

    [one] = made.sampled(change).findings()
    assert (one.rule, one.severity, one.subject.name) == ("mig_candidate", Severity.WARNING, "j")
    assert one.sentence.startswith("worker-0 (node-0, gpu0) computes for ")


@pytest.mark.parametrize(
    ("metric", "level"),
    [("gpu.memory.usage", 2e10), ("cpu.usage", 4.0), ("memory.usage", 5e10), ("gpu.memory.limit", 1.6e10)],
)
def test_a_program_that_needs_more_of_one_amount_is_no_candidate(metric, level):
    levels = {"gpu.memory.usage": 5e9, "cpu.usage": 0.5, "memory.usage": 8e9, metric: level}
    made = job(5, 1, 20, metrics=(*DEVICE, "cpu.usage", "memory.usage"))

    def change(name, _rank, _time, value):
        return value * 0.1 if name in WORK else np.full(len(value), levels.get(name, value[0]))

    assert rules_of(made.sampled(change)) == ["gpu_low_util"]


@settings(max_examples=8, deadline=None)
@given(seeds, st.sampled_from([2, 8, 16]), st.integers(5, 60), st.sampled_from(["power", "heat", "idle", "cap"]))
def test_a_clock_that_something_lowers_is_not_reported(seed, ranks, interval, why):
    levels = {
        "power": {"gpu.power": 670.0},
        "heat": {"gpu.temperature": 82.0},
        "idle": {"gpu.utilization": 0.3, "gpu.sm.active": 0.3},
        "cap": {"gpu.throttle.power": 0.15},
    }[why]
    levels["gpu.clock.sm"] = 1.3e9
    sampled = job(seed, ranks, interval).sampled(
        lambda name, _rank, _time, value: np.full(len(value), levels.get(name, value[0]))
    )
    assert "clock_low" not in rules_of(sampled)


@settings(max_examples=8, deadline=None)
@given(seeds, st.integers(5, 60))
def test_an_idle_device_may_lower_its_link(seed, interval):
    """A device also lowers its link in pauses of minutes."""

    def change(metric, _rank, time, value):
        rests = time // MINUTE % 25 < 6
        return np.where(rests, 0.2 * value, value) if metric in WORK or metric == "gpu.pcie.generation" else value

    assert rules_of(job(seed, 4, interval, 120).sampled(change)) == []


def test_links_that_are_all_alike_are_information():
    for ranks, severity in ((4, Severity.INFO), (1, Severity.WARNING)):
        sampled = job(3, ranks, 20).sampled(
            lambda name, _rank, _time, value: value / 2 if name == "gpu.pcie.width" else value
        )
        found_ones = sampled.findings()
        assert [one.rule for one in found_ones] == ["pcie_degraded"] * ranks
        assert {one.severity for one in found_ones} == {severity}
        assert found_ones[0].sentence.endswith("uses 8 PCIe lanes of 16 while it works")


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from([20, 60]), st.floats(0.02, 4.0) | st.floats(14.0, 500.0), st.floats(0, 0.5))
def test_pcie_replays_count_by_the_minute(seed, interval, rate, since):
    random = np.random.default_rng(seed)
    start = NOW - 2 * HOUR
    time = np.arange(start, NOW, interval * SECOND)
    each = random.poisson(rate * interval / 60, len(time)) * (time >= start + since * 2 * HOUR)
    busy = np.clip(random.normal(0.9, 0.02, len(time)), 0, 1)
    measured = {
        ("gpu.pcie.replay", "worker-0"): (time, 1_000.0 + np.cumsum(each)),
        ("gpu.utilization", "worker-0"): (time, busy),
    }
    expected = [("pcie_degraded", "node-0/gpu0")] if rate > 8 else []
    assert found(Sampled(measured, start).findings()) == expected


@settings(max_examples=12, deadline=None)
@given(
    seeds,
    st.sampled_from([8, 12, 16, 64]),
    st.integers(5, 60),
    st.sampled_from([0.0, 0.5]),
    st.floats(0.5, 0.68),
    st.floats(0.5, 0.68),
    st.booleans(),
)
def test_two_slow_devices_are_both_named(seed, ranks, interval, since, first, second, by_clock):
    made = job(seed, ranks, interval if ranks < 32 else max(interval, 15), metrics=NVML)
    slow = dict(zip(made.random.permutation(ranks)[:2].tolist(), (first, second), strict=True))
    begin = made.start + since * made.length * MINUTE
    metrics = {"gpu.clock.sm"} if by_clock else {"gpu.utilization", "gpu.power"}

    def change(metric, rank, time, value):
        return np.where((time >= begin) & (metric in metrics), value * slow.get(rank, 1.0), value)

    stragglers = {name for rule, name in found(made.sampled(change).findings()) if rule == "straggler_gpu"}
    assert stragglers == {f"node-{rank}/gpu0" for rank in slow}


@settings(max_examples=12, deadline=None)
@given(seeds, st.sampled_from([2, 4, 8, 16, 32]), st.integers(5, 60), st.floats(0.3, 0.7), st.booleans())
def test_replicas_of_a_service_with_loads_of_their_own_are_no_stragglers(seed, ranks, interval, demand, drifts):
    made = job(seed, ranks, max(interval, ranks // 2), 180, metrics=NVML)
    weights = made.random.lognormal(0, 0.1, ranks)
    weights[int(made.random.integers(ranks))] = made.random.choice([0.4, 0.6, 1.3])

    def change(metric, rank, time, value):
        if metric not in WORK:
            return value
        course = 1 + 0.3 * np.sin(2 * np.pi * time / (70 * MINUTE)) if drifts else 1.0
        load = np.clip(demand * weights[rank] * course, 0.02, 1.0)
        return value * load if metric == "gpu.utilization" else value * (0.2 + 0.8 * load)

    sampled = made.sampled(change)
    assert "straggler_gpu" not in rules_of(sampled)


def test_memory_of_strangers_is_reported_while_the_job_has_the_device():
    case = GPU_FAULTS["gpu_leftover_memory"][1](np.random.default_rng(3)).case()
    [one] = [one for one in examine(case, load()) if one.rule == "gpu_leftover_memory"]
    mine = case.view.allocations[0]
    assert one.subject.name == f"{mine.node}/{mine.device}"
    assert one.start == START
    assert one.sentence.startswith(f"{mine.replica} ({mine.node}, {mine.device}) has ")
    assert one.sentence.endswith("but its processes belong to no job")


@settings(max_examples=2, deadline=None)
@given(seeds)
@pytest.mark.parametrize("name", GPU_CLEAN)
def test_a_healthy_job_with_devices_of_any_shape_has_no_finding(name, seed):
    random = np.random.default_rng(seed)
    shape = draw_shape(random)
    assert examine(GPU_CLEAN[name](random, shape).case(), load()) == []


@settings(max_examples=8, deadline=None)
@given(st.integers(5, 60), st.sampled_from([0, 1]), st.floats(0.3, 0.7), st.floats(3e9, 7e10))
def test_memory_that_a_job_left_on_a_node_is_found_by_a_task(interval, strangers, end, used):
    """A job computes there at first. Afterwards nobody computes, but the memory stays in use."""
    start = NOW - 3 * HOUR
    time = np.arange(start, NOW, interval * SECOND)
    left = time >= start + end * 3 * HOUR
    values = {
        "gpu.memory.usage": np.full(len(time), used),
        "gpu.processes": np.where(left, strangers, 2.0),
        "gpu.processes.foreign": np.where(left, strangers, 0.0),
        "gpu.utilization": np.where(left, 0.0, 0.9),
    }
    store = MemoryStore()
    for device, own in (("gpu0", values), ("gpu1", {**values, "gpu.memory.usage": np.where(left, 2e8, used)})):
        for metric, value in own.items():
            for job_id, part in (("j", ~left), ("", left)):
                series = Series(metric, "lab", node="n1", device=device, job=job_id, replica="w-0" if job_id else "")
                index = np.zeros(int(part.sum()), np.uint32)
                store.append_all((SampleBatch([series], index, time[part], value[part]),))
    registry = FakeRegistry()
    registry.stored_nodes.append(Node(name="n1", project="lab"))
    executor = Executor(store, registry, SetClock(NOW), Limits())
    task = DiagnosticTask(
        id="t",
        type=TaskType.NODE,
        state=TaskState.RUNNING,
        project="lab",
        created=NOW,
        start=start,
        end=NOW,
        nodes=["n1"],
    )
    [one] = evaluate_nodes(executor, task, NOW, load()).findings
    assert (one.rule, one.subject.name) == ("gpu_leftover_memory", "n1/gpu0")
    assert abs(one.start - (start + end * 3 * HOUR)) <= 2 * MINUTE
    assert one.sentence.startswith("gpu0 of n1 has ")
