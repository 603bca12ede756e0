"""Tests of the diagnosis of real jobs with a known fault on a real server, by findings and events."""

import json
import os
import re
import subprocess
import sys
from functools import partial

import pytest
from benchmarks.faults.real import SCRIPTS, THRESHOLDS, run
from benchmarks.faults.surroundings import small_disk

from jobmeter.client.transport import API
from jobmeter.errors import NotFoundError
from jobmeter.examples.server import run_server
from jobmeter.model.finding import FindingRole
from tests.e2e.conftest import start
from tests.support.waiting import wait_until

QUICK = ("exception", "exit 3", "SIGSEGV", "a rank dies first", "memory limit of a group", "clean: short")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    rules = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules.write_text(THRESHOLDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBMETER_RULES", str(rules))
        with run_server() as made:
            yield made


def check(script, server):
    findings = run(script, server, {**os.environ, **server.environment})
    if findings is None:
        pytest.skip("no such control group can be made here")
    # If other tests leave no CPU to the agent, its samples have a gap, and the finding about it is right.
    roots = {one.rule for one in findings if one.role is FindingRole.ROOT} - {"agent_gap"}
    assert roots == ({script.rule} if script.rule else set()), findings


@pytest.mark.parametrize("script", [one for one in SCRIPTS if one.name in QUICK], ids=lambda one: one.name)
def test_a_fault_is_named(script, server):
    check(script, server)


@pytest.mark.slow
@pytest.mark.parametrize("script", [one for one in SCRIPTS if one.name not in QUICK], ids=lambda one: one.name)
def test_a_fault_that_takes_time_is_named(script, server):
    check(script, server)


def test_the_command_line_reports_it_and_the_server_stores_it(server):
    environment = dict(server.environment)
    start("run", "--job-id", "told", "--quiet", "--", "sh", "-c", "echo gone wrong >&2; exit 9", **environment)
    [one] = json.loads(start("diagnose", "told", "--json", **environment).out)
    assert one["rule"] == "unknown_exit"
    shown = start("show", "told", **environment).out
    assert re.search(r"critical worker-0 .*exited with status 9.*\(unknown_exit, root, ", shown)
    assert start("diagnose", "nobody", **environment).status == 1


def _is_measured(server, job):
    try:
        answer = server.api.transport.request("GET", f"{API}/jobs/{job}/metrics/names")
    except NotFoundError:
        return False
    return b"storage.processes" in answer.body


def test_a_filesystem_that_another_program_filled_concerns_only_who_works_in_it(server, tmp_path):
    environment = {**os.environ, **server.environment}
    go_on = tmp_path / "go-on"
    go_on.touch()
    with small_disk(32) as disk:
        if disk is None:
            pytest.skip("no filesystem can be made and mounted here")
        space = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes(space.f_bavail * space.f_frsize - 100_000))
        script = f"while [ -e {go_on} ]; do sleep 0.2; done"
        running = {}
        try:
            for job, place in (("elsewhere", tmp_path), ("inside", disk)):
                command = [sys.executable, "-m", "jobmeter", "run", "--job-id", job, "--quiet", "--interval", "200ms"]
                running[job] = subprocess.Popen([*command, "--", "sh", "-c", script], cwd=place, env=environment)
            for job in running:
                wait_until(partial(_is_measured, server, job), f"the working directory of job {job}")
            spool = tmp_path / "spool"
            once = [sys.executable, "-m", "jobmeter", "agent", "--once", "--spool", str(spool)]
            subprocess.run(once, env=environment, check=True, capture_output=True)
        finally:
            go_on.unlink()
            assert [process.wait(60) for process in running.values()] == [0] * len(running)
        found = {job: [one.subject.name for one in server.api.list_findings(job)] for job in running}
        concerned = {job: [name for name in names if name.endswith(f":{disk}")] for job, names in found.items()}
        assert [len(concerned[job]) for job in ("elsewhere", "inside")] == [0, 1], found
