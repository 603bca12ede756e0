"""Tests that the credentials of ``jobmeter run`` reach neither its command nor the list of processes."""

import os
import subprocess
import sys

import pytest

from tests.e2e.ingest_server import ingest_server

TOKEN = "jm_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
PRINT_ENVIRONMENT = "import os; print(*(f'{name}={value}' for name, value in os.environ.items()), sep='\\n')"
PARENT = "import os; print(open(f'/proc/{os.getppid()}/cmdline').read())"


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


def run(tmp_path, server, code, *options, **environment):
    command = [sys.executable, "-m", "jobmeter", "run", "--data", str(tmp_path), "--server", server.url, *options]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    return done.stdout


def sent_keys(server):
    return {headers.get("Authorization") for _, headers in server.headers}


def test_the_key_is_not_in_the_commands_environment(tmp_path, server):
    result = run(tmp_path, server, PRINT_ENVIRONMENT, JOBMETER_KEY=TOKEN)
    assert "JOBMETER_JOB_ID=" in result
    assert TOKEN not in result
    assert sent_keys(server) == {f"Bearer {TOKEN}"}, "but it was used"


def test_the_key_is_passed_on_where_the_user_says_so(tmp_path, server):
    assert f"JOBMETER_KEY={TOKEN}" in run(tmp_path, server, PRINT_ENVIRONMENT, "--pass-key", JOBMETER_KEY=TOKEN)


def test_the_key_of_the_command_line_is_not_in_the_list_of_processes(tmp_path, server):
    result = run(tmp_path, server, PARENT, "--key", TOKEN)
    assert "--key" in result
    assert "--server" in result
    assert TOKEN not in result
    assert sent_keys(server) == {f"Bearer {TOKEN}"}


def test_a_credential_is_not_in_the_recorded_command(tmp_path, server):
    run(tmp_path, server, f"print(1)  # {TOKEN}")
    assert server.jobs
    assert all(TOKEN not in job["command"] and "print(1)" in job["command"] for job in server.jobs)
