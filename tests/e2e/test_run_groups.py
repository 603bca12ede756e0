"""Tests of the cgroups of ``jobmeter run`` on a machine that allows them: each run has its own, and removes it."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.launch.children import OwnGroups
from tests.e2e.ingest_server import ingest_server
from tests.support.waiting import wait_until

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


AWAY = """
import os, sys, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass

def move():
    for entry in sys.argv[2:]:
        with open(entry, "w") as file: file.write(str(os.getpid()))

def itself():
    burn(0.4)
    move()
    burn(0.8)

def child():
    if os.fork() == 0:
        move()
        burn(1.2)
        os._exit(0)
    os.wait()

def container():
    # As podman does it: a monitor that nobody waits for has the container's first process as its child.
    burn(0.4)  # the run has taken its early samples: with a long interval no scan finds the monitor
    ended, open_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            move()
            if os.fork() == 0:
                burn(0.8)
                os._exit(0)
            os.wait()
        os._exit(0)
    os.wait()
    os.close(open_end)
    os.read(ended, 1)

{"itself": itself, "child": child, "container": container}[sys.argv[1]]()
"""
"""Program that uses 1.2 s of CPU time, mostly in other cgroups, whose files are the arguments."""
SERVICE = """
import time, sys
while time.process_time() < 1.2: pass
sys.stdin.read()
"""

MIB = 2**20
CACHE = """
import os, sys
from jobmeter.collect.cgroup.paths import Hierarchies, read_groups
with open(sys.argv[1], "wb") as file:
    for _ in range(300):
        file.write(bytes(1 << 20))
used = b"x" * (150 << 20)
del used
for controller, path in read_groups("/proc", os.getpid()).items():
    folder = Hierarchies().find_directory(controller, path)
    for name in ("memory.peak", "memory.max_usage_in_bytes") if controller in {"", "memory"} else ():
        try:
            print(open(f"{folder}/{name}").read())
        except OSError:
            continue
"""
"""Program that writes 300 MiB to a file, holds 150 MiB for a moment, and prints the kernel's peak."""


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


def command(server, data, *words, job, interval="1s"):
    own = [sys.executable, "-m", "jobmeter", "run", "--data", str(data), "--server", server.url, "--key", "k"]
    return [*own, "--job-id", job, "--interval", interval, "--", *words]


def run(server, data, *words, job, interval="1s"):
    line = command(server, data, *words, job=job, interval=interval)
    return subprocess.run(line, capture_output=True, check=False, timeout=60)


@pytest.fixture
def elsewhere():
    """Yield the files by which a process enters other cgroups, in every hierarchy with cgroups of a run."""
    groups = OwnGroups(f"elsewhere-{os.getpid()}", ["worker-0"], Hierarchies())
    yield groups.list_entries("worker-0")
    groups.remove()


def folders(job):
    return [path for path in Path("/sys/fs/cgroup").rglob(f"jobmeter-{job}-*") if path.is_dir()]


def test_a_child_that_outlives_its_run_does_not_change_how_the_next_is_counted(server, tmp_path):
    job = f"leak-{os.getpid()}"
    first = run(server, tmp_path, "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!", job=job)
    pid = int(first.stdout)
    try:
        assert f"still running, unmeasured: {pid}".encode() in first.stderr
        left = folders(job)
        assert left  # it contains a foreign process, which the run must not end
        second = run(server, tmp_path, sys.executable, "-c", BURN, job=job)
        assert b"counted by      control group" in second.stderr, second.stderr
        assert folders(job) == left
        # Each child used 0.05 s, and the cgroup counts all of them, waited for or not.
        assert server.values("cpu.time", job=job)[-1][1] >= 30 * 0.05
    finally:
        os.kill(pid, signal.SIGKILL)
        while (Path("/proc") / str(pid)).exists() and b"Z" not in (Path("/proc") / str(pid) / "stat").read_bytes():
            pass
    third = run(server, tmp_path, "true", job=job)
    assert third.returncode == 0
    assert folders(job) == []


@pytest.mark.parametrize("interval", ["100ms", "1s", "30s"])
@pytest.mark.parametrize("way", ["itself", "child", "container"])
def test_what_leaves_the_groups_of_a_run_counts_once(server, tmp_path, elsewhere, way, interval):
    job = f"{way}-{interval}-{os.getpid()}"
    done = run(server, tmp_path, sys.executable, "-c", AWAY, way, *elsewhere, job=job, interval=interval)
    assert (done.returncode, b"counted by      control group" in done.stderr) == (0, True), done.stderr
    used = server.values("cpu.time", job=job)[-1][1]
    # The start of the interpreter adds some time, and a clock tick may be missing.
    assert 1.15 < used < 1.2 + 0.35, used


def test_what_another_program_starts_for_a_run_is_found_by_its_tags(server, tmp_path):
    job = f"service-{os.getpid()}"
    tags = {"JOBMETER_JOB_ID": job, "JOBMETER_REPLICA": "worker-0", "JOBMETER_MEASURED": "run"}
    line = command(server, tmp_path, "sh", "-c", "echo began; read end", job=job)
    others = [("0", {"user": 65534}), ("1", {})] if os.geteuid() == 0 else [("1", {})]
    with ExitStack() as stack:
        popen: Any = partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running = stack.enter_context(popen(line, stderr=subprocess.DEVNULL))
        stack.callback(running.communicate, b"\n")
        assert running.stdout.readline() == b"began\n"
        for attempt, user in others:
            other = stack.enter_context(popen(["cat"], env={**tags, "JOBMETER_ATTEMPT": attempt}, cwd="/", **user))
            stack.callback(other.communicate)
        own = stack.enter_context(
            popen([sys.executable, "-c", SERVICE], env={**os.environ, **tags, "JOBMETER_ATTEMPT": "0"})
        )
        stack.callback(own.communicate)
        wait_until(lambda: last(server, job) > 1.15)
    assert max(count for _, count in server.values("process.count", job=job)) == 2, "no other run's, no other user's"


@pytest.mark.parametrize("caller", [0, 400 * MIB])
@pytest.mark.parametrize("interval", ["100ms", "30s"])
def test_the_peak_of_memory_leaves_out_the_file_cache_and_the_caller(server, tmp_path, interval, caller):
    job = f"cache-{interval}-{caller}-{os.getpid()}"
    line = (sys.executable, "-c", CACHE, str(tmp_path / "written"))
    held = b"x" * caller  # The kernel counts the caller's memory as a peak of each started program.
    done = run(server, tmp_path / "data", *line, job=job, interval=interval)
    del held
    assert done.returncode == 0, done.stderr
    mark = max(map(int, done.stdout.split()), default=0)
    if mark < 400 * MIB:
        pytest.skip(f"the kernel charges the job for no file cache here: {mark} bytes")
    peak = server.values("memory.peak", job=job)[-1][1]
    assert 150 * MIB < peak < 250 * MIB
    assert max(value for _, value in server.values("memory.usage", job=job)) <= peak


def last(server, job):
    """Return the server's last CPU time of a job, 0 without any."""
    values = server.values("cpu.time", job=job)
    return values[-1][1] if values else 0.0


def test_groups_of_a_run_that_lives_are_left_alone():
    other = OwnGroups("alive", ["worker-0"], Hierarchies())
    try:
        OwnGroups("next", ["worker-0"], Hierarchies()).remove()
        assert folders("alive")
    finally:
        other.remove()
    assert folders("alive") == []
