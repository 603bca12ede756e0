"""Tests of shell completion, by the protocol of the shells and in a real bash."""

import os
import shutil
import subprocess
import sys

import pytest

from jobmeter.model.time import SystemClock
from tests.support.frames import FRAMES, records, samples
from tests.support.needs import needing


@pytest.fixture(scope="module")
def environment(reach):
    api, token = reach
    now = SystemClock().now_ms()
    about = {"name": "resnet", "state": "Running", "user": "lin", "resource_group": "h200"}
    jobs = [{"job_id": f"train-{n}", "created": now - n, **about} for n in range(3)]
    cpu = [
        ({"metric": "cpu.usage", "job": "train-1", "replica": f"worker-{n}", "node": "node-7"}, [(now - 60_000, 1.0)])
        for n in (0, 2, 10)
    ]
    gpu = {"metric": "gpu.power", "job": "train-2", "replica": "worker-0", "node": "node-7", "device": "gpu3"}
    body = records({"jobs": jobs, "nodes": [{"name": "node-7", "resource_group": "a100"}]})
    body += samples([*cpu, (gpu, [(now - 60_000, 1.0)])])
    api.transport.request("POST", "/api/jobmeter/v1/ingest", body, {"Content-Type": FRAMES})
    return {**os.environ, "JOBMETER_SERVER": api.transport.server, "JOBMETER_KEY": token}


def offered(environment, shell, line, **more):
    """Return the completions of the last word of a line."""
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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("jobs --user l", ["lin"]),
        ("jobs --node node", ["node-7"]),
        ("jobs --group ", ["a100", "h200"]),
        ("nodes --group h", ["h200"]),
        ("jobs --project ", ["default"]),
        ("metrics train-1 --replica ", ["worker-0", "worker-2", "worker-10"]),
        ("logs train-1 --replica worker-1", ["worker-10"]),
        ("events train-1 --replica x", []),
        ("metrics train-2 --device ", ["gpu3"]),
        ("metrics --device ", []),
    ],
)
def test_users_nodes_groups_projects_replicas_and_devices(environment, line, expected):
    assert offered(environment, "bash", f"jobmeter {line}") == [f"plain,{name}" for name in expected]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_help_beside(environment, shell):
    assert "resnet Running" in "\n".join(offered(environment, shell, "jobmeter show train-1"))


def test_completion_is_empty_without_a_server(environment, tmp_path):
    gone = {"JOBMETER_SERVER": "http://127.0.0.1:9", "JOBMETER_DATA": str(tmp_path)}
    assert offered(environment, "bash", "jobmeter show tr", **gone) == []


@pytest.fixture
def on_path(environment, tmp_path):
    """Return an environment in which ``jobmeter`` is on the path."""
    (tmp_path / "jobmeter").write_text(f'#!/bin/sh\nexec {sys.executable} -m jobmeter "$@"\n')
    (tmp_path / "jobmeter").chmod(0o755)
    return {**environment, "PATH": f"{tmp_path}{os.pathsep}{environment['PATH']}"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_a_real_bash(on_path):
    script = (
        'eval "$(_JOBMETER_COMPLETE=bash_source jobmeter)"\n'
        "COMP_WORDS=(jobmeter show train-2); COMP_CWORD=2\n"
        "_jobmeter_completion jobmeter train-2 show\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], env=on_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "train-2", done.stderr


@needing("zsh")
def test_in_a_real_zsh(on_path):
    """The function offers names with their help by ``_describe``, and is registered for the command."""
    script = (
        "autoload -Uz compinit && compinit -u -D\n"
        'eval "$(_JOBMETER_COMPLETE=zsh_source jobmeter)"\n'
        "print registered $_comps[jobmeter]\n"
        "_describe() { print -r -- offered ${(P)3} }\n"
        "compadd() { print -r -- plain $@ }\n"
        "words=(jobmeter show train-2); CURRENT=3\n"
        "_jobmeter_completion\n"
    )
    done = subprocess.run(["zsh", "-f", "-c", script], env=on_path, capture_output=True, text=True, check=False)
    assert "registered _jobmeter_completion" in done.stdout, done.stderr
    assert "offered train-2:resnet Running" in done.stdout, done.stderr
