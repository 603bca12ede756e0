"""Tests of invariants: the time of a job and the unit of a count do not change a finding."""

import msgspec
import numpy as np
import pytest
from benchmarks.faults.generated import FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.signal import Signal, align_signals, compute_median, compute_trend
from jobmeter.diagnose.thresholds import load
from jobmeter.model.time import TimeRange
from jobmeter.query.stretches import find_sustained

THRESHOLDS = load()
_SERIES = (
    "gpu_idle_allocated",
    "gpu_busy_but_empty",
    "cpu_throttled",
    "straggler_gpu",
    "straggler_rank",
    "host_mem_leak",
    "gpu_mem_leak",
    "hang_hw",
    "thermal",
    "agent_gap",
    "python_exception",
)


def shifted(case, by):
    """Move a case to another time."""

    def of(signals):
        return {name: [replace(one, time=one.time + by) for one in own] for name, own in signals.items()}

    def later(value):
        return None if value is None else value + by

    job = case.view.job
    job = msgspec.structs.replace(
        job, start=later(job.start), end=later(job.end), updated=later(job.updated), last_sample=later(job.last_sample)
    )
    replicas = [msgspec.structs.replace(one, start=later(one.start), end=later(one.end)) for one in case.view.replicas]
    return replace(
        case,
        view=msgspec.structs.replace(case.view, job=job, replicas=replicas),
        span=TimeRange(case.span.start_ms + by, case.span.end_ms + by),
        now_ms=case.now_ms + by,
        means=of(case.means),
        increases=of(case.increases),
        nodes=of(case.nodes),
        lines=[msgspec.structs.replace(line, time_ns=line.time_ns + by * 1_000_000) for line in case.lines],
    )


def compared(findings):
    return [(one.rule, one.role, one.severity, one.subject, one.end - one.start) for one in findings]


@settings(max_examples=5, deadline=None)
@given(by=st.integers(-(10**9), 10**10), seed=st.integers(0, 2**32))
@pytest.mark.parametrize("rule", _SERIES)
def test_a_job_at_another_time_has_the_same_findings(rule, by, seed):
    case = FAULTS[rule][0](np.random.default_rng(seed)).case()
    before = examine(case, THRESHOLDS)
    after = examine(shifted(case, by), THRESHOLDS)
    assert compared(after) == compared(before)
    assert [one.start for one in after] == [one.start + by for one in before]


@settings(max_examples=5, deadline=None)
@given(factor=st.floats(0.01, 100), seed=st.integers(0, 2**32))
@pytest.mark.parametrize(
    ("rule", "metrics"),
    [
        ("host_mem_leak", ("memory.usage", "memory.limit")),
        ("gpu_mem_leak", ("gpu.memory.usage", "gpu.memory.limit")),
        ("straggler_gpu", ("gpu.power", "gpu.power.limit")),
    ],
)
def test_amounts_with_their_limits_may_be_of_any_size(rule, metrics, factor, seed):
    case = FAULTS[rule][0](np.random.default_rng(seed)).case()
    scaled = {
        name: [replace(one, value=one.value * factor) for one in own] if name in metrics else own
        for name, own in case.means.items()
    }
    assert compared(examine(replace(case, means=scaled), THRESHOLDS)) == compared(examine(case, THRESHOLDS))


def points(seconds):
    return np.asarray(seconds, np.int64) * 1000


def test_a_condition_holds_until_a_false_point_or_a_gap():
    time = points([0, 10, 20, 30, 40, 50, 100, 110, 120])
    true = np.array([1, 1, 1, 0, 1, 1, 1, 1, 1], np.bool_)
    found = find_sustained(time, true, 20_000)
    assert [(one.start, one.end) for one in found] == [(0, 30_000), (40_000, 60_000), (100_000, 130_000)]
    assert find_sustained(time, true, 31_000) == []
    assert find_sustained(time[:1], true[:1], 0) == []


@given(
    slope=st.floats(-100, 100).filter(lambda value: abs(value) > 0.01),
    start=st.floats(-1000, 1000),
    odd=st.sets(st.integers(0, 99), max_size=8),
)
def test_a_few_odd_points_do_not_bend_a_trend(slope, start, odd):
    time = points(np.arange(0, 1000, 10))
    value = start + slope * time / 1000
    value[list(odd)] += 1e4
    assert compute_trend(time, value).slope == pytest.approx(slope, rel=0.2, abs=0.02)


def test_lines_side_by_side_lack_what_was_not_measured():
    dense = Signal("m", points(range(0, 100, 10)), np.ones(10), "a")
    late = Signal("m", points(range(60, 100, 10)), np.full(4, 2.0), "b")
    time, values = align_signals([dense, late])
    assert time.tolist() == dense.time.tolist()
    assert np.isnan(values[1, :6]).all()
    assert values[1, 6:].tolist() == [2.0] * 4
    gone = Signal("m", points([0, 10, 20]), np.full(3, 3.0), "c")
    assert np.isnan(align_signals([dense, gone])[1][1, 6:]).all()
    assert align_signals([])[1].shape == (0, 0)


def test_a_line_at_its_own_times_is_itself_and_at_others_what_was_there_before():
    signal = Signal("m", points([0, 10, 20]), np.array([1.0, 2.0, 3.0]))
    assert signal.read_at(points([0, 10, 20])).tolist() == [1.0, 2.0, 3.0]
    assert signal.read_at(points([5, 15, 25])).tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(signal.read_at(points([-1, 0, 90]))).tolist() == [True, False, True]


@given(
    shape=st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(1, 8)),
    axis=st.integers(0, 2),
    seed=st.integers(0, 2**32),
    gaps=st.sampled_from([0.0, 0.2, 0.8]),
)
@pytest.mark.filterwarnings("ignore:All-NaN slice", "ignore:Mean of empty slice")
def test_the_median_of_lines_leaves_out_what_is_not_there(shape, axis, seed, gaps):
    random = np.random.default_rng(seed)
    values = random.normal(size=shape)
    values[random.random(shape) < gaps] = np.nan
    np.testing.assert_array_equal(compute_median(values, axis), np.nanmedian(values, axis=axis))


def test_the_coverage_of_each_member_is_that_of_its_own_times():
    """The coverage of one member's points is independent of other members."""
    case = FAULTS["thermal"][0](np.random.default_rng(1)).case()
    start = case.span.start_ms
    dense = start + np.arange(0, 100_000, 10_000)
    sparse = start + np.array([*range(0, 50_000, 10_000), 1_000_000])
    own = [Signal("gpu.temperature", time, np.full(len(time), 50.0)) for time in (dense, sparse, dense)]
    judged = {**THRESHOLDS["thermal"], "warm_up": 0.0}
    case = replace(case, means={"gpu.temperature": own})
    assert [len(one) for one in case.select_signals("gpu.temperature", judged)] == [10, 10]
    assert case.select_signals("gpu.temperature", judged, reaching=50.1) == []
    assert case.has_signals("gpu.temperature", judged)
    assert not case.has_signals("npu.temperature", judged)


def test_coverage_is_the_share_of_time_that_points_stand_for():
    assert Signal("m", points(range(0, 100, 10)), np.ones(10)).coverage == 1.0
    assert Signal("m", points([0, 10, 20, 30, 70]), np.ones(5)).coverage == 5 / 8
    assert Signal("m", points([]), np.ones(0)).coverage == 0.0


@given(st.lists(st.integers(0, 10_000), max_size=30, unique=True))
def test_the_interval_is_the_median_distance(times):
    time = np.sort(np.array(times, np.int64))
    expected = int(np.median(np.diff(time))) if len(time) > 1 else 0
    assert Signal("m", time, np.ones(len(time))).interval == expected
