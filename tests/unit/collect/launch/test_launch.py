"""Tests of the parts of a run that need no process: names, environments, records, the summary's figures."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.launch.figures import Figure, RunFigures, StepFigures, collect_traffic
from jobmeter.collect.launch.plan import LaunchPlan, make_environments, make_job_id, name_job
from jobmeter.collect.launch.records import JobRecorder, ReplicaLife, exit_status
from jobmeter.model.job import JobState
from jobmeter.model.record import check_event, check_record, list_replicas
from jobmeter.model.sample import Sample
from jobmeter.model.series import check_job_id
from jobmeter.model.time import SystemClock

PLACE = NodeIdentity("n1", "c1", "p1")


def plan(replicas=1, **more):
    return LaunchPlan(
        job="j", name="n", kind="PyTorchJob", command=("python", "t.py"), user="ann", replicas=replicas, **more
    )


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "train.py", "--lr", "1"], "train"),
        (["/usr/bin/python3.11", "/a/b/train.py"], "train"),
        (["python", "-m", "pkg.train"], "pkg.train"),
        (["python", "-c", "print(1)"], "python"),
        (["python"], "python"),
        (["python", "-m"], "python"),
        (["torchrun", "--nproc-per-node", "2", "x.py"], "torchrun"),
        (["./run.sh"], "run.sh"),
        (["bash", "run.sh"], "run"),
        (["/bin/ls", "-l"], "ls"),
        (["..."], "job"),
        (["täst x"], "t-st-x"),
    ],
)
def test_a_job_is_named_after_its_script(words, name):
    assert name_job(words) == name


@pytest.mark.parametrize("name", ["train", "a b/c'd", "", "..", "ü" * 300, "x" * 500])
def test_an_id_is_unique_readable_and_legal(name):
    ids = {make_job_id(name, SystemClock()) for _ in range(500)}
    assert len(ids) == 500
    for one in ids:
        assert check_job_id(one)
        assert re.fullmatch(r"[A-Za-z0-9._-]+-\d{8}-[a-z0-9]{6}", one)


def test_the_environment_of_replicas():
    first, second = make_environments(plan(2, attempt=3), {"A": "b", "RANK": "9"})
    assert (first["RANK"], second["RANK"], second["LOCAL_RANK"], second["WORLD_SIZE"]) == ("0", "1", "1", "2")
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert (first["A"], first["JOBMETER_ATTEMPT"], second["JOBMETER_REPLICA"]) == ("b", "3", "worker-1")
    (alone,) = make_environments(plan(), {"RANK": "9"})
    assert alone["RANK"] == "9"
    assert "WORLD_SIZE" not in alone


def test_a_measured_command_does_not_get_our_credentials():
    base = {
        "JOBMETER_KEY": "jm_secret",
        "JOBMETER_OPENTSDB_KEY": "jm_secret",
        "JOBMETER_REGISTRY": "postgresql://u:secret@h/db",
        "JOBMETER_STORE": "clickhouse://u:secret@h/db",
        "JOBMETER_SERVER": "http://h:8400",
        "HOME": "/root",
    }
    plan = LaunchPlan(job="j", name="j", kind="", command=["x"], user="lin", replicas=2)
    for found in make_environments(plan, base):
        assert "secret" not in repr(found)
        assert (found["JOBMETER_SERVER"], found["HOME"]) == ("http://h:8400", "/root")
    for found in make_environments(replace(plan, pass_key=True), base):
        assert [name for name, value in found.items() if "secret" in value] == ["JOBMETER_KEY"]


def test_records_of_a_run():
    recorder = JobRecorder(plan(2), PLACE, {"cpu.limit": 2.0}, 1000)
    lives = [ReplicaLife("worker-0", 0, 1000), ReplicaLife("worker-1", 1, 1000)]
    assert recorder.record_start(lives).events == []
    (start,) = recorder.record_start(lives).jobs
    check_record(start)
    assert (start.state, start.start, start.created, start.end, start.project) == (
        JobState.RUNNING,
        1000,
        1000,
        None,
        "p1",
    )
    assert [r.state for r in list_replicas(start)] == [JobState.RUNNING] * 2
    lives[0].end, lives[0].exit_code = 3000, 0
    lives[1].end, lives[1].exit_code, lives[1].reason = 2500, 137, "out of memory"
    (end,) = recorder.record_end(lives, 3001, stopped=False).jobs
    check_record(end)
    assert (end.state, end.exit_code, end.end, end.error) == (JobState.FAILED, 137, 3001, "worker-1: out of memory")
    assert [(r.state, r.end, r.exit_code) for r in list_replicas(end)] == [
        (JobState.SUCCEEDED, 3000, 0),
        (JobState.FAILED, 2500, 137),
    ]


@pytest.mark.parametrize(
    ("code", "stopped", "state"),
    [
        (0, False, JobState.SUCCEEDED),
        (0, True, JobState.SUCCEEDED),
        (143, True, JobState.STOPPED),
        (143, False, JobState.FAILED),
    ],
)
def test_a_job_is_stopped_when_a_signal_of_ours_ended_it(code, stopped, state):
    recorder = JobRecorder(plan(), PLACE, {}, 0)
    (job,) = recorder.record_end([ReplicaLife("worker-0", 0, 0, 1, code)], 1, stopped=stopped).jobs
    assert job.state is state


def test_a_replica_that_did_not_end_well_has_an_event():
    recorder = JobRecorder(plan(5, attempt=2), PLACE, {}, 0)
    lives = [
        ReplicaLife("worker-0", 0, 0, 5, 0),
        ReplicaLife("worker-1", 1, 0, 6, 3),
        ReplicaLife("worker-2", 2, 0, 7, 143),
        ReplicaLife("worker-3", 3, 0, 8, 137, "out of memory (OOMKilled)"),
        ReplicaLife("worker-4", 4, 0, 9, 250),
    ]
    events = [check_event(event) for event in recorder.record_end(lives, 10, stopped=False).events]
    assert [(event.replica, event.time, event.reason) for event in events] == [
        ("worker-1", 6, "Exited"),
        ("worker-2", 7, "Killed"),
        ("worker-3", 8, "OOMKilled"),
        ("worker-4", 9, "Exited"),
    ]
    assert "status 3" in events[0].message
    assert "SIGTERM" in events[1].message
    assert "out of memory" in events[2].message
    assert {(event.job, event.attempt, event.node, event.cluster, event.project) for event in events} == {
        ("j", 2, "n1", "c1", "p1")
    }
    assert {str(event.level) for event in events} == {"error"}
    assert {str(event.level) for event in recorder.record_end(lives, 10, stopped=True).events} == {"warning"}
    started = recorder.record_start(lives).events
    assert [(event.replica, event.reason, str(event.level)) for event in started][:2] == [
        ("worker-0", "Restarted", "warning"), ("worker-1", "Restarted", "warning"),
    ]  # fmt: skip


def test_the_first_failure_in_time_decides():
    lives = [ReplicaLife("a", 0, 0, 30, 3), ReplicaLife("b", 1, 0, 20, 2), ReplicaLife("c", 2, 0, 10, 0)]
    assert exit_status(lives) == 2
    assert exit_status(lives[2:]) == 0


def replica(metric, rank, time_ms, value):
    return Sample(PLACE.make_replica_series(metric, Owner("j", f"worker-{rank}")), time_ms, value)


def test_the_figures_of_a_summary():
    figures = RunFigures()
    for rank in (0, 1):
        figures.begin(PLACE.make_replica_series("cpu.time", Owner("j", f"worker-{rank}")), 0)
    figures.watch([replica("cpu.time", r, 1000, 0.5) for r in (0, 1)] + [replica("memory.usage", 0, 1000, 10.0)])
    figures.watch([replica("cpu.time", r, 3000, 2.5) for r in (0, 1)] + [replica("memory.usage", 0, 3000, 40.0)])
    figures.watch([replica("cpu.time", r, 3010, 2.51) for r in (0, 1)] + [replica("memory.peak", 0, 3010, 99.0)])
    cpu = figures.by_name["cpu"]
    assert cpu.points == [1.0, 2.0]
    assert (cpu.peak, round(cpu.mean, 3)) == (2.0, round(5 / 3, 3))
    assert figures.sum_growth("cpu.time") == pytest.approx(5.02)
    assert figures.by_name["memory"].peak == 40
    assert figures.memory_peak == 99


def test_the_traffic_of_the_machine_is_read_only_with_samples():
    sample = Sample(PLACE.make_node_series("node.network.receive"), 7_000, 1.0)
    assert collect_traffic([sample], lambda time_ms: [sample._replace(time_ms=time_ms)]) == [sample]
    assert collect_traffic([], lambda _: [sample]) == []


def test_a_counter_counts_from_its_first_sample_unless_its_start_is_recorded():
    figures = RunFigures()
    for time_ms, value in ((0, 1000.0), (1000, 1500.0)):
        figures.watch([Sample(PLACE.make_node_series("node.network.receive"), time_ms, value)])
    assert figures.sum_growth("node.network.receive") == 500
    assert figures.by_name["node.network.receive"].peak == 500


def test_a_mean_is_that_of_the_steps_of_the_servers_summary():
    """Denser sampling at the end and long-held values get no extra weight; pandas computes the same mean."""
    moments = [0, 900, 1900, 2000, 2100, 2200, *range(3000, 28_000, 1000), 27_500, 27_900]
    samples = [
        replica("memory.usage", rank, time_ms, float(time_ms % 7000 + 100 * rank))
        for time_ms in moments
        for rank in ((0, 1) if time_ms > 1000 else (0,))
    ]
    figures = RunFigures()
    for time_ms in moments:
        figures.watch([one for one in samples if one.time_ms == time_ms])
    frame = pd.DataFrame(
        [(one.series.replica, one.time_ms // 1000, one.value) for one in samples], columns=["who", "step", "value"]
    )
    expected = frame.groupby(["step", "who"])["value"].mean().groupby("step").sum().mean()
    assert figures.by_name["memory"].mean == pytest.approx(expected)


def test_the_points_stay_few_however_long_the_job_runs():
    figure = Figure()
    for number in range(20_000):
        figure.add(float(number))
    assert len(figure.points) <= 512
    assert figure.points == sorted(figure.points)
    assert figure.peak == 19_999
    assert figure.mean == pytest.approx(9999.5)


def test_the_peak_of_a_rate_is_that_of_a_step_of_the_servers_summary():
    figures = RunFigures()
    for time_ms, value in ((0, 0.0), (100, 0.3), (1000, 0.75), (1999, 1.5), (2100, 1.8)):
        figures.watch([replica("cpu.time", 0, time_ms, value)])
    assert figures.by_name["cpu"].peak == pytest.approx(0.3 / 0.1)
    for second in range(3, 90):
        figures.watch([replica("cpu.time", 0, second * 1000, 1.8 + second * 0.1)])
    assert figures.by_name["cpu"].peak < 0.6, "of five seconds, since there are more than sixty of one"


def test_the_steps_of_a_rate_stay_few_however_long_the_job_runs():
    steps = StepFigures()
    for minute in range(100_000):
        steps.add(minute * 60_000, 30.0, 60.0)
    assert steps.highest == pytest.approx(0.5)
    steps.add(99_999 * 60_000, 60.0, 0.0)
    assert steps.highest < 0.501, "a step is more than a day long, so that a minute hardly counts"
