"""Tests of hangs, idle ones and spinning collectives, by any measurements; and of jobs that only seem to hang."""

import numpy as np
import pytest
from benchmarks.faults.build import JobShape
from benchmarks.faults.generated import FAULTS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.diagnosed import THRESHOLDS, found
from tests.support.fakes import NOW
from tests.support.training import Training

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.registry import list_rules
from jobmeter.model.event import STACK_EVIDENCE, Event, Level
from jobmeter.model.finding import FindingRole, Severity
from jobmeter.model.job import JobState
from jobmeter.model.log import LogLine
from jobmeter.model.time import HOUR, MINUTE, SECOND

RULES = {rule.name: rule for rule in list_rules()}

HOST = ("cpu.usage", "network.receive", "network.transmit")
GPM = ("gpu.tensor.active", "gpu.sm.active", "gpu.nvlink.transmit")
SPINS = {
    "gpu.utilization": 1.0,
    "gpu.power": 230.0,
    "gpu.tensor.active": 0.0,
    "gpu.sm.active": 0.12,
    "gpu.nvlink.transmit": 0.0,
    "cpu.usage": 1.02,
    "network.receive": 300.0,
    "network.transmit": 300.0,
}
IDLES = {**SPINS, "gpu.utilization": 0.0, "gpu.power": 90.0, "gpu.sm.active": 0.0, "cpu.usage": 0.004}
KINDS = {
    "spins, by NVML": (SPINS, ("gpu.utilization", "gpu.power", *HOST)),
    "spins, by GPM": (SPINS, ("gpu.utilization", *GPM)),
    "spins, by all": (SPINS, ("gpu.utilization", "gpu.power", *GPM, *HOST)),
    "spins, without power": (SPINS, ("gpu.utilization", *HOST)),
    "idle devices": (IDLES, ("gpu.utilization", "gpu.power", *HOST)),
    "idle devices, CPU alone": (IDLES, ("gpu.utilization", "cpu.usage")),
    "no devices": (IDLES, HOST),
}


def hanging(job, levels, stop, *, full=False):
    """Sample a job that hangs from ``stop`` on, with occasional activity of processes.

    ``full`` keeps its devices busy.
    """

    def change(metric, _rank, time, value):
        blips = job.random.random(len(time)) < 0.01
        still = levels[metric] * (1 + 0.01 * job.random.normal(size=len(time)))
        if metric == "cpu.usage":
            still = np.where(blips, 0.4, still)
        if full and metric == "gpu.utilization":
            value = np.full(len(time), 1.5)  # cut to 1
        return np.where(time >= stop, still, value)

    job.noiseless_from, job.pauses = stop, False
    return job.sampled(change)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 4, 8, 24]),
    st.integers(2, 60),
    st.integers(13, 40),
    st.sampled_from([JobState.RUNNING, JobState.STOPPED]),
    st.booleans(),
)
@example("spins, by NVML", 1, 4, 20, 20, JobState.RUNNING, True)
def test_a_hang_is_found_with_its_beginning_and_nothing_else_is(kind, seed, ranks, interval, minutes, state, full):
    levels, metrics = KINDS[kind]
    job = Training(np.random.default_rng(seed), ranks, max(interval, ranks), 80, metrics, state)
    stop = job.start + (80 - minutes) * MINUTE
    sampled = hanging(job, levels, stop, full=full)
    findings = [one for one in sampled.findings() if one.rule != "cancelled"]
    assert [one.rule for one in findings] == ["hang_hw"]
    [one] = findings
    assert one.severity is Severity.CRITICAL
    assert abs(one.start - stop) <= max(3 * MINUTE, 4 * job.interval * SECOND)
    assert one.sentence.startswith(f"All {ranks} ranks stand still")
    assert all(piece.unit and piece.limit is not None for piece in one.evidence)
    if state is JobState.RUNNING and minutes < 19:  # an earlier start lies within the evaluated part of a running job
        assert found(sampled.findings_while_running()) == [("hang_hw", "j")]


@pytest.mark.parametrize(
    ("job_type", "command", "is_interactive"),
    [
        ("Notebook", "", True),
        ("dsw", "", True),
        ("", "jupyter lab --ip=0.0.0.0 --port 8888", True),
        ("", "/opt/conda/bin/jupyter-notebook", True),
        ("", "jupyterhub-singleuser", True),
        ("", "python3 -m ipykernel_launcher -f kernel.json", True),
        ("", "/usr/bin/python3.11 -u -m jupyterlab", True),
        ("", "ipython", True),
        ("", "code-server --auth none", True),
        ("", "/bin/bash -l", True),
        ("PyTorchJob", "python train.py", False),
        ("", "jupyter nbconvert --execute a.ipynb", False),
        ("", "jupyter-execute a.ipynb", False),
        ("", "bash train.sh", False),
        ("", "bash -c 'python train.py'", False),
        ("", "python -m notebook_trainer", False),
        ("", "python train.py --name jupyter.py", False),
        ("SideJob", "", False),
    ],
)
def test_a_job_that_waits_for_a_person_does_not_hang(job_type, command, is_interactive):
    levels, metrics = KINDS["idle devices"]
    job = Training(np.random.default_rng(1), 2, 15, 60, metrics, JobState.RUNNING)
    sampled = hanging(job, levels, NOW - 20 * MINUTE)
    view = sampled.view
    sampled.registry.add_job(replace(view.job, type=job_type, command=command), view.replicas, view.allocations)
    names = {rule for rule, _ in found(sampled.findings())}
    assert ("hang_hw" in names) is not is_interactive


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 4, 8]),
    st.integers(2, 30),
    st.floats(2.5, 8),
    st.floats(0.5, 16),
    st.sampled_from(["rests", "computes", "may be slow", "is not named", "was named before"]),
)
def test_stacks_show_a_hang_early_where_the_rank_that_others_wait_for_rests(
    kind, seed, ranks, interval, minutes, load, rank
):
    """The named rank may compute for all others, which is no hang: it compiles, or prepares data.

    It computes with one core, however many cores the replica used before.
    """
    levels, metrics = KINDS[kind]
    job = Training(np.random.default_rng(seed), ranks, interval, 40, metrics, JobState.RUNNING)
    stop = job.start + int((40 - minutes) * MINUTE)
    odd = f"worker-{job.random.integers(ranks)}"
    job.noiseless_from, job.pauses = stop, False

    def change(metric, own, time, value):
        own_level = levels[metric]
        if metric == "cpu.usage":
            value = load * value
            if f"worker-{own}" == odd:
                own_level = 0.9 if rank == "computes" else 0.001
        return np.where(time >= stop, own_level, value)

    time = stop - 3 * MINUTE if rank == "was named before" else NOW - MINUTE // 2
    named = ("",) if rank == "is not named" else ("", odd)
    level = Level.INFO if rank == "may be slow" else Level.WARNING
    event = Event(time=time, project="lab", job="j", level=Level.WARNING, reason=STACK_EVIDENCE)
    events = [replace(event, replica=one, level=level if one else event.level) for one in named]
    case = replace(job.sampled(change).case, events=events)
    hangs = [one for one in examine(case, THRESHOLDS) if one.rule == "hang_hw"]
    assert bool(hangs) == (rank == "rests" and "cpu.usage" in metrics)
    assert all(abs(one.start - stop) <= MINUTE + 3 * interval * SECOND for one in hangs)


def phases(job, name):
    """Return jobs that do less, or work without traffic, and do not hang."""
    end = job.start + job.length * MINUTE

    def change(metric, rank, time, value):
        late = time >= end - 15 * MINUTE
        if name == "loads first":
            early = time < job.start + 20 * MINUTE
            low = {"gpu.utilization": 0.2, "gpu.power": 200.0}
            if metric.startswith("network"):
                return np.where(early, value, 300.0)
            return np.where(early, low.get(metric, value), 1.0 if metric == "gpu.utilization" else value)
        if name == "evaluates on the CPU":
            return np.where(late & (metric in {"gpu.utilization", "gpu.power"}), 0.05 * value, value)
        if name == "one rank is done":
            return np.where(late & (rank == 1), 0.001 * value, value)
        if name == "saves for eight minutes":
            return np.where(time >= end - 8 * MINUTE, 0.001 * value, value)
        return np.ones(len(time)) if metric == "gpu.utilization" else value

    return job.sampled(change)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from([JobState.RUNNING, JobState.STOPPED]))
@pytest.mark.parametrize(
    "name", ["loads first", "evaluates on the CPU", "one rank is done", "saves for eight minutes", "always busy"]
)
def test_a_job_that_works_does_not_hang(name, data, state):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    metrics = data.draw(st.sampled_from([KINDS[kind][1] for kind in sorted(KINDS)]))
    job = Training(random, data.draw(st.sampled_from([2, 4, 8])), data.draw(st.integers(5, 60)), 80, metrics, state)
    job.pauses = False
    if name == "evaluates on the CPU" and "gpu.tensor.active" in metrics:
        return  # devices stop, and no metric shows CPU work
    assert "hang_hw" not in dict(found(phases(job, name).findings()))


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_was_lost_before_a_hang_is_its_cause(number, seed):
    findings = examine(FAULTS["rank_lost"][number](np.random.default_rng(seed)).case(), THRESHOLDS)
    lost = next(one for one in findings if one.rule == "rank_lost")
    hang = next(one for one in findings if one.rule == "hang_hw")
    assert (lost.role, hang.role) == (FindingRole.ROOT, FindingRole.CASCADE)
    assert findings.index(lost) < findings.index(hang)


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_was_lost_long_after_a_hang_began_is_not_its_cause(seed):
    made = FAULTS["hang_hw"][0](np.random.default_rng(seed))
    stop = made.at(0.9)
    made.series = {key: value[:stop] if key[1] == "worker-2" else value for key, value in made.series.items()}
    hang = next(one for one in examine(made.case(), THRESHOLDS) if one.rule == "hang_hw")
    assert hang.role is FindingRole.ROOT


def written(times, ranks, silent_ms, state=JobState.RUNNING):
    """Return a job whose ranks wrote lines at these ascending times (ms), the last ``silent_ms`` before its end."""
    made = FAULTS["hang_log"][0](np.random.default_rng(1), JobShape(replicas=ranks, length=3 * HOUR))
    made.state = state
    case = made.case()
    moments = case.span.end_ms - silent_ms - times[-1] + times
    lines = [
        LogLine(time_ns=int(at) * 1_000_000, text="step", job="made", replica=f"worker-{number % ranks}")
        for number, at in enumerate(moments)
    ]
    return replace(case, lines=lines)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 8, 64]),
    st.floats(0.5, 300),
    st.integers(5, 100),
    st.sampled_from(["regular", "a service that started", "few lines", "long pauses"]),
)
def test_a_running_job_that_wrote_regularly_and_is_silent_hangs(seed, ranks, seconds, minutes, kind):
    random = np.random.default_rng(seed)
    count = {"few lines": 9, "a service that started": 100, "long pauses": 40}.get(kind, 30 * 60 / seconds + 12)
    gaps = random.uniform(0.5, 1.5, int(count)) * seconds * SECOND
    if kind == "a service that started":
        gaps *= 5 * MINUTE / gaps.sum()
    if kind == "long pauses":
        gaps[-2] = 0.6 * minutes * MINUTE
    case = written(np.cumsum(gaps), ranks, minutes * MINUTE)
    found_ones = examine(case, THRESHOLDS, [RULES["hang_log"]])
    suspects = RULES["hang_log"].suspects
    assert suspects is not None
    suspected = suspects(case, THRESHOLDS["hang_log"])
    regular = kind == "regular" and (np.diff(np.cumsum(gaps)).max() <= minutes * MINUTE / 2 or len(gaps) >= 500)
    assert bool(found_ones) == (regular and minutes >= 30)
    assert (suspected is not None) == (regular and minutes >= 10 and ranks > 1)
    for one in found_ones:
        assert abs(one.end - one.start - minutes * MINUTE) <= SECOND
    failed = replace(case, view=written(np.cumsum(gaps), ranks, minutes * MINUTE, JobState.FAILED).view)
    assert bool(examine(failed, THRESHOLDS, [RULES["hang_log"]])) == (kind != "few lines" and minutes >= 30)
