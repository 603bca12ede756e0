"""Tests of stopping programs: they end whichever of their threads receives the signal."""

import signal
import subprocess
import sys

import pytest

CODE = """
import signal, threading
from jobmeter.cli.options import make_stop_event
stop = make_stop_event()
threading.Thread(target=threading.Event().wait, daemon=True).start()
if {blocked}:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
print("ready", flush=True)
print(stop.wait(50), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("blocked", [False, True], ids=["any thread", "another thread"])
def test_a_signal_ends_the_wait(number, blocked):
    with subprocess.Popen([sys.executable, "-c", CODE.format(blocked=blocked)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.read() == b"True\n"
    assert process.returncode == 0


ANSWERING = """
import os, signal
from jobmeter.cli.options import make_stop_event
stop = make_stop_event({signal.SIGUSR2: lambda: os.write(1, b"asked\\n")})
print("ready", flush=True)
print(stop.wait(50), flush=True)
"""


def test_another_signal_makes_a_call_and_ends_nothing():
    with subprocess.Popen([sys.executable, "-c", ANSWERING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(2):
            process.send_signal(signal.SIGUSR2)
            assert process.stdout.readline() == b"asked\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b"True\n"
    assert process.returncode == 0
