"""Tests of a GPU without measurements: the text of the finding, at any interval, phase and step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.rules.gpu_missing import gpu_missing
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import load
from jobmeter.model.device import STATES, DeviceState
from jobmeter.model.event import Event, EventSource, Level
from jobmeter.model.finding import Severity
from jobmeter.model.job import Allocation, Job, JobState, JobView
from jobmeter.model.time import MINUTE, SECOND, TimeRange

START = 1_767_225_600_000
THRESHOLDS = load()
MISSING = [one for one in STATES if one is not DeviceState.MEASURED]


def case(signals=(), events=(), faults=(), devices=("gpu0",), length=60 * MINUTE):
    allocations = [Allocation(replica="worker-0", node="n1", device=device, start=START) for device in devices]
    job = Job(id="j", project="p", state=JobState.RUNNING, start=START)
    return Case(
        view=JobView(job=job, replicas=[], allocations=allocations),
        span=TimeRange(START, START + length),
        now_ms=START + length,
        step_ms=10 * SECOND,
        means={"gpu.state": list(signals)},
        events=list(events),
        faults=list(faults),
    )


def found(one):
    return examine(one, THRESHOLDS, [gpu_missing])


def event(reason, device="gpu0", minute=5, job="", message="what happened"):
    return Event(
        time=START + minute * MINUTE,
        project="p",
        job=job,
        node="n1",
        source=EventSource.REPLICA if job else EventSource.NODE,
        level=Level.ERROR,
        reason=reason,
        message=message,
        subject=f"device {device}" if device else "",
    )


def states(codes, interval=10 * SECOND, step=10 * SECOND, phase=0):
    """Return state samples as the rule reads them: means of steps aligned to the epoch."""
    time = START + phase + np.arange(len(codes)) * interval
    steps, where = np.unique(time // step * step, return_inverse=True)
    mean = np.bincount(where, weights=np.asarray(codes, float)) / np.bincount(where)
    return Signal("gpu.state", steps, mean, "worker-0", "n1", "gpu0")


@pytest.mark.parametrize("state", MISSING)
def test_a_finding_names_the_state_and_how_bad_it_is(state):
    (one,) = found(case([states([0] * 30 + [state.code] * 60)]))
    assert one.subject.name == "n1/gpu0"
    assert one.sentence == f"worker-0 (n1, gpu0) is not measured: {state}"
    assert one.evidence[0].text == f"it was not measured for 10 min: {state}"
    assert one.severity is (Severity.WARNING if state.usable else Severity.CRITICAL)
    assert (one.start, one.end) == (START + 5 * MINUTE, START + 15 * MINUTE)


def test_a_measured_device_is_no_finding():
    assert found(case([states([0] * 100)])) == []
    assert found(case()) == []


@given(
    st.sampled_from(MISSING),
    st.integers(1, 60),
    st.integers(0, 59_999),
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from([1, 10, 15, 60, 300]),
)
def test_a_loss_is_found_at_any_interval_phase_and_step(state, interval, phase, before, after, step):
    step = max(step, interval)
    codes = [0] * before + [state.code] * after
    (one,) = found(case([states(codes, interval * SECOND, step * SECOND, phase)], length=24 * 60 * MINUTE))
    lost = START + phase + before * interval * SECOND
    assert abs(one.start - lost) <= step * SECOND
    if after * interval >= 2 * step:  # one step contains no other value
        assert one.evidence[0].text.endswith(f": {state}")
        assert one.severity is (Severity.WARNING if state.usable else Severity.CRITICAL)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("GpuLost", DeviceState.LOST),
        ("DeviceHangs", DeviceState.HANGS),
        ("GpuNotPermitted", DeviceState.NO_PERMISSION),
    ],
)
def test_events_of_agents_say_it_where_there_are_no_samples(reason, state):
    (one,) = found(case(events=[event(reason, job="j"), event("GpuBack", job="j", minute=9)]))
    assert one.subject.name == "n1/gpu0"
    assert one.severity is (Severity.WARNING if state.usable else Severity.CRITICAL)
    assert (one.start, one.end) == (START + 5 * MINUTE, START + 9 * MINUTE)
    assert [part.text for part in one.evidence] == [f"{reason}: what happened", "GpuBack: what happened"]


def test_the_event_explains_what_the_samples_show():
    (one,) = found(case([states([0] * 30 + [7] * 60)], faults=[event("GpuLost", message="GPU is lost")]))
    assert [part.text for part in one.evidence] == [
        "it was not measured for 10 min: lost",
        "GpuLost: GPU is lost",
    ]


def test_a_neighbours_device_is_not_the_jobs():
    assert found(case(faults=[event("GpuLost", "gpu5")])) == []
    assert found(case(events=[event("GpuBack", job="j")])) == [], "it was lost before the job had it"


def test_a_driver_that_was_replaced_is_a_finding_of_the_node():
    (one,) = found(case(faults=[event("DriverMismatch", "")]))
    assert (one.subject.kind, one.subject.name, one.severity) == ("node", "n1", Severity.WARNING)
    both = case([states([0] * 30 + [3] * 60)], faults=[event("DriverMismatch", "")])
    (one,) = found(both)
    assert one.subject.name == "n1/gpu0"
    assert one.evidence[1].text.startswith("DriverMismatch")
