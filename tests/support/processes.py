"""Starts real server processes on a free port, sends requests to them, and stops them by process id."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jobmeter.client.transport import Transport
from tests.support.frames import FRAMES
from tests.support.waiting import SECONDS, wait_until

API = "/api/jobmeter/v1"


@dataclass
class Reply:
    """Answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class ServerProcess:
    """``jobmeter serve`` on a data folder, started as a user starts it."""

    def __init__(
        self,
        data: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        descriptors: int = 0,
        python: str = sys.executable,
    ) -> None:
        """Prepare a server. ``descriptors`` limits its open files; the default is the limit of this process."""
        self._python = python
        self._descriptors = descriptors
        self.data = data
        self.log = data.with_name(f"{data.name}.log")
        self.options = options
        self._environment = {"JOBMETER_PROCESSES": "1", **_own_environment(), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ServerProcess":
        """Start the server, with one retry if it exits. Return when it listens."""
        with self.log.open("ab") as output:
            limited = ("prlimit", f"--nofile={self._descriptors}") if self._descriptors else ()
            self._process = subprocess.Popen(
                [
                    *limited,
                    *(self._python, "-m", "jobmeter", "serve", "--data", str(self.data), "--port", "0"),
                    *self.options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )
        try:
            wait_until(lambda: self._listens() or self.process.poll() is not None, "the start")
            assert self.process.poll() is None
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"the server did not start: {self.output()}") from error
        return self

    def _listens(self) -> bool:
        return (self.data / "server.json").exists() and self.note["pid"] == self.process.pid

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """Process of the last start."""
        assert self._process is not None
        return self._process

    def children(self) -> list[int]:
        """Return the process ids of its workers."""
        command = ["ps", "-o", "pid=", "--ppid", str(self.process.pid)]
        return sorted(map(int, subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()))

    @property
    def note(self) -> dict[str, Any]:
        note: dict[str, Any] = json.loads((self.data / "server.json").read_text())
        return note

    @property
    def url(self) -> str:
        return str(self.note["url"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].strip("/"))

    @property
    def admin(self) -> dict[str, Any]:
        key: dict[str, Any] = json.loads((self.data / "admin.key").read_text())
        return key

    @cached_property
    def token(self) -> str:
        """Token of requests, by default the administrator's."""
        return str(self.admin["token"])

    def transport(self, **options: Any) -> Transport:
        return Transport(self.url, self.token, **options)

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
        **query: Any,
    ) -> Reply:
        """Send one request on its own connection, with ``token`` unless ``headers`` say otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            target = path + (f"?{urlencode(query, doseq=True)}" if query else "")
            credential = {"Authorization": f"Bearer {self.token}"}
            connection.request(method, target, body or None, {**credential, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def request(self, method: str, path: str, body: Any = None) -> Reply:
        """Send a request to the native API, and require success."""
        reply = self.call(method, API + path, b"" if body is None else json.dumps(body).encode())
        assert reply.status < 300, (reply.status, reply.body)
        return reply

    def ingest(self, body: bytes) -> Reply:
        return self.call("POST", f"{API}/ingest", body, {"Content-Type": FRAMES})

    def kill(self) -> None:
        """Kill the server and its children with SIGKILL, without any cleanup."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(SECONDS)

    def stop(self, number: int = signal.SIGTERM, seconds: float = SECONDS) -> int:
        """Send a signal, wait for the end, and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def running(
    data: Path, *options: str, environment: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[ServerProcess]:
    """Run a server for the block. Kill it at the end if it still runs."""
    server = ServerProcess(data, *options, environment=environment, python=python)
    try:
        yield server.start()
    finally:
        if server.process.poll() is None:
            server.kill()


def _own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("JOBMETER_")}


def run_cli(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one ``jobmeter`` command to its end."""
    command: Sequence[str] = [sys.executable, "-m", "jobmeter", *arguments]
    own = {**_own_environment(), **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=own)
