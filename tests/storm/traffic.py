"""Threads that send samples (each to its own job, with overwritten and repeated batches), records, lines and names."""

import json
import random
import threading
import time
from collections.abc import Collection, Sequence
from http.client import HTTPException
from typing import Any

from tests.storm.ledger import JobLedger, Report
from tests.support.frames import FRAMES, records
from tests.support.processes import API, Reply, ServerProcess

_AVOID_SECONDS = 5.0
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
"""Seconds between two attempts."""


class Client:
    """Client that switches servers. It avoids a server without an answer for some seconds."""

    def __init__(self, servers: Sequence[ServerProcess], generator: random.Random) -> None:
        self._servers, self._generator = servers, generator
        self._avoided = dict.fromkeys(range(len(servers)), 0.0)

    def choose(self) -> int:
        """Return the number of a server."""
        now = time.monotonic()
        able = [number for number, until in self._avoided.items() if until <= now]
        return self._generator.choice(able or list(self._avoided))

    def call(self, number: int, method: str, path: str, body: bytes = b"", kind: str = "", **query: Any) -> Reply:
        """Send a request. The status is 0 without an answer."""
        headers = {"Content-Type": kind} if kind else {}
        try:
            return self._servers[number].call(method, path, body, headers, seconds=_PATIENCE_SECONDS, **query)
        except (OSError, HTTPException, ValueError) as error:
            self._avoided[number] = time.monotonic() + _AVOID_SECONDS
            return Reply(0, {}, repr(error).encode())


class Traffic(threading.Thread):
    """Thread that runs until ``stop``, and then ends with the current request."""

    def __init__(self, client: Client, report: Report) -> None:
        super().__init__(daemon=True)
        self._client, self._report = client, report
        self._over, self._pause = threading.Event(), threading.Event()

    def stop(self) -> None:
        """Tell the thread to end."""
        self._over.set()


class Sender(Traffic):
    """Thread that sends ``rate`` batches a second, and retries each until it is acknowledged, even after ``stop``."""

    def __init__(
        self, ledger: JobLedger, client: Client, report: Report, rate: float, generator: random.Random
    ) -> None:
        super().__init__(client, report)
        self.ledger = ledger
        self._rate, self._generator = rate, generator

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            self._send(self._choose())

    def _choose(self) -> int:
        """Choose a new, an overwritten or a repeated batch, set its version, and return its number."""
        ledger = self.ledger
        draw = self._generator.random()
        if draw < 0.15 and ledger.clean:
            number = self._generator.choice(tuple(ledger.clean)[-256:])
            if draw < 0.1 and ledger.sent[number] < 60:
                ledger.sent[number] += 1
            return number
        ledger.sent.append(1)
        ledger.acknowledged.append(0)
        ledger.clean.add(len(ledger.sent) - 1)
        return len(ledger.sent) - 1

    def _send(self, number: int) -> None:
        """Send a batch until it is acknowledged. A request without an answer may still be stored at any later time."""
        ledger, body, size = self.ledger, self.ledger.body(number), self.ledger.shape.size
        while True:
            self._report.count("samples sent", size)
            reply = self._client.call(self._client.choose(), "POST", f"{API}/ingest", body, FRAMES)
            if reply.status == 200:
                break
            self._report.count("samples refused" if reply.status else "samples unanswered", size)
            if reply.status not in {0, 429, 503}:
                self._report.note("odd refusals", f"{ledger.job} batch {number}: {reply.status} {reply.body[:200]!r}")
            ledger.clean.discard(number)
            self._pause.wait(_PAUSE_SECONDS)
        if reply.json()["accepted"] != size:
            self._report.note("lost", f"{ledger.job} batch {number}: accepted in part, {reply.body[:200]!r}")
        ledger.acknowledged[number] = ledger.sent[number]
        self._report.acknowledgements.append(time.monotonic())
        self._report.count("samples acknowledged", size)


class Clerk(Traffic):
    """Thread that sends job records and log lines, each once."""

    def __init__(self, client: Client, report: Report, start_ms: int) -> None:
        super().__init__(client, report)
        self.start_ms = start_ms
        self.number = 0
        self.records: list[int] = []
        """Numbers of the acknowledged records."""
        self.lines: list[int] = []

    def time_of(self, number: int) -> int:
        """Return the time of a line."""
        return self.start_ms + number * 1_000

    def run(self) -> None:
        while not self._over.wait(1.0):
            self.number += 1
            record = records({"jobs": [{"job_id": f"record-{self.number}", "name": f"name {self.number}"}]})
            line = {"text": f"line {self.number}", "time": self.time_of(self.number)}
            self._send(self.records, f"{API}/ingest", record, FRAMES)
            self._send(self.lines, f"{API}/jobs/job-0/logs", json.dumps({"lines": [line]}).encode(), "application/json")

    def _send(self, acknowledged: list[int], path: str, body: bytes, kind: str) -> None:
        if self._client.call(self._client.choose(), "POST", path, body, kind).status == 200:
            acknowledged.append(self.number)
            self._report.count("records acknowledged" if acknowledged is self.records else "lines acknowledged")


class Renamer(Traffic):
    """Thread that keeps renaming one job, and asks any server for the name at once."""

    JOB = "renamed"

    def run(self) -> None:
        number, unanswered = 0, set[str]()  # a name without an acknowledgement may be written later
        while not self._over.wait(_PAUSE_SECONDS):
            number += 1
            name = f"name {number}"
            record = records({"jobs": [{"job_id": self.JOB, "name": name}]})
            if self._client.call(self._client.choose(), "POST", f"{API}/ingest", record, FRAMES).status == 200:
                self._check(name, unanswered)
            else:
                unanswered.add(name)

    def _check(self, name: str, unanswered: Collection[str]) -> None:
        reply = self._client.call(self._client.choose(), "GET", f"{API}/jobs/{self.JOB}")
        found = reply.json()["job"]["name"] if reply.status == 200 else None
        self._report.count("names compared", found is not None)
        if reply.status == 404 or (found is not None and found != name and found not in unanswered):
            self._report.note("stale", f"the job that was named {name} has the name {found}")
