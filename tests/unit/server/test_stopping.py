"""Tests of a process whose end is delayed, each in its own process because the process is ended."""

import signal
import subprocess
import sys
import textwrap

import pytest

_HEAD = """
import logging, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from jobmeter.server.stopping import Stopping
logging.basicConfig(format="%(message)s")
def tell(number=signal.SIGTERM):
    os.kill(os.getpid(), number)
"""


def ended(code):
    """Run the code in a process for at most a minute. Return the exit status and the output."""
    source = _HEAD + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_process_that_is_done_in_time_ends_as_it_likes():
    status, said = ended(
        """
        with Stopping(30) as stopping:
            told = threading.Event()
            stopping.call_at_stop(told.set)
            tell()
            told.wait()
            assert 20 < stopping.seconds_left <= 22.5
            later = []
            stopping.call_at_stop(lambda: later.append(1))
            assert later == [1]
        print("done")
        """
    )
    assert (status, said) == (0, "done\n")


@pytest.mark.parametrize(
    "blocked",
    [
        "ThreadPoolExecutor(1, 'pool').submit(threading.Event().wait)",
        "threading.Thread(target=threading.Event().wait, name='pool').start()",
        "thread = threading.Thread(target=threading.Event().wait, name='pool'); thread.start(); tell(); thread.join()",
        "lock = threading.Lock(); lock.acquire(); tell(); lock.acquire(); # pool",
    ],
    ids=["a pool that is joined at the exit", "a thread", "joining a thread", "a lock"],
)
def test_nothing_holds_a_process_up_beyond_its_grace_time(blocked):
    status, said = ended(
        f"""
        with Stopping(0.2, lambda: "3 requests") as stopping:
            {blocked}
            tell()
        """
    )
    assert status == 1
    assert "still running 0.2 seconds after the stop signal, ending now: 3 requests; threads " in said
    assert "MainThread" in said


def test_an_end_that_nobody_reported_is_bounded_too():
    status, said = ended(
        """
        with Stopping(0.2):
            ThreadPoolExecutor(1, "pool").submit(threading.Event().wait)
        """
    )
    assert (status, "pool_0" in said) == (1, True)


@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_a_second_signal_ends_it_now(second):
    status, _ = ended(
        f"""
        with Stopping(3000) as stopping:
            told = threading.Event()
            stopping.call_at_stop(told.set)
            tell()
            told.wait()
            tell(signal.{second})
            threading.Event().wait()
        """
    )
    assert status == 128 + signal.Signals[second]


def test_the_system_ends_a_process_whose_own_watch_gets_no_turn():
    status, _ = ended(
        """
        from jobmeter.server import stopping
        stopping._ALARM_SECONDS = 0.1
        with Stopping(0.2, leave=lambda status: threading.Event().wait()):
            tell()
            threading.Event().wait()
        """
    )
    assert status == -signal.SIGALRM
