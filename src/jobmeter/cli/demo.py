"""``jobmeter demo``: measures a small job and opens its page."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import click

from jobmeter.cli import local
from jobmeter.cli.open import show_page
from jobmeter.cli.options import build_number_option, define_verb, make_stop_event
from jobmeter.client.api import Api
from jobmeter.collect.launch.plan import make_job_id
from jobmeter.errors import JobmeterError, NotFoundError, UnavailableError
from jobmeter.model.time import SystemClock

_REPLICAS = 2
_LOOK_SECONDS = 0.2
_START_SECONDS = 30.0
"""Longest time in seconds until the server has the job."""
_STOP_SECONDS = 15.0
_AWAKE_SECONDS = 60.0
"""Seconds between two requests that keep the server running: one that a verb started stops when idle."""


@define_verb("jobmeter demo", "jobmeter demo --seconds 600 --print")
@build_number_option("--seconds", 1, 86_400, 60, "Duration of the job in seconds.")
@click.option("--print", "only_print", is_flag=True, help="Print the link without opening it.")
@local.writing_options
def command(seconds: int, only_print: bool, connection: local.LocalConnection) -> None:
    """Measure a small job of two replicas, and open its page. Ctrl-C ends it.

    The job needs only Python's standard library. Its measurements stay until `jobmeter delete`.
    """
    api = connection.open()
    job = make_job_id("demo", SystemClock())
    project = ("--project", connection.project) if connection.project else ()
    certificates = ("--ca-file", connection.ca_file) if connection.ca_file else ()
    options = ("--quiet", "--name", "demo", "--job-id", job, "--replicas", str(_REPLICAS), *project, *certificates)
    program = (sys.executable, "-m", "jobmeter.examples.small", str(seconds))
    stop = make_stop_event()
    with _run_demo_job([*options, "--", *program], connection.make_environment(api.transport)) as process:
        if _is_stored(api, job, connection.project, process, stop):
            click.echo(f"the job {job} runs for {seconds} s; Ctrl-C ends the demonstration", err=True)
            show_page(api, job, connection.project or "", only_print=only_print)
        while not stop.wait(_AWAKE_SECONDS):
            with suppress(JobmeterError):
                api.find(job, connection.project)
    click.echo(f"ended; look again with `jobmeter show {job}`, or remove it with `jobmeter delete {job}`", err=True)


@contextmanager
def _run_demo_job(words: Sequence[str], variables: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run ``jobmeter run`` with these words; interrupt it at the end of the block if it still runs."""
    command = [sys.executable, "-m", "jobmeter", "run", *words]
    # The job has a new session, because the terminal would send a Ctrl-C to it too: a second interrupt kills the job.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, env={**os.environ, **variables}, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _is_stored(
    api: Api, job: str, project: str | None, process: "subprocess.Popen[bytes]", stop: threading.Event
) -> bool:
    """Wait until the server has the job. Return False if the user stops the wait.

    Raises UnavailableError if the job ends before, or takes too long.
    """
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with suppress(NotFoundError):
            return bool(api.find(job, project).id)
        if process.poll() is not None:
            raise UnavailableError(
                f"the job ended with status {process.returncode} before the server had it: see its output above"
            )
        if stop.wait(_LOOK_SECONDS):
            return False
    raise UnavailableError(
        f"the server does not have the job after {_START_SECONDS:.0f} s: `jobmeter doctor` shows why"
    )
