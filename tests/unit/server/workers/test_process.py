"""Tests that a forked worker is waited for and killed like a spawned one."""

import os
import signal
import subprocess

import pytest

from jobmeter.server.workers.process import ForkedProcess


def start(*command: str) -> ForkedProcess:
    return ForkedProcess(os.posix_spawnp(command[0], command, os.environ))


@pytest.mark.parametrize("timeout", [{}, {"timeout": 60.0}])
def test_the_status_of_a_process_that_ended_is_returned_each_time(timeout):
    process = start("sh", "-c", "exit 3")
    assert process.wait(**timeout) == 3
    assert process.wait(**timeout) == process.returncode == 3
    process.kill()  # its number may belong to another process by now


def test_a_process_that_stays_is_killed():
    process = start("sh", "-c", "while true; do :; done")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    process.kill()
    assert process.wait() == -signal.SIGKILL
