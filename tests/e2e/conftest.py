"""A real server, and the command line as people start it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from jobmeter.client.api import Api
from jobmeter.examples.server import own_server


@dataclass
class Told:
    """What a command said, and how it ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Told]


@pytest.fixture(scope="module")
def reach() -> Iterator[tuple[Api, str]]:
    """The API of a server of this module's own, and its key."""
    with own_server() as server:
        yield server.api, server.token


@pytest.fixture
def jobmeter(reach: tuple[Api, str]) -> Run:
    """Runs ``jobmeter`` with that server."""
    api, token = reach

    def run(*arguments: str, **environment: str) -> Told:
        return start(*arguments, JOBMETER_SERVER=api.transport.server, JOBMETER_KEY=token, **environment)

    return run


def start(*arguments: str, text: str | None = None, **environment: str) -> Told:
    """Run ``jobmeter`` in a process of its own, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "jobmeter", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        input=text or "",
        timeout=120,
        check=False,
    )
    return Told(done.returncode, done.stdout, done.stderr)
