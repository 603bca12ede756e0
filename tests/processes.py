"""Real server processes for tests: started on a free port, stopped by their own pid."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobmeter.client.transport import API, Response, Transport
from tests.frames import FRAMES

START_SECONDS = 120.0


class ServerProcess:
    """``jobmeter serve`` on a data folder."""

    def __init__(self, data: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.log = data.with_name(f"{data.name}.log")
        own = {name: value for name, value in os.environ.items() if not name.startswith("JOBMETER_")}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobmeter", "serve", "--data", str(data), "--port", "0", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**own, **(environment or {})},
            )

    def wait(self) -> "ServerProcess":
        """Return when it listens."""
        latest = time.monotonic() + START_SECONDS
        while time.monotonic() < latest:
            if self.process.poll() is not None:
                break
            if (self.data / "server.json").exists() and self.note["pid"] == self.process.pid:
                return self
            time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self.output()}")

    @property
    def note(self) -> dict[str, Any]:
        note: dict[str, Any] = json.loads((self.data / "server.json").read_text())
        return note

    @property
    def url(self) -> str:
        return str(self.note["url"])

    @property
    def admin(self) -> dict[str, Any]:
        key: dict[str, Any] = json.loads((self.data / "admin.key").read_text())
        return key

    def transport(self, **options: Any) -> Transport:
        return Transport(self.url, self.admin["token"], **options)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Response:
        """A call of the native API as the administrator."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        transport = self.transport()
        try:
            return transport.request(method, API + path, content, headers)
        finally:
            transport.close()

    def ingest(self, body: bytes) -> dict[str, Any]:
        receipt: dict[str, Any] = json.loads(self.request("POST", "/ingest", body, {"Content-Type": FRAMES}).body)
        return receipt

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Send a signal and wait for the end; gives the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def running(data: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[ServerProcess]:
    """A server that listens, killed at the end when it still runs."""
    server = ServerProcess(data, *options, environment=environment)
    try:
        yield server.wait()
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(60)


def run_cli(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """One ``jobmeter`` command to its end."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JOBMETER_")}
    command: Sequence[str] = [sys.executable, "-m", "jobmeter", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env={**own, **(environment or {})}
    )
