"""Fixtures of end-to-end tests: a real server, the command line in processes, and browser sessions."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from jobmeter.client.api import Api
from jobmeter.examples.server import run_server
from tests.e2e.conversation import end_all
from tests.e2e.page import Viewer, signed_in
from tests.support.browser import chromium


@pytest.fixture(autouse=True)
def _no_blocked_signals() -> None:
    """Unblock SIGPIPE. An embedded engine of an earlier test blocks the signal in this process and in its children."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPIPE])


@pytest.fixture(scope="module", autouse=True)
def _no_conversations() -> Iterator[None]:
    """Stop the SDK processes that a module started."""
    yield
    end_all()


@dataclass
class CommandResult:
    """Output and exit status of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def reach() -> Iterator[tuple[Api, str]]:
    """Yield the API of the module's server, and its key."""
    with run_server() as server:
        yield server.api, server.token


@pytest.fixture
def jobmeter(reach: tuple[Api, str]) -> Run:
    """Return a function that runs ``jobmeter`` against that server."""
    api, token = reach

    def run(*arguments: str, **environment: str) -> CommandResult:
        return start(*arguments, JOBMETER_SERVER=api.transport.server, JOBMETER_KEY=token, **environment)

    return run


def start(*arguments: str, text: str | None = None, **environment: str) -> CommandResult:
    """Start ``jobmeter`` in its own process, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "jobmeter", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        input=text or "",
        timeout=120,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield Chromium. Skip the test if it is missing."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def session(browser: Any, server: Any) -> Iterator[Any]:
    """Yield a browser session that is signed in to the module's ``server``."""
    with signed_in(browser, server) as opened:
        yield opened


@pytest.fixture
def viewer(browser: Any, server: Any, session: Any) -> Iterator[Viewer]:
    """Yield a tab of the module's session, and fail the test if the tab reported an error."""
    made = Viewer(browser, server, session=session)
    yield made
    made.close()
