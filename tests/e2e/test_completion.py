"""Completion as the shells ask for it, and in a real bash."""

import os
import shutil
import subprocess
import sys

import pytest

from jobmeter.model.time import SystemClock
from tests.frames import FRAMES, records, samples


@pytest.fixture(scope="module")
def environment(reach):
    api, token = reach
    now = SystemClock().now_ms()
    jobs = [{"job_id": f"train-{n}", "name": "resnet", "state": "Running", "created": now - n} for n in range(3)]
    cpu = ({"metric": "cpu.usage", "job": "train-1", "replica": "worker-0"}, [(now - 60_000, 1.0)])
    body = records({"jobs": jobs}) + samples([cpu])
    api.transport.request("POST", "/api/jobmeter/v1/ingest", body, {"Content-Type": FRAMES})
    return {**os.environ, "JOBMETER_SERVER": api.transport.server, "JOBMETER_KEY": token}


def offered(environment, shell, line, **more):
    """What is offered for the last word of a line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_JOBMETER_COMPLETE": f"{shell}_complete"}
    if shell == "fish":
        asked["COMP_CWORD"] = words[-1]
    done = subprocess.run(
        [sys.executable, "-m", "jobmeter"], env={**environment, **asked, **more}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def test_verbs_and_options(environment):
    assert offered(environment, "bash", "jobmeter re") == ["plain,retention", "plain,restore"]
    assert "plain,--metric" in offered(environment, "bash", "jobmeter metrics train-1 --m")


@pytest.mark.parametrize("verb", ["show", "metrics", "logs", "events", "top", "share", "delete", "compare train-0"])
def test_jobs_of_every_verb(environment, verb):
    found = offered(environment, "bash", f"jobmeter {verb} train")
    assert sorted(found) == ["plain,train-0", "plain,train-1", "plain,train-2"]


def test_names_and_last(environment):
    assert set(offered(environment, "bash", "jobmeter show res")) == {"plain,resnet"}
    assert offered(environment, "bash", "jobmeter show la") == ["plain,last"]


def test_metrics_of_the_job_else_of_the_catalogue(environment):
    assert offered(environment, "bash", "jobmeter metrics train-1 --metric ") == ["plain,cpu.usage"]
    assert "plain,gpu.power" in offered(environment, "bash", "jobmeter metrics nothing --metric gpu.p")


def test_rules_by_which_jobs_are_filtered(environment):
    assert offered(environment, "bash", "jobmeter jobs --finding gpu_idle") == ["plain,gpu_idle_allocated"]
    assert "plain,any" in offered(environment, "bash", "jobmeter jobs --finding ")
    assert "critical" in "".join(offered(environment, "bash", "jobmeter jobs --severity "))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_help_beside(environment, shell):
    assert "resnet Running" in "\n".join(offered(environment, shell, "jobmeter show train-1"))


def test_completion_is_empty_without_a_server(environment, tmp_path):
    gone = {"JOBMETER_SERVER": "http://127.0.0.1:9", "JOBMETER_DATA": str(tmp_path)}
    assert offered(environment, "bash", "jobmeter show tr", **gone) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_a_real_bash(environment, tmp_path):
    (tmp_path / "jobmeter").write_text(f'#!/bin/sh\nexec {sys.executable} -m jobmeter "$@"\n')
    (tmp_path / "jobmeter").chmod(0o755)
    script = (
        'eval "$(_JOBMETER_COMPLETE=bash_source jobmeter)"\n'
        "COMP_WORDS=(jobmeter show train-2); COMP_CWORD=2\n"
        "_jobmeter_completion jobmeter train-2 show\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**environment, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "train-2", done.stderr
