"""The main job, end to end: a training job of two replicas, measured, stored, and queried through two APIs.

``make demo``, or ``python -m jobmeter.examples.demo``. Takes about a minute. Leaves nothing behind.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Self

import click
from rich.console import Group
from rich.live import Live

from jobmeter.cli.output import build_console
from jobmeter.cli.top import build_view
from jobmeter.client.api import Api
from jobmeter.client.searches import JobSearch
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.examples import compare
from jobmeter.examples.acs3 import KeyPair
from jobmeter.examples.server import OwnServer, run_server, stop
from jobmeter.model.job_answers import JobDetail
from jobmeter.model.time import SECOND, SystemClock, ceil_to, floor_to

NAME = "digits"
REFRESH_SECONDS = 2.0
PRINT_SECONDS = 10.0
"""Interval at which the table is printed if it cannot be redrawn in place."""
_STEP_MS = 5 * SECOND


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="How long the job trains.")
def command(seconds: float) -> None:
    """Run a training job and show it, step by step."""
    began = time.monotonic()
    _say(1, "a server, with a data folder of its own", ["jobmeter", "serve", "--data", "DIR", "--port", "0"])
    with run_server() as server:
        api = server.api
        click.echo(f"  it listens at {api.transport.server}")
        if sys.stdout.isatty():
            # In a file the link would be a secret, and dead as soon as the server is stopped.
            click.echo(f"  the page, signed in (once): {api.create_page_link()}")
        train = ["python", "-m", "jobmeter.examples.train", "--seconds", f"{seconds:g}"]
        run = ["run", "--name", NAME, "--type", "PyTorchJob", "--replicas", "2"]
        _say(2, "a training job of two replicas, measured every second", ["jobmeter", *run, "--", *train])
        _run(server, [*run, "--", sys.executable, *train[1:]])
        job = _find(api)
        if job is None:
            raise NotFoundError("the server does not know the job", "job")
        _say(3, "the same job, asked for through two APIs", [])
        agree = _compare(api, server.pair, api.read_job(job))
    _say(4, "everything is stopped", [])
    click.echo(f"  after {time.monotonic() - began:.0f} s. Now with your own: jobmeter run -- python train.py")
    sys.exit(0 if agree else 1)


def _say(number: int, what: str, command_line: Sequence[str]) -> None:
    click.echo()
    click.secho(f"{number}. {what}", bold=True)
    if command_line:
        click.secho(f"  $ {' '.join(command_line)}", dim=True)


def _run(server: OwnServer, arguments: Sequence[str]) -> None:
    """Run the job. Show its output, and between the lines its current usage."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jobmeter", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **server.environment, "PYTHONUNBUFFERED": "1"},
    )
    try:
        with _Screen() as screen:
            reader = threading.Thread(target=_pass_on, args=(process, screen))
            reader.start()
            while process.poll() is None:
                time.sleep(REFRESH_SECONDS)
                screen.show_usage(server.api)
            reader.join()
    finally:
        stop(process)
    if process.returncode:
        raise JobmeterError(f"the job ended with status {process.returncode}")


def _pass_on(process: "subprocess.Popen[bytes]", screen: "_Screen") -> None:
    for line in process.stdout or ():
        screen.write(line.decode(errors="replace").rstrip("\n"))


class _Screen:
    """Lines of output with a live table below them. Without a terminal, the table is printed every ten seconds."""

    def __init__(self) -> None:
        self._console = build_console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if sys.stdout.isatty() else None
        self._printed = time.monotonic()
        self._clock = SystemClock()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def write(self, line: str) -> None:
        """Print a line of the job."""
        self._console.print(f"  {line}", markup=False)

    def show_usage(self, api: Api) -> None:
        """Show the job's current usage once the job exists."""
        job = _find(api, running=True)
        due = self._live or time.monotonic() - self._printed >= PRINT_SECONDS
        if job is None or not due:
            return
        self._printed = time.monotonic()
        shown = build_view(api, job, None, self._clock)
        if self._live:
            self._live.update(Group("", shown), refresh=True)
        else:
            self._console.print(f"\n  $ jobmeter top {job} --once", markup=False)
            self._console.print(shown)
            self._console.print()


def _find(api: Api, running: bool = False) -> str | None:
    jobs = api.list_jobs(JobSearch(name=NAME, states=("Running",) if running else ())).jobs
    return jobs[0].id if jobs else None


def _compare(api: Api, key: KeyPair, detail: JobDetail) -> bool:
    job = detail.job
    start = floor_to(job.start or job.first_sample or 0, _STEP_MS)
    end = ceil_to((job.end or job.last_sample or 0) + 1, _STEP_MS)
    chosen = compare.CPU if detail.usage.find(compare.CPU.metric) else compare.DISK_WRITE
    return compare.compare_answers(api, key, compare.Same(chosen, job.id, start, end, f"{_STEP_MS // SECOND}s"))


def main() -> None:
    """Run the demonstration; a failure is one line."""
    # Terminated, it first ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        command.main(prog_name="python -m jobmeter.examples.demo")
    except JobmeterError as error:
        click.echo(f"demo: {error.message}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
