import math
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from jobmeter.cli import demo
from jobmeter.errors import UnavailableError
from jobmeter.examples import small

WAIT = "import signal; signal.sigtimedwait([], 60)"


class Stop:
    """Event that is set at the first wait for the end of the demonstration."""

    def wait(self, seconds):
        return seconds > 1


@pytest.fixture
def launched(monkeypatch):
    """Record the processes that the command starts, with command and environment. ``code`` is their program."""
    found: dict[str, Any] = {"code": WAIT, "processes": []}
    launch = subprocess.Popen

    def start(command, *, env, **how):
        process = launch([sys.executable, "-c", found["code"]], **how)
        found["processes"].append((command, env, process))
        return process

    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setattr(demo, "make_stop_event", Stop)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_the_job_goes_to_the_server_of_the_verb_and_its_link_is_printed(server, run, launched):
    server.on("/session/link", {"code": "c0de", "expires": 1}, method="POST")
    result = run("demo", "--seconds", "7", "--project", "p")
    [(command, environment, process)] = launched["processes"]
    job = command[command.index("--job-id") + 1]
    assert (result.exit_code, result.stdout) == (0, f"{server.url}/#/open?code=c0de&job={job}&project=p\n")
    assert f"jobmeter delete {job}" in result.stderr
    assert command[command.index("--") + 1 :] == [sys.executable, "-m", "jobmeter.examples.small", "7"]
    assert command[command.index("--project") + 1] == "p"
    assert (environment["JOBMETER_SERVER"], environment["JOBMETER_KEY"]) == (server.url, "t0")
    assert environment["PATH"] == os.environ["PATH"]
    assert process.returncode == -signal.SIGINT


def test_a_job_that_ends_at_once_is_an_error(server, run, launched):
    problem = {"error": {"code": "not_found", "message": "there is no such job"}}
    server.on("/resolve", lambda asked: (404, problem, {}))
    launched["code"] = "raise SystemExit(3)"
    result = run("demo")
    assert isinstance(result.exception, UnavailableError)
    assert result.exception.message == "the job ended with status 3 before the server had it: see its output above"


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "86401"])
def test_a_duration_has_bounds(server, run, launched, seconds):
    assert run("demo", "--seconds", seconds).exit_code == 2
    assert launched["processes"] == []


@pytest.mark.parametrize("rank", [0, 1])
def test_the_job_estimates_pi(capsys, rank):
    assert math.isclose(small.estimate(0, rank, 2), math.pi, abs_tol=0.05)
    assert capsys.readouterr().out.startswith("done: pi is about 3.1")
