"""Tests that an interrupted benchmark leaves no processes and files."""

import signal
import subprocess
import sys

PROGRAM = """
import contextlib, signal
from benchmarks.processes import exit_on_sigterm
exit_on_sigterm()
with contextlib.ExitStack() as started:
    started.callback(print, "what was started has ended", flush=True)
    print("ready", flush=True)
    signal.pause()
"""


def test_what_was_started_ends_with_a_program_that_is_signalled():
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "what was started has ended\n"
    assert process.returncode == 128 + signal.SIGTERM
