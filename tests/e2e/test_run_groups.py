"""The control groups of ``jobmeter run``, where this machine lets some be made: each run has its own, none is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.launch.groups import OwnGroups
from tests.e2e.ingest_server import ingest_server

BURN = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(30):
    if not os.fork():
        end = time.process_time() + 0.05
        while time.process_time() < end: pass
        os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass
"""


@pytest.fixture(autouse=True)
def groups_can_be_made():
    groups = OwnGroups("probe", ["worker-0"], Hierarchies())
    groups.remove()
    if groups.problem:
        pytest.skip(f"no control group can be made here: {groups.problem}")


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


def run(server, data, *words, job):
    command = [sys.executable, "-m", "jobmeter", "run", "--data", str(data), "--server", server.url, "--key", "k"]
    return subprocess.run([*command, "--job-id", job, "--", *words], capture_output=True, check=False, timeout=60)


def folders(job):
    return [path for path in Path("/sys/fs/cgroup").rglob(f"jobmeter-{job}-*") if path.is_dir()]


def test_a_child_that_outlives_its_run_does_not_change_how_the_next_is_counted(server, tmp_path):
    job = f"leak-{os.getpid()}"
    first = run(server, tmp_path, "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!", job=job)
    pid = int(first.stdout)
    try:
        assert f"still run, unmeasured: {pid}".encode() in first.stderr
        left = folders(job)
        assert left  # it holds a process, which is not ours to end
        second = run(server, tmp_path, sys.executable, "-c", BURN, job=job)
        assert b"counted by      control group" in second.stderr, second.stderr
        assert folders(job) == left
        # Each child used 0.05 s, and the group counts every one of them, waited for or not.
        assert server.values("cpu.time", job=job)[-1][1] >= 30 * 0.05
    finally:
        os.kill(pid, signal.SIGKILL)
        while (Path("/proc") / str(pid)).exists() and b"Z" not in (Path("/proc") / str(pid) / "stat").read_bytes():
            pass
    third = run(server, tmp_path, "true", job=job)
    assert third.returncode == 0
    assert folders(job) == []


def test_groups_of_a_run_that_lives_are_left_alone():
    other = OwnGroups("alive", ["worker-0"], Hierarchies())
    try:
        OwnGroups("next", ["worker-0"], Hierarchies()).remove()
        assert folders("alive")
    finally:
        other.remove()
    assert folders("alive") == []
