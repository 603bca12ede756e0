"""Tests of jobs of four ranks that hang because of one: stack collection by request or rule, and the named rank."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from jobmeter.examples.server import run_server
from tests.e2e.conftest import start
from tests.support import ranks
from tests.support.waiting import wait_until

BAD = 2
WHERE = {
    "sleep": r"it sleeps in `sleeps` \(ranks.py:\d+\)",
    "locks": r"it waits for a lock in `locks` \(ranks.py:\d+\)",
    "pipe": r"it waits for the other end of a pipe in `reads_pipe` \(ranks.py:\d+\)",
    "stop": r"is stopped by a signal or a debugger in `stops` \(ranks.py:\d+\)",
    "die": "is gone: SIGKILL ended it",
}
THRESHOLDS = """
[common]
minute = "250ms"

[running]
window = "400m"
hold = "400m"

[hang_hw]
work_cpu = 0.01
cores = 0.002
"""
"""Thresholds that reduce ten minutes of a hang to 2.5 seconds. On a busy machine the ranks get little CPU time."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    rules = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules.write_text(THRESHOLDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBMETER_RULES", str(rules))
        with run_server() as made:
            yield made


@contextmanager
def job_with(server, folder: Path, fault: str, steps: int):
    """Run a job of four ranks until one of them fails; yield its id."""
    job, port_file = f"ranks-{fault}-{steps}", folder / "port"
    command = [sys.executable, ranks.__file__, str(port_file), fault, str(BAD), str(steps)]
    run = subprocess.Popen(
        [sys.executable, "-m", "jobmeter", "run", "--job-id", job, "--replicas", "4", "--quiet", "--", *command],
        env={**os.environ, **server.environment},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(port_file.with_suffix(".fault").exists)
        yield job
    finally:
        for pid in children(run.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.wait(timeout=60)


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def diagnose(server, *options):
    done = start("diagnose", *options, **server.environment)
    assert done.status == 0, done.err
    return done.out


def compared(server, job, fault):
    """Return the finished comparison after the ranks have reached their final place; None before that."""
    task = json.loads(diagnose(server, job, "--stacks", "--json"))
    return task if re.search(WHERE[fault], task["message"]) else None


@pytest.mark.parametrize("fault", WHERE)
def test_the_rank_that_others_wait_for_is_named_on_request(server, tmp_path, fault):
    with job_with(server, tmp_path, fault, 5) as job:
        task = wait_until(lambda: compared(server, job, fault))
        named, waiting = task["message"].splitlines()[0].split("; ", 1)
        assert named.startswith(f"worker-{BAD} (")
        assert re.search(WHERE[fault], named)
        assert set(re.findall(r"worker-\d", waiting)) == {f"worker-{rank}" for rank in range(4) if rank != BAD}
        assert "wait in `all_reduce`" in waiting
        assert task["verdict"] == "fault"
        shown = diagnose(server, "--task", task["id"])
        assert shown.startswith(named[:20])
        assert f"all_reduce ({ranks.__file__}:" in shown


def test_a_hang_has_its_evidence_collected_by_itself(server, tmp_path):
    """The rule finds the hang, collects the stacks once, and the finding names the rank."""
    with job_with(server, tmp_path, "sleep", 150) as job:

        def explained():
            findings = json.loads(diagnose(server, job, "--json"))
            return [one for one in findings if one["rule"] == "hang_hw" and "`sleeps`" in one["sentence"]]

        [finding] = wait_until(explained)
        assert finding["sentence"].startswith(f"worker-{BAD} (")
        assert "worker-0, worker-1, worker-3 wait in `all_reduce`" in finding["sentence"]
        tasks = [task for task in server.api.list_tasks(100) if task.job == job]
        assert [str(task.type) for task in tasks] == ["stacks"], "the evidence is collected once"
        events = json.loads(start("events", job, "--json", **server.environment).out)
        assert {event["replica"] for event in events if event["reason"] == "StackEvidence"} == {"", f"worker-{BAD}"}


@contextmanager
def measured_by_agent(server, folder: Path):
    """Run a program that starts three ranks without a launcher, on a node with an agent; yield the job's id."""
    job, port_file = "ranks-of-an-agent", folder / "port"
    url, key = server.environment["JOBMETER_SERVER"], server.environment["JOBMETER_KEY"]
    agent = [sys.executable, "-m", "jobmeter", "agent", "--server", url, "--key", key, "--interval", "1s"]
    agent += ["--spool", str(folder / "spool"), "--node", "node-of-ranks", "--no-kernel-log", "--no-journal"]
    command = [sys.executable, ranks.__file__, str(port_file), "sleep", "1", "5"]
    tags = {"JOBMETER_JOB_ID": job, "WORLD_SIZE": "3"}
    started = [
        subprocess.Popen(command, env={**os.environ, **tags, "JOBMETER_REPLICA": f"worker-{at}", "RANK": str(at)})
        for at in range(3)
    ]
    started.append(subprocess.Popen(agent, env={**os.environ, **server.environment}, stderr=subprocess.DEVNULL))
    try:
        wait_until(port_file.with_suffix(".fault").exists)
        wait_until(lambda: is_known(server, job))
        yield job
    finally:
        for process in started:
            process.kill()
            process.wait()


def is_known(server, job):
    shown = start("show", job, "--json", **server.environment)
    return shown.status == 0 and len(json.loads(shown.out)["replicas"]) == 3


def test_an_agent_collects_for_the_jobs_that_it_measures(server, tmp_path):
    with measured_by_agent(server, tmp_path) as job:

        def message():
            task = json.loads(diagnose(server, job, "--stacks", "--json"))
            return task["message"] if re.search(WHERE["sleep"], task["message"]) else ""

        found = wait_until(message)
        assert found.startswith("worker-1 (node-of-ranks, pid ")
        assert "worker-0, worker-2 wait in `all_reduce`" in found
        for target in ((job,), ("--node", "node-of-ranks")):
            task = json.loads(diagnose(server, *target, "--processes", "--json"))
            [answer] = task["answers"]
            used = [use for check in answer["checks"] for use in check.get("processes", ())]
            of_job = {(use["replica"], use.get("rank")) for use in used if use.get("job") == job}
            assert of_job == {(f"worker-{at}", at) for at in range(3)} or target != (job,)
            assert used
            assert all(use["name"] for use in used)
