"""Tests of the explanation of a slower run, on runs slowed down by one cause."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulated_runs import NAMES, Plan, changed, make, measured

from jobmeter.diagnose.difference import explain_difference
from jobmeter.model.job import Job, JobState
from jobmeter.model.phase import JobPhases, Phase, PhaseCause, PhaseSpan
from jobmeter.query.course import Course
from jobmeter.query.phases import MeasuredRun

PLANS = st.builds(
    Plan,
    queued=st.floats(5, 900),
    prepare=st.floats(5, 300),
    start=st.floats(90, 600),
    steps=st.integers(800, 2500),
    waits=st.floats(0.05, 0.5),
    computes=st.floats(1.5, 4.0),
    communicates=st.floats(0.1, 0.8),
    save_every=st.integers(300, 400),
    saves=st.floats(60.0, 120.0),
    interval=st.sampled_from([1.0, 5.0, 10.0, 15.0, 30.0, 60.0]),
    ranks=st.sampled_from([1, 2, 8, 64]),
    waits_for=st.sampled_from(["wait_io", "wait_cpu"]),
    seed=st.integers(0, 1000),
)
CHANGES = {
    PhaseCause.INPUT: lambda plan: {"waits": plan.waits + 0.5 * plan.computes},
    PhaseCause.CLOCK: lambda plan: {"slowdown": 1.4},
    PhaseCause.QUEUE: lambda plan: {"queued": plan.queued + 3000},
    PhaseCause.PREPARE: lambda plan: {"prepare": plan.prepare + 3000},
    PhaseCause.START: lambda plan: {"start": plan.start + 2000},
    PhaseCause.COMMUNICATION: lambda plan: {"communicates": plan.communicates + 0.5 * plan.computes},
    PhaseCause.CHECKPOINT: lambda plan: {"save_every": plan.save_every // 2},
    PhaseCause.RESTART: lambda plan: {"fails_at": plan.steps // 2 + 20, "down": 600.0},
}


def explained(a, **more):
    b = changed(a, name="slower", seed=a.seed + 7, **more)
    return explain_difference(measured(a), measured(b)), make(b).end - make(a).end


@pytest.mark.parametrize("cause", CHANGES, ids=str)
@settings(max_examples=12, deadline=None)
@given(plan=PLANS)
def test_the_injected_cause_has_the_largest_part_and_nearly_all_of_the_difference(cause, plan):
    found, longer = explained(plan, **CHANGES[cause](plan))
    assert found.difference_ms == longer
    assert found.parts[0].cause is cause, found
    assert found.parts[0].difference == pytest.approx(longer, rel=0.4)
    assert found.sentence.startswith("B took ")
    assert sum(part.difference for part in found.parts) == found.difference_ms
    assert not found.unknown.keys() - {"first_step", "restart"}


@pytest.mark.parametrize("slower", [Plan(name="b", waits=3.0), Plan(name="b", computes=3.0)], ids=["waits", "computes"])
def test_a_shorter_run_is_explained_by_the_same_parts_with_the_other_sign(slower):
    a, b = measured(Plan()), measured(slower)
    there, back = explain_difference(a, b), explain_difference(b, a)
    assert back.difference_ms == -there.difference_ms
    # Each part of a job is equal in both explanations, apart from a rounding of milliseconds.
    for part in there.parts:
        other = next(one for one in back.parts if one.cause is part.cause)
        assert (other.a, other.b) == pytest.approx((part.b, part.a), abs=2)
    assert "longer than A: " in there.sentence
    assert "less than A: " in back.sentence


def test_the_sentence_names_the_parts_the_first_of_them_with_its_figures():
    plan = Plan(steps=2000)
    b = changed(plan, waits=1.2, fails_at=1000, down=300.0, name="b")
    found = explain_difference(measured(plan), measured(b))
    assert found.sentence.startswith("B took ")
    assert " of it input (utilization: " in found.sentence
    assert "processes waited for storage" in found.sentence
    assert found.sentence.index(" of it input") < found.sentence.index(" restarts")
    (restart,) = [part for part in found.parts if part.cause is PhaseCause.RESTART]
    assert restart.text == "number: 0 in A, 1 in B"
    assert restart.difference == pytest.approx((300 + 120) * 1000, rel=0.1)


def test_runs_that_take_as_long_say_so():
    found = explain_difference(measured(Plan()), measured(Plan(name="b", seed=1)))
    assert found.sentence.startswith("B took as long as A (")


@pytest.mark.parametrize("numbered", [True, False])
def test_repeated_steps_are_part_of_a_restart_where_both_can_say_it(numbered):
    b = measured(Plan(name="b", fails_at=700, down=60.0))
    last = b.phases.spans[-2]
    assert last.phase is Phase.TRAINING
    again = PhaseSpan(phase=Phase.REPEAT, start=last.start, end=last.start + 60_000, attempt=1)
    rest = PhaseSpan(phase=Phase.TRAINING, start=again.end, end=last.end, attempt=1)
    spans = [*b.phases.spans[:-2], again, rest, b.phases.spans[-1]]
    unknown = {"first_step": "why"} if numbered else {"first_step": "why", "repeat": "no numbers"}
    phases = JobPhases(job="b", start=b.phases.start, end=b.phases.end, spans=spans, unknown=unknown)
    parts = explain_difference(measured(Plan()), MeasuredRun(job=b.job, phases=phases, courses=b.courses)).parts
    (restart,) = [part for part in parts if part.cause is PhaseCause.RESTART]
    assert restart.b == pytest.approx(60_000 + 120_000 + (60_000 if numbered else 0), abs=25_000)


WITHOUT = {
    PhaseCause.INPUT: ("pressure.io", "cpu.utilization"),
    PhaseCause.COMMUNICATION: ("gpu.sm.active", "gpu.tensor.active"),
    PhaseCause.CLOCK: ("gpu.clock.sm",),
    PhaseCause.CHECKPOINT: ("disk.write",),
}


@pytest.mark.parametrize("cause", WITHOUT, ids=str)
@pytest.mark.parametrize("both", [True, False])
def test_a_cause_that_was_not_measured_in_both_is_named_and_has_no_part(cause, both):
    names = tuple(name for name in (*NAMES, "gpu.clock.sm") if name not in WITHOUT[cause])
    a = measured(Plan(), names if both else (*NAMES, "gpu.clock.sm"))
    b = measured(Plan(name="b", waits=1.0, slowdown=1.3, communicates=1.0), names)
    found = explain_difference(a, b)
    assert cause in found.unknown
    assert all(part.cause is not cause for part in found.parts if part.a or part.b)
    assert sum(part.difference for part in found.parts) == found.difference_ms == b.phases.end - a.phases.end


def test_clocks_of_different_devices_are_not_compared():
    a, b = measured(Plan()), measured(Plan(name="b", slowdown=1.5))
    found = explain_difference(
        MeasuredRun(job=a.job, phases=a.phases, courses=a.courses, types=frozenset({"H100"})),
        MeasuredRun(job=b.job, phases=b.phases, courses=b.courses, types=frozenset({"A100"})),
    )
    assert found.unknown[PhaseCause.CLOCK] == "their devices are of different types: it is part of compute"
    assert found.parts[0].cause is PhaseCause.COMPUTE


def test_without_a_submission_of_one_the_runs_are_compared_from_their_starts():
    a, b = measured(Plan()), measured(Plan(name="b", queued=4000.0))
    started = [span for span in b.phases.spans if span.phase not in {Phase.QUEUED, Phase.PREPARE}]
    unknown = {**b.phases.unknown, "queued": "no record says when it was submitted"}
    later = JobPhases(job="b", start=started[0].start, end=b.phases.end, spans=started, unknown=unknown)
    found = explain_difference(a, MeasuredRun(job=b.job, phases=later, courses=b.courses))
    assert found.b_ms == later.end - later.start
    assert abs(found.difference_ms) < 1000
    assert {PhaseCause.QUEUE, PhaseCause.PREPARE} <= found.unknown.keys()
    assert all(part.cause not in {PhaseCause.QUEUE, PhaseCause.PREPARE} for part in found.parts)


@st.composite
def runs(draw, name):
    """Draw arbitrary spans, samples and gaps, which need not make sense."""
    start = draw(st.integers(0, 10**6))
    phases = draw(st.lists(st.tuples(st.sampled_from(Phase), st.integers(1, 10**7), st.integers(0, 3)), max_size=12))
    spans, at = [], start
    for phase, length, attempt in phases:
        spans.append(PhaseSpan(phase=phase, start=at, end=at + length, attempt=attempt))
        at += length
    unknown = {phase.value: "why" for phase in draw(st.sets(st.sampled_from(Phase), max_size=3))}
    courses = {}
    random = np.random.default_rng(draw(st.integers(0, 99)))
    for metric in draw(st.sets(st.sampled_from([*NAMES, "gpu.clock.sm", "pressure.cpu", "gpu.power"]))):
        time = np.unique(random.integers(start, at + 2, draw(st.integers(0, 40))))
        until = np.minimum(np.append(time[1:], at + 1), time + draw(st.integers(1, 10**6)))
        courses[metric] = Course(time, until, random.uniform(0, 2, len(time)))
    job = Job(id=name, state=JobState.SUCCEEDED)
    return MeasuredRun(
        job=job, phases=JobPhases(job=name, start=start, end=at, spans=spans, unknown=unknown), courses=courses
    )


@given(runs("a"), runs("b"))
def test_the_parts_of_any_two_runs_sum_to_the_whole_to_the_millisecond(a, b):
    found = explain_difference(a, b)
    assert sum(part.a for part in found.parts) == found.a_ms
    assert sum(part.b for part in found.parts) == found.b_ms
    assert sum(part.difference for part in found.parts) == found.difference_ms == found.b_ms - found.a_ms
    if not {"queued"} & (a.phases.unknown.keys() | b.phases.unknown.keys()):
        assert (found.a_ms, found.b_ms) == (a.phases.end - a.phases.start, b.phases.end - b.phases.start)
    assert all(part.a or part.b for part in found.parts)
    absent = {part.cause for part in found.parts} & found.unknown.keys()
    assert absent <= {PhaseCause.UNATTRIBUTED, PhaseCause.RESTART, PhaseCause.QUEUE}
    assert found.sentence
