"""Tests of the phases of a job: against runs with known pieces, and for arbitrary facts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulated_runs import CREATED, NAMES, Plan, facts, make, view

from jobmeter.model.event import Event
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.phase import Phase
from jobmeter.query.checkpoints import CheckpointReports, collect_checkpoint_reports
from jobmeter.query.course import Course
from jobmeter.query.phases import MOST_RESTARTS, PhaseFacts, compute_phases

MINUTE = 60_000
PLANS = st.builds(
    Plan,
    queued=st.floats(1, 3600),
    prepare=st.floats(1, 900),
    start=st.floats(150, 1200),
    steps=st.integers(900, 2000),
    waits=st.floats(0.0, 0.4),
    saves=st.floats(60.0, 200.0),
    interval=st.sampled_from([1.0, 5.0, 10.0, 30.0, 60.0]),
    ranks=st.sampled_from([1, 3, 64]),
    fails_at=st.sampled_from([None, 500]),
    down=st.floats(120, 600),
    end=st.floats(2, 600),
    seed=st.integers(0, 1000),
)
NAMED = {
    Phase.QUEUED: ("queued",),
    Phase.PREPARE: ("prepare",),
    Phase.START: ("start",),
    Phase.CHECKPOINT: ("save",),
    Phase.RESTART: ("down",),
    Phase.END: ("end",),
    Phase.TRAINING: ("wait_io", "compute", "communicate"),
}


def sound(found):
    """Check that the spans fill the range without a gap, that none is empty, and that the totals are their sums."""
    edges = [found.start, *(span.end for span in found.spans)]
    assert [span.start for span in found.spans] == edges[:-1]
    assert edges[-1] == found.end
    assert all(span.length > 0 for span in found.spans)
    assert sum(found.totals.values()) == found.end - found.start
    assert all(value > 0 for value in found.totals.values())
    attempts = [span.attempt for span in found.spans]
    assert attempts == sorted(attempts)


@settings(max_examples=40, deadline=None)
@given(PLANS)
def test_each_phase_of_a_run_has_its_length_within_two_samples(plan):
    run = make(plan)
    found = compute_phases(view(run), facts(run), run.end)
    sound(found)
    assert (found.start, found.end) == (CREATED, run.end)
    truth = run.truth
    for phase, kinds in NAMED.items():
        whole = sum(truth.get(kind, 0) for kind in kinds)
        pieces = len(run.of("save")) + len(run.of("down")) + len(run.of("start")) + 1
        assert found.totals.get(phase.value, 0) == pytest.approx(whole, abs=2 * plan.interval * 1000 * pieces), phase
    assert set(found.unknown) - {"repeat"} == {"first_step"}
    assert ("repeat" in found.unknown) == (plan.fails_at is not None)


def test_the_first_report_of_a_step_ends_the_first_step():
    run = make(Plan())
    record, known = view(run), facts(run)
    (start,) = run.of("start")
    reports = np.arange(start[2] + 45_000, run.of("end")[0][1], 10_000)
    found = compute_phases(record, PhaseFacts(courses=known.courses, events=known.events, reports=reports), run.end)
    sound(found)
    assert found.totals["first_step"] == pytest.approx(45_000, abs=20_000)
    assert found.unknown == {}


def test_reports_alone_give_start_and_training_and_name_the_unknown_phases():
    run = make(Plan())
    reports = np.arange(run.of("start")[0][2], run.of("end")[0][1], 10_000)
    found = compute_phases(view(run), PhaseFacts(reports=reports), run.end)
    sound(found)
    assert found.totals["start"] == 120_000
    assert found.totals["training"] == int(reports[-1] - reports[0])
    assert set(found.unknown) == {"prepare", "first_step", "checkpoint"}
    assert found.totals["queued"] == 90_000


def test_without_any_measurement_the_run_is_unattributed():
    run = make(Plan())
    found = compute_phases(view(run), PhaseFacts(), run.end)
    sound(found)
    assert set(found.totals) == {"queued", "unattributed"}
    assert {"start", "training", "prepare", "checkpoint"} <= found.unknown.keys()


def test_a_job_that_waits_is_queued_until_now_and_has_no_other_phase():
    job = Job(id="j", state=JobState.QUEUED, created=1000)
    found = compute_phases(JobView(job=job, replicas=[], allocations=[]), PhaseFacts(), 61_000)
    assert found.totals == {"queued": 60_000}
    sound(found)


def test_a_job_that_trains_has_no_end():
    run = make(Plan(end=300.0))
    record = view(run)
    job = Job(id="run", state=JobState.RUNNING, created=CREATED, start=record.job.start)
    found = compute_phases(JobView(job=job, replicas=record.replicas, allocations=[]), facts(run), run.end)
    assert "end" not in found.totals
    sound(found)


def test_a_measurement_that_begins_late_or_stops_leaves_time_unattributed():
    run = make(Plan())
    known = facts(run)
    (start,), (end,) = run.of("start"), run.of("end")
    part = {
        name: Course(*(column[30:-30] for column in (course.time, course.until, course.value)))
        for name, course in known.courses.items()
    }
    found = compute_phases(view(run), PhaseFacts(courses=part, events=known.events), run.end)
    sound(found)
    assert {"start", "end"} <= found.unknown.keys()
    first, last = int(part["gpu.utilization"].time[0]), int(part["gpu.utilization"].until[-1])
    assert found.totals["unattributed"] == (first - start[1]) + (end[2] - last)
    assert not {"start", "end"} & found.totals.keys()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**7), st.integers(0, 10**8))
def test_a_job_that_was_measured_late_was_queued_until_its_recorded_start_alone(queued, unmeasured):
    """A replica without a recorded start starts at its first sample."""
    first = CREATED + queued + unmeasured
    end = first + 4_000_000
    job = Job(id="j", state=JobState.RUNNING, created=CREATED, start=CREATED + queued, first_sample=first)
    time = np.arange(first, end, 10_000)
    work = Course(time, time + 10_000, np.full(len(time), 0.9))
    record = JobView(job=job, replicas=[Replica(name="worker-0", start=first)], allocations=[])
    found = compute_phases(record, PhaseFacts(courses={"gpu.utilization": work}), end)
    sound(found)
    assert found.totals.get("queued", 0) == queued
    assert found.totals.get("unattributed", 0) + found.totals.get("start", 0) >= unmeasured


def test_a_moment_of_work_does_not_end_the_start():
    run = make(Plan(start=900.0))
    known = facts(run)
    work = known.courses["gpu.utilization"]
    value = work.value.copy()
    value[20:22] = 0.4
    courses = {**known.courses, "gpu.utilization": Course(work.time, work.until, value)}
    found = compute_phases(view(run), PhaseFacts(courses=courses, events=known.events), run.end)
    assert found.totals["start"] == pytest.approx(900_000, abs=20_000)


def test_a_replica_that_restarts_alone_while_the_devices_work_does_not_restart_the_job():
    run = make(Plan(ranks=4))
    record = view(run)
    middle = run.of("compute")[700][1]
    first, *others = record.replicas
    halves = [
        Replica(name=first.name, attempt=0, start=first.start, end=middle),
        Replica(name=first.name, attempt=1, start=middle + 30_000, end=first.end),
    ]
    found = compute_phases(JobView(job=record.job, replicas=[*halves, *others], allocations=[]), facts(run), run.end)
    assert "restart" not in found.totals
    sound(found)


def test_an_attempt_whose_end_nobody_reported_ended_with_its_last_sample():
    run = make(Plan(fails_at=700, down=400.0))
    record = view(run)
    lost = [
        Replica(name=one.name, attempt=one.attempt, start=one.start, end=one.end if one.attempt else None)
        for one in record.replicas
    ]
    found = compute_phases(JobView(job=record.job, replicas=lost, allocations=[]), facts(run), run.end)
    sound(found)
    assert found.totals["restart"] == pytest.approx(400_000, abs=20_000)
    assert [span.attempt for span in found.select(Phase.START)] == [0, 1]


def steps_of(run, saved):
    """Return the numbers of steps that the program reports; the second attempt continues from a checkpoint."""
    time, number = [], []
    for attempt, first in enumerate((0, saved)):
        own = [end for kind, _, end, of in run.pieces if kind == "communicate" and of == attempt]
        time += own
        number += [first + at + 1 for at in range(len(own))]
    return Course(np.array(time), np.array(time), np.array(number, np.float64))


@pytest.mark.parametrize("every", [1, 10, 50])
def test_steps_made_before_a_restart_are_repeated_until_new_ones_begin(every):
    run = make(Plan(fails_at=700, down=200.0))
    known, steps = facts(run), steps_of(run, saved=400)
    some = Course(steps.time[::every], steps.until[::every], steps.value[::every])
    said = PhaseFacts(courses=known.courses, events=known.events, reports=some.time, steps=some)
    found = compute_phases(view(run), said, run.end)
    sound(found)
    assert found.totals["repeat"] == pytest.approx(300 * 2_500, abs=(every + 10) * 2_500)
    assert {span.attempt for span in found.select(Phase.REPEAT)} == {1}
    assert "repeat" not in found.unknown


def test_numbers_that_start_again_with_each_epoch_do_not_show_repeated_steps():
    run = make(Plan(fails_at=700, down=200.0))
    known, steps = facts(run), steps_of(run, saved=400)
    epochs = Course(steps.time, steps.until, steps.value % 250)
    said = PhaseFacts(courses=known.courses, events=known.events, reports=epochs.time, steps=epochs)
    found = compute_phases(view(run), said, run.end)
    assert "repeat" not in found.totals
    assert "repeat" in found.unknown


def test_very_many_restarts_are_bounded():
    attempts = [Replica(name="w", attempt=at, start=at * 1000, end=at * 1000 + 500) for at in range(1200)]
    job = Job(id="j", state=JobState.SUCCEEDED, created=0, start=0, end=1_200_000)
    found = compute_phases(JobView(job=job, replicas=attempts, allocations=[]), PhaseFacts(), 1_200_000)
    sound(found)
    assert max(span.attempt for span in found.spans) == MOST_RESTARTS


@pytest.mark.parametrize(("late", "prolog"), [(20_000, 0), (200_000, 200_000)])
def test_between_an_allocation_and_the_first_sample_a_prolog_runs(late, prolog):
    """An allocating scheduler reports the start of replicas with their nodes; an agent finds them a moment later."""
    start, end = CREATED + 60_000, CREATED + 4_000_000
    time = np.arange(start + late, end, 10_000)
    work = Course(time, time + 10_000, np.where(time > start + 500_000, 0.9, 0.0))
    job = Job(id="7", state=JobState.SUCCEEDED, created=CREATED, start=start, end=end, first_sample=int(time[0]))
    record = JobView(job=job, replicas=[Replica(name="worker-0", start=start, end=end)], allocations=[])
    events = [Event(time=start, reason="Allocated")]
    found = compute_phases(record, PhaseFacts(courses={"gpu.utilization": work}, events=events), end)
    sound(found)
    assert found.totals["queued"] == 60_000
    assert found.totals.get("prepare", 0) == prolog


TEXTS = [
    (1_000, "w0", "saving checkpoint at iteration 500 to /ckpt"),
    (1_500, "w1", "saving checkpoint at iteration 500 to /ckpt"),
    (31_000, "w0", "successfully saved checkpoint from iteration 500 to /ckpt"),
    (32_000, "w1", "successfully saved checkpoint from iteration 500 to /ckpt"),
    (90_000, "w0", "Saving model checkpoint to /out/checkpoint-1000"),
    (150_000, "w0", "Saving model checkpoint to /out/checkpoint-2000"),
    (160_000, "w0", "Loading checkpoint shards"),
    (170_000, "w2", "checkpoint written"),
]


def test_lines_about_checkpoints_are_paired_by_replica():
    intervals, moments = collect_checkpoint_reports(TEXTS)
    assert intervals == [(1_000, 31_000), (1_500, 32_000)]
    assert moments == [90_000, 150_000, 170_000]


def test_what_the_log_says_of_checkpoints_is_cut_out_of_the_training():
    run = make(Plan(save_every=10_000))
    known = facts(run, tuple(name for name in NAMES if name != "disk.write"))
    at = run.of("compute")[300][1]
    said = CheckpointReports([(at, at + 7_000)])
    known = PhaseFacts(courses=known.courses, events=known.events, checkpoints=said)
    found = compute_phases(view(run), known, run.end)
    assert found.totals["checkpoint"] == 7_000
    assert "checkpoint" not in found.unknown
    sound(found)


def test_a_checkpoint_that_is_written_beside_the_work_is_no_phase():
    run = make(Plan(save_every=10_000))
    known = facts(run)
    at = run.of("compute")[300][1]
    said = CheckpointReports([(at, at + 300_000)])
    known = PhaseFacts(courses=known.courses, events=known.events, checkpoints=said)
    assert "checkpoint" not in compute_phases(view(run), known, run.end).totals


def test_a_line_about_the_schedule_of_checkpoints_begins_none():
    lines = [(0, "w0", "will save a checkpoint every 500 steps"), (1_800_000, "w0", "saved checkpoint 500")]
    assert collect_checkpoint_reports(lines) == ([], [1_800_000])


@pytest.mark.parametrize(
    "first", ["CheckpointStarted", "Checkpoint saving", "start to write checkpoint", "starting to save a checkpoint"]
)
def test_a_text_that_announces_a_checkpoint_begins_it(first):
    text = first.replace("CheckpointStarted", "Checkpoint Started")
    assert collect_checkpoint_reports([(5, "", text), (9, "", "checkpoint written")]) == ([(5, 9)], [])


@st.composite
def records(draw):
    """Draw any record with any replicas, events and samples, which may contradict each other."""
    moment = st.none() | st.integers(0, 10**6)
    states = st.sampled_from(JobState)
    replicas = [
        Replica(name=f"w{draw(st.integers(0, 2))}", attempt=attempt, start=draw(moment), end=draw(moment))
        for attempt in range(draw(st.integers(0, 5)))
    ]
    job = Job(
        id="j",
        state=draw(states),
        created=draw(moment),
        start=draw(moment),
        end=draw(moment),
        first_sample=draw(moment),
        last_sample=draw(moment),
    )
    events = [
        Event(time=draw(st.integers(0, 10**6)), reason=draw(st.sampled_from(["Scheduled", "Pulling", "Other"])))
        for _ in range(draw(st.integers(0, 3)))
    ]
    random = np.random.default_rng(draw(st.integers(0, 99)))
    courses = {}
    for metric in draw(st.sets(st.sampled_from(NAMES))):
        time = np.unique(random.integers(0, 10**6, draw(st.integers(0, 30))))
        until = np.minimum(np.append(time[1:], 10**6 + 1), time + draw(st.integers(1, 10**5)))
        courses[metric] = Course(time, until, random.choice([0.0, 0.5, 1.0, 1e9], len(time)))
    reports = np.unique(random.integers(0, 10**6, draw(st.integers(0, 5))))
    pairs = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))
    saves = draw(st.lists(pairs, max_size=3))
    return JobView(job=job, replicas=replicas, allocations=[]), PhaseFacts(
        courses=courses,
        reports=reports,
        events=events,
        checkpoints=CheckpointReports(saves, sorted(draw(st.lists(st.integers(0, 10**6), max_size=3)))),
    )


@settings(max_examples=300, deadline=None)
@given(records(), st.integers(0, 2 * 10**6))
def test_the_spans_of_any_facts_fill_the_life_of_the_job(record, now_ms):
    view_of_it, known = record
    sound(compute_phases(view_of_it, known, now_ms))
