"""Tests of ``jobmeter run --pid``: it measures a running tree of processes until the end, and does not disturb it."""

import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.launch.exits import ProcessEnd
from jobmeter.collect.launch.plan import LaunchPlan
from jobmeter.collect.launch.records import JobRecorder, ReplicaLife
from jobmeter.model.job import JobState
from jobmeter.model.record import ReplicaRecord
from tests.e2e.ingest_server import ingest_server
from tests.support.waiting import wait_until

WORK = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
    print("begun", flush=True)
    sum(range(4 * 10**7))
    print("computed", flush=True)
    input()
    child.communicate(b"\\n")
sys.exit(int(sys.argv[1]))
"""

INTERVAL, TICK = 0.1, 1 / os.sysconf("SC_CLK_TCK")
"""Seconds between two readings of a process, and the kernel's unit of CPU time."""


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


@contextmanager
def running(status, **environment):
    """Start a process with a child, which ends with that status at the end of its input."""
    with subprocess.Popen(
        [sys.executable, "-c", WORK, str(status)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def attached(server, folder, pid, *options):
    measured = ["--pid", str(pid), "--interval", f"{INTERVAL}s", "--job-id", "att"]
    reached = ["--server", server.url, "--key", "k", "--data", str(folder)]
    with subprocess.Popen(
        [sys.executable, "-m", "jobmeter", "run", *measured, *reached, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JOBMETER_ATTEMPT": "0"},
    ) as measuring:
        try:
            wait_until(lambda: measuring.poll() is not None or server.values("process.count", job="att"), "a sample")
            yield measuring
        finally:
            measuring.kill()


def values(server, metric):
    return [value for _, value in server.values(metric, job="att", replica="worker-0")]


def cpu_seconds(process):
    """Return the current CPU time of a process and its child from the kernel."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in (process.pid, *children)]
    return sum(int(one[11]) + int(one[12]) for one in stats) * TICK


def end_of(measuring):
    _, text = measuring.communicate(timeout=60)
    return measuring.returncode, text


@pytest.mark.parametrize(("status", "state"), [(0, "Succeeded"), (3, "Failed")])
def test_a_tree_is_measured_until_it_ends_with_the_status_that_it_ended_with(server, tmp_path, status, state):
    with running(status) as process, attached(server, tmp_path, process.pid, "--name", "late") as measuring:
        wait_until(lambda: 2.0 in values(server, "process.count"), "both processes")
        assert process.stdout.readline() == "computed\n"
        computed = cpu_seconds(process)
        wait_until(lambda: max(values(server, "cpu.time"), default=0.0) >= computed - TICK, "all that was computed")
        process.stdin.write("\n")
        process.stdin.close()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = status
        code, text = end_of(measuring)
    assert code == status, text
    assert f"att  {state} (exit status {status})" in text
    first, last = server.jobs[0], server.jobs[-1]
    assert first.get("state") is None, "nothing is claimed while it runs"
    assert (last["state"], last["exit_code"], last["name"]) == (state, status, "late")
    assert last["start"] < min(sample.time_ms for sample in server.samples), "it began before it was measured"
    assert last["replicas"][0]["state"] == state
    assert [event["reason"] for event in server.events][:1] == ["Attached"]
    spent = used.ru_utime + used.ru_stime
    assert max(values(server, "cpu.time")) <= spent + TICK


def test_an_interrupt_leaves_it_as_it_is(server, tmp_path):
    with running(0) as process:
        with attached(server, tmp_path, process.pid) as measuring:
            measuring.send_signal(signal.SIGINT)
            code, text = end_of(measuring)
        assert (code, "att  Running (detached, it continues)" in text) == (0, True), text
        assert process.poll() is None
        assert [event["reason"] for event in server.events] == ["Attached", "Detached"]
        assert all(job.get("state") is None and job.get("end") is None for job in server.jobs)
        process.stdin.close()


def test_one_that_a_signal_ends(server, tmp_path):
    with running(0) as process, attached(server, tmp_path, process.pid) as measuring:
        process.terminate()
        process.wait()
        code, text = end_of(measuring)
    assert code == 143, text
    assert (server.jobs[-1]["state"], server.jobs[-1]["exit_code"]) == ("Failed", 143)


def refused(*options, **environment):
    command = [sys.executable, "-m", "jobmeter", "run", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 2
    return done.stderr


def test_what_cannot_be_attached_to_is_refused(tmp_path):
    data = ("--data", str(tmp_path))
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert f"process {ended.pid} cannot be attached to" in refused("--pid", str(ended.pid), *data)
    assert "cannot be used with COMMAND" in refused("--pid", "1", *data, "true")
    assert "cannot be used with COMMAND" in refused("--pid", "1", *data, "--replicas", "2")
    assert "Missing argument" in refused(*data)
    with running(0, JOBMETER_JOB_ID="j7", JOBMETER_MEASURED="run") as process:
        assert "belongs to job j7, which `jobmeter run` already measures" in refused("--pid", str(process.pid), *data)


class Reaped(ProcessEnd):
    """Process that its parent has reaped, on a kernel that hides the status from other processes."""

    def _read_zombie_status(self):
        return None

    def _read_reaped_status(self):
        return None


@pytest.mark.parametrize(("kind", "status"), [(ProcessEnd, 5), (Reaped, None)])
def test_the_exit_status_is_reported_where_the_kernel_has_it(kind, status):
    with subprocess.Popen([sys.executable, "-c", "input(); raise SystemExit(5)"], stdin=subprocess.PIPE) as process:
        end = kind(process.pid)
        process.communicate(b"\n")
        select.select([end.descriptor], [], [])
        exit_status = end.read_status()
        end.close()
    # The parent has reaped it: before Linux 6.15 no other process can read the status.
    assert exit_status == status or (exit_status is None and kernel() < (6, 15))


def kernel():
    major, minor, *_ = os.uname().release.split(".")
    return int(major), int(minor)


def test_a_job_without_a_reported_end_is_unknown():
    plan = LaunchPlan(job="j", name="n", kind="", command=["x"], user="u")
    life = ReplicaLife("worker-0", 0, 1_000, end=5_000)
    records = JobRecorder(plan, NodeIdentity("node"), {}, 1_000).end_unknown(life, 5_000)
    (job,) = records.jobs
    assert (job.state, job.exit_code, job.end) == (JobState.UNKNOWN, None, 5_000)
    (replica,) = job.replicas
    assert isinstance(replica, ReplicaRecord)
    assert (replica.state, replica.end) == (JobState.UNKNOWN, 5_000)
    assert records.events[0].reason == "Ended"
