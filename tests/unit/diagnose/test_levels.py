"""Tests of rules about levels and growth of one or two metrics: at any interval, with noise, from any moment on."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.diagnosed import found
from tests.support.training import LEVELS, Training

from jobmeter.diagnose.registry import list_rules
from jobmeter.model.job import JobState
from jobmeter.model.time import MINUTE

LINKS = tuple(metric for metric in LEVELS if metric.startswith(("gpu.pcie", "gpu.processes", "gpu.clock.sm.limit")))
DEVICE = tuple(
    metric for metric in LEVELS if metric.startswith("gpu.") and "nvlink" not in metric and metric not in LINKS
)
HOST = tuple(metric for metric in LEVELS if not metric.startswith("gpu."))
GPM = ("gpu.sm.active", "gpu.tensor.active")


@dataclass(frozen=True)
class Fault:
    """Abnormal levels of metrics, for all ranks or ``only`` one, and other facts of the fault.

    ``without`` are unmeasured metrics, and ``beside`` additional ones. ``devices`` False means a job without devices.
    ``whole`` means that the fault lasts for the whole job.
    """

    rule: str
    levels: dict[str, float]
    only: bool = False
    whole: bool = False
    devices: bool = True
    without: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    companions: frozenset[str] = field(default_factory=frozenset)


IDLE = {"gpu.utilization": 0.0, "gpu.sm.active": 0.0, "gpu.tensor.active": 0.0, "gpu.power": 90.0}
WAITS = {"gpu.utilization": 0.05, "gpu.sm.active": 0.04, "gpu.tensor.active": 0.02, "gpu.power": 120.0}
LOW = frozenset({"gpu_low_util"})
UNUSED = frozenset({"gpu_no_process", "gpu_partly_unused"})
HALF = {"gpu.utilization": 0.55, "gpu.sm.active": 0.4, "gpu.tensor.active": 0.2, "gpu.power": 380.0}
FAULTS = [
    Fault("gpu_idle_allocated", IDLE, companions=LOW),
    Fault("gpu_partly_unused", IDLE, only=True, whole=True, companions=frozenset({"gpu_idle_allocated"})),
    Fault("gpu_low_util", {"gpu.utilization": 0.14, "gpu.sm.active": 0.05}, whole=True),
    Fault("gpu_busy_but_empty", {"gpu.utilization": 0.96, "gpu.sm.active": 0.3}),
    Fault("gpu_busy_but_empty", {"gpu.utilization": 0.97, "gpu.tensor.active": 0.02}, without=GPM[:1]),
    Fault("gpu_busy_but_empty", {"gpu.utilization": 0.97, "gpu.power": 250.0}, without=GPM),
    Fault("cpu_bound_input", {**WAITS, "cpu.usage": 7.9}, companions=LOW),
    Fault("io_bound_input", {**WAITS, "cpu.usage": 2.5, "pressure.io": 0.8}, companions=LOW),
    Fault("io_bound_input", {"cpu.usage": 2.5, "pressure.io": 0.8}, devices=False),
    Fault("cpu_throttled", {"cpu.throttled.time": 0.6}),
    Fault("cpu_overrequest", {"cpu.usage": 1.0}, whole=True),
    Fault("host_mem_near_limit", {"memory.usage": 6.05e10}, only=True),
    Fault("gpu_mem_near_full", {"gpu.memory.usage": 7.95e10}, only=True),
    Fault("thermal", {"gpu.temperature": 91.0}, only=True),
    Fault("throttle_power", {"gpu.throttle.power": 0.6}, only=True),
    Fault("gpu_underused_p95", HALF, whole=True),
    Fault("batch_small", {**HALF, "gpu.memory.usage": 3e10}, whole=True),
    Fault("clock_low", {"gpu.clock.sm": 1.2e9, "gpu.power": 450.0}, only=True, beside=LINKS),
    Fault("clock_low", {"gpu.clock.sm": 1.3e9, "gpu.power": 450.0}, without=("gpu.throttle.power",), beside=LINKS),
    Fault("power_implausible", {"gpu.power": 40.0}, only=True, beside=LINKS),
    # Of two devices the one with less power counts as the slow one.
    Fault(
        "power_implausible", {"gpu.power": 1_300.0}, only=True, companions=frozenset({"straggler_gpu"}), beside=LINKS
    ),
    Fault("pcie_degraded", {"gpu.pcie.width": 8.0}, only=True, beside=LINKS),
    Fault("pcie_degraded", {"gpu.pcie.generation": 3.0}, only=True, beside=LINKS),
    Fault("gpu_no_process", {**IDLE, "gpu.processes": 0.0, "gpu.memory.usage": 5e6}, companions=LOW, beside=LINKS),
    Fault("gpu_leftover_memory", {**IDLE, "gpu.processes": 0.0}, only=True, companions=UNUSED, beside=LINKS),
]


def drawn_job(draw, devices=True, without=(), beside=()):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    metrics = [metric for metric in ((*DEVICE, *beside, *HOST) if devices else HOST) if metric not in without]
    state = draw(st.sampled_from([JobState.RUNNING, JobState.SUCCEEDED]))
    ranks, length = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([50, 90, 180]))
    interval = draw(st.integers(2 if length < 100 else 10, 60))
    return Training(random, ranks, interval, length, metrics, state, draw(st.floats(0.5, 1.2)), pauses=False)


@settings(max_examples=8, deadline=None)
@given(st.data())
@pytest.mark.parametrize("fault", FAULTS, ids=[f"{at}-{one.rule}" for at, one in enumerate(FAULTS)])
def test_a_fault_is_found_at_any_interval_from_any_moment_on(fault, data):
    job = drawn_job(data.draw, fault.devices, fault.without, fault.beside)
    since = 0.0 if fault.whole else data.draw(st.sampled_from([0.0, 0.4, 0.6]))
    begin = job.start + since * job.length * MINUTE
    chosen = data.draw(st.integers(0, job.ranks - 1))

    def change(metric, rank, time, value):
        concerned = (time >= begin) & (rank == chosen or not fault.only)
        return np.where(concerned, fault.levels[metric], value) if metric in fault.levels else value

    sampled = job.sampled(change)
    findings = sampled.findings()
    own = [one for one in findings if one.rule == fault.rule]
    assert own
    assert {rule for rule, _ in found(findings)} <= {fault.rule} | fault.companions
    if fault.only and not fault.whole:
        [one] = own
        assert one.subject.name in {f"worker-{chosen}", f"node-{chosen}/gpu0"}
        assert f"worker-{chosen} (node-{chosen}" in one.sentence
    if job.state is JobState.RUNNING and next(rule for rule in list_rules() if rule.name == fault.rule).running:
        open_ones = [one for one in sampled.findings_while_running() if one.rule == fault.rule]
        assert open_ones
        if since:  # the window of half an hour may begin later
            assert all(abs(one.start - begin) <= 6 * MINUTE + 2_000 * job.interval for one in open_ones)
    if since:
        assert all(abs(one.start - begin) <= 3 * MINUTE + 2_000 * job.interval for one in own)


@settings(max_examples=20, deadline=None)
@given(st.data(), st.booleans())
def test_a_healthy_job_has_no_finding(data, devices):
    job = drawn_job(data.draw, devices, beside=LINKS)
    sampled = job.sampled()
    assert found(sampled.findings()) == []
    if job.state is JobState.RUNNING:
        assert found(sampled.findings_while_running()) == []


@settings(max_examples=12, deadline=None)
@given(st.data(), st.booleans())
def test_replicas_that_got_as_much_cpu_as_one_of_their_role_needs_have_no_finding(data, all_rest):
    job = drawn_job(data.draw)
    busy = data.draw(st.integers(0, job.ranks - 1))

    def change(metric, rank, _time, value):
        rests = metric == "cpu.usage" and (all_rest or rank != busy)
        return np.full(len(value), 1.0) if rests else value

    own = [name for rule, name in found(job.sampled(change).findings()) if rule == "cpu_overrequest"]
    assert sorted(own) == ([f"worker-{rank}" for rank in range(job.ranks)] if all_rest else [])


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from(["memory.usage", "gpu.memory.usage"]))
def test_memory_that_leaks_is_found_whenever_that_began(data, metric):
    job = drawn_job(data.draw)
    job.length = 120
    since = data.draw(st.sampled_from([0.0, 0.3, 0.5]))
    grown, chosen = data.draw(st.floats(0.4, 0.6)) * LEVELS[metric.replace("usage", "limit")], 1
    grown *= 0.35 if metric.startswith("gpu") else 1.0  # most of a device's memory is in use

    def change(name, rank, time, value):
        course = np.clip(((time - job.start) / (job.length * MINUTE) - since) / (1 - since), 0.0, 1.0)
        return value + grown * course if name == metric and rank == chosen else value

    findings = job.sampled(change).findings()
    rule = "gpu_mem_leak" if metric.startswith("gpu") else "host_mem_leak"
    assert {one.rule for one in findings} <= {rule, "host_mem_near_limit", "gpu_mem_near_full"}
    [one] = [one for one in findings if one.rule == rule]
    assert "worker-1 (node-1" in one.sentence
    assert " a minute" in one.sentence


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from(["plateau", "sawtooth", "steps"]))
def test_memory_that_does_not_go_on_growing_is_no_leak(data, kind):
    job = drawn_job(data.draw, devices=False)
    job.length = 120

    def change(name, _rank, time, value):
        course = (time - job.start) / (job.length * MINUTE)
        added = {"plateau": 1 - np.exp(-8 * course), "sawtooth": (12 * course) % 1, "steps": np.floor(2 * course) / 2}
        return value + 2e10 * added[kind] if name == "memory.usage" else value

    assert "host_mem_leak" not in dict(found(job.sampled(change).findings()))
