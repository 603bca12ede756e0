"""Tests of ``jobmeter agent --job-rules`` with processes that have neither tags nor a scheduler."""

import subprocess
import sys

import pytest

from tests.e2e.ingest_server import ingest_server

PROGRAM = "import sys; print('begun', flush=True); sys.stdin.read()"


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


def agent(server, folder, rules):
    file = folder / "rules.toml"
    file.write_text(rules)
    command = [sys.executable, "-m", "jobmeter", "agent", "--once", "--server", server.url, "--key", "k"]
    return subprocess.run(
        [*command, "--spool", str(folder / "spool"), "--job-rules", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_command_becomes_a_job(server, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "nightly-7f3a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        rules = '[[job]]\ncommand = "*python* nightly-*"\njob = "nightly-{3}"\nname = "nightly"\nuser = "ada"\n'
        done = agent(server, tmp_path, rules)
        process.communicate(b"")
    assert done.returncode == 0, done.stderr
    (job,) = [job for job in server.jobs if job["job_id"] == "nightly-7f3a"]
    assert (job["name"], job["user"], job["type"]) == ("nightly", "ada", "Process")
    assert [one["name"] for one in job["replicas"]] == ["worker-0"]
    assert server.values("memory.usage", job="nightly-7f3a", replica="worker-0")


def test_a_file_that_is_wrong_ends_the_agent_before_it_measures(server, tmp_path):
    done = agent(server, tmp_path, '[[job]]\ncommand = "x"\n')
    assert (done.returncode, "rule 1: job is missing" in done.stderr) == (1, True)
    assert server.bodies == []
