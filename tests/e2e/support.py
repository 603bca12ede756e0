"""A real server process, and a straight writer of the documented bytes, independent of the product's own encoder."""

import contextlib
import http.client
import json
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

API = "/api/jobmeter/v1"


@dataclass
class Reply:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """``jobmeter serve`` as a user starts it, on a free port."""

    def __init__(self, data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.arguments = arguments
        self.environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.token = ""

    def start(self) -> "Server":
        (self.data / "server.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "jobmeter", "serve", "--data", str(self.data), "--port", "0", *self.arguments]
        log = self.data.parent / f"{self.data.name}.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=output, stderr=output, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                described = json.loads((self.data / "server.json").read_text())
                self.port = int(described["url"].rpartition(":")[2].strip("/"))
                if self.call("GET", "/readyz").status == 200:
                    self.token = json.loads((self.data / "admin.key").read_text())["token"]
                    return self
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"the server did not become ready: {log.read_text(errors='replace')[-3000:]}")

    def call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, **query: Any
    ) -> Reply:
        """One request on a connection of its own, as the administrator unless ``headers`` say otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            target = path + (f"?{urlencode(query, doseq=True)}" if query else "")
            credential = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            connection.request(method, target, body or None, {**credential, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def ingest(self, body: bytes) -> Reply:
        return self.call("POST", f"{API}/ingest", body, {"Content-Type": "application/vnd.jobmeter.frames"})

    def kill(self) -> None:
        """SIGKILL to the whole session: no chance to tidy up."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; gives the exit status."""
        if self.process is None or self.process.poll() is not None:
            return self.process.returncode if self.process else 0
        self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextlib.contextmanager
def serving(data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server for the length of the block."""
    server = Server(data, *arguments, environment=environment)
    try:
        yield server.start()
    finally:
        server.stop()


@dataclass(frozen=True)
class Written:
    """One series and its samples, for ``frame``."""

    metric: str
    points: Sequence[tuple[int, float]]
    job: str = "job"
    replica: str = "worker-0"
    node: str = ""
    device: str = ""
    project: str = ""
    cluster: str = ""
    attempt: int = 0
    labels: tuple[tuple[str, str], ...] = ()


def samples_payload(series: Sequence[Written]) -> bytes:
    """A samples payload, byte by byte as docs/reference/wire-format.md says."""
    out = struct.pack("<II", len(series), sum(len(one.points) for one in series))
    for one in series:
        texts = [one.metric, one.project, one.cluster, one.node, one.device, one.job, one.replica, str(one.attempt)]
        texts += [part for label in one.labels for part in label]
        strings = b"".join(struct.pack("<H", len(text.encode())) + text.encode() for text in texts)
        out += struct.pack("<I", len(strings)) + strings
    out += b"".join(struct.pack("<I", len(one.points)) for one in series)
    out += b"".join(struct.pack("<q", time_ms) for one in series for time_ms, _ in one.points)
    out += b"".join(struct.pack("<d", value) for one in series for _, value in one.points)
    return out


def frame(payload: bytes, kind: int = 1, codec: int = 1) -> bytes:
    """A frame around a payload; codec 0 or 1."""
    sent = zlib.compress(payload, 1) if codec == 1 else payload
    head = struct.pack("<2sBBB3xIII", b"JM", 1, kind, codec, len(sent), len(payload), zlib.crc32(sent))
    return head + sent


def samples(*series: Written) -> bytes:
    """A body of one samples frame."""
    return frame(samples_payload(series))
