"""Senders of samples: each owns a job, sends new batches, and overwrites and repeats earlier ones."""

import random
import threading
import time
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from tests.storm.ledger import JobLedger, Report
from tests.support.processes import API, Reply, ServerProcess

_AVOID_SECONDS = 5.0
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
"""Seconds between two attempts."""


class Client:
    """Calls one server or another. A server that did not answer is avoided for some seconds."""

    def __init__(self, servers: Sequence[ServerProcess], generator: random.Random) -> None:
        self._servers, self._generator = servers, generator
        self._avoided = dict.fromkeys(range(len(servers)), 0.0)

    def choose(self) -> int:
        """Return the number of a server."""
        now = time.monotonic()
        able = [number for number, until in self._avoided.items() if until <= now]
        return self._generator.choice(able or list(self._avoided))

    def call(self, number: int, method: str, path: str, body: bytes = b"", kind: str = "", **query: Any) -> Reply:
        """Send a request. The status is 0 if there was no answer."""
        headers = {"Content-Type": kind} if kind else {}
        try:
            return self._servers[number].call(method, path, body, headers, seconds=_PATIENCE_SECONDS, **query)
        except (OSError, HTTPException, ValueError) as error:
            self._avoided[number] = time.monotonic() + _AVOID_SECONDS
            return Reply(0, {}, repr(error).encode())


class Sender(threading.Thread):
    """Sends ``rate`` batches a second, each until it is acknowledged."""

    def __init__(
        self, ledger: JobLedger, client: Client, report: Report, rate: float, generator: random.Random
    ) -> None:
        super().__init__(daemon=True)
        self.ledger = ledger
        self._client, self._report, self._rate, self._generator = client, report, rate, generator
        self._over, self._pause = threading.Event(), threading.Event()

    def stop(self) -> None:
        """End when the batch that is on its way is acknowledged."""
        self._over.set()

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            self._send(self._choose())

    def _choose(self) -> int:
        """Return the number of the next batch, whose version is set: a new one, an overwritten or a repeated one."""
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
        """Send a batch until it is acknowledged. A request without an answer may be stored at any later time."""
        ledger, body, size = self.ledger, self.ledger.body(number), self.ledger.shape.size
        while True:
            self._report.count("samples sent", size)
            reply = self._client.call(
                self._client.choose(), "POST", f"{API}/ingest", body, "application/vnd.jobmeter.frames"
            )
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
