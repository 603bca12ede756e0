"""Tests of moving a server's data to a ClickHouse server while samples arrive, with two kills of the mover."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_crash import PER_REQUEST, batch, check
from tests.support.clickhouse import mortal_nodes
from tests.support.frames import records, samples
from tests.support.processes import API, Reply, ServerProcess, run_cli
from tests.support.waiting import pause, wait_until

pytestmark = pytest.mark.slow
HOUR = 3_600_000
BASE = int(time.time() * 1000) // HOUR * HOUR - 72 * HOUR
OLD = {"metric": "app.loss", "job": "old", "replica": "w", "node": "n"}
TRACE = "ab" * 16


@pytest.fixture
def to() -> Iterator[str]:
    """Yield the address of a ClickHouse server."""
    with mortal_nodes(1) as nodes:
        yield f"clickhousedb://127.0.0.1:{nodes[0].own.http}/jobmeter"


class Repeated(threading.Thread):
    """Calls a function again and again until stopped. An error of the function fails the test."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._work()
        except BaseException as error:  # noqa: BLE001 - reported by the thread of the test
            self.error = error

    def stop(self) -> None:
        self._over.set()
        self.join()
        assert self.error is None, self.error


class Agent:
    """Sends batches in order, and retries each until it is acknowledged."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.number = 0
        self.refused = 0

    def send(self) -> None:
        try:
            reply = self._server.ingest(batch(BASE, 0, self.number))
        except (OSError, HTTPException):  # the server is down
            pause()
            return
        if reply.status == 503:
            assert int(reply.headers["retry-after"]) > 0
            self.refused += 1
            pause()
        else:
            assert reply.status == 200, reply.body
            self.number += 1
            pause()

    def sends(self, more: int) -> None:
        """Wait until more batches are acknowledged."""
        enough = self.number + more
        wait_until(lambda: self.number >= enough)


def seed(server: ServerProcess) -> None:
    """Store samples of ten days, a job with an event, log lines and a span."""
    event = {"time": BASE, "job": "old", "reason": "Hello", "message": "é"}
    points = [(BASE - at * 10 * 60_000, float(at % 7)) for at in range(10 * 24 * 6)]
    job = {"job_id": "old", "state": "Succeeded", "start": points[-1][0], "end": BASE}
    assert server.ingest(records({"jobs": [job], "events": [event]}) + samples([(OLD, points)])).status == 200
    lines = [{"text": f"line {at} é", "time": BASE - at * HOUR} for at in range(30)]
    server.request("POST", "/jobs/old/logs", {"lines": lines})
    span = {
        "traceId": TRACE,
        "spanId": "cd" * 8,
        "name": "step",
        "startTimeUnixNano": f"{BASE}000000",
        "endTimeUnixNano": f"{BASE + 5}000000",
    }
    job_name = {"key": "jobmeter.job", "value": {"stringValue": "old"}}
    body = {"resourceSpans": [{"resource": {"attributes": [job_name]}, "scopeSpans": [{"spans": [span]}]}]}
    reply = server.call("POST", "/v1/traces", json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert reply.status == 200, reply.body


def answers(server: ServerProcess, batches: int) -> list[tuple[int, bytes]]:
    """Ask questions of every kind about the times of the first batches."""
    end = BASE + batches * PER_REQUEST * 1000
    old: dict[str, Any] = {"metric": "app.loss", "start": BASE - 11 * 24 * HOUR, "end": BASE + HOUR}
    new: dict[str, Any] = {"metric": "app.number", "start": BASE, "end": end}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/jobs/old", {}),
        ("/jobs/old/metrics", {**old, "step": "1h"}),
        ("/jobs/old/metrics", {**old, "step": "1d", "statistic": "count"}),
        ("/jobs/old/samples", {**old, "format": "csv"}),
        ("/jobs/old/logs", {"limit": 100}),
        ("/jobs/old/logs", {"contains": "line 1"}),
        ("/jobs/old/events", {}),
        ("/traces", {"job": "old", "start": BASE - HOUR, "end": BASE + HOUR}),
        (f"/traces/{TRACE}", {}),
        # Leave out the mean: its last digit depends on the order of additions, which memory and engine choose.
        ("/jobs/crash/metrics", {**new, "step": "1m", "statistic": "last"}),
        ("/jobs/crash/samples", {**new, "format": "csv"}),
    ]
    replies: list[Reply] = [server.call("GET", API + path, **query) for path, query in asked]
    return [(reply.status, reply.body) for reply in replies]


def mover(server: ServerProcess, to: str) -> "subprocess.Popen[bytes]":
    """Start the command, and return when it copies samples."""
    command = [sys.executable, "-m", "jobmeter", "migrate-store", str(server.data), to]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while (line := process.stderr.readline()) != b"jobmeter: samples\n":
        assert line, process.wait()
    return process


def test_a_move_under_writes_with_kills_of_the_mover_loses_doubles_and_refuses_no_answer(
    to: str, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path / "data").start()
    try:
        seed(server)
        agent = Agent(server)
        sending = Repeated(agent.send)
        sending.start()
        agent.sends(3)

        killed = mover(server, to)
        killed.kill()
        killed.communicate()
        agent.sends(3)  # refused at most until the server notices
        early = run_cli("serve", "--data", str(tmp_path / "other"), "--store", to)
        assert early.returncode == 1
        assert "are not all in" in early.stderr

        ended = mover(server, to)
        server.kill()
        assert "no answer from" in ended.communicate()[1].decode()
        assert ended.returncode == 1
        server.start()
        agent.sends(3)

        def ask() -> None:
            replies = answers(server, 3)
            assert [status for status, _ in replies] == [200] * len(replies)

        asking = Repeated(ask)
        asking.start()
        done = run_cli("migrate-store", str(server.data), to, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["moved"]
        assert {one["slices"] for one in report["tables"]} == {0}
        refused, number = agent.refused, agent.number
        wait_until(lambda: agent.refused > refused)
        asking.stop()
        assert agent.number == number
        before = answers(server, number)
        assert server.stop(signal.SIGTERM) == 0

        early = run_cli("serve", "--data", str(server.data))
        assert "were moved to" in early.stderr
        again = run_cli("migrate-store", str(server.data), to)
        assert "everything was moved before" in again.stdout
        verified = run_cli("migrate-store", str(server.data), to, "--verify")
        assert (verified.returncode, "both stores have the same rows" in verified.stdout) == (0, True)
        registry = f"sqlite:///{tmp_path}/registry.db"
        again = run_cli("migrate-store", str(server.data), to, "--registry", registry)
        assert again.returncode == 0, again.stderr
        assert run_cli("serve", "--data", str(server.data), "--store", to).returncode == 1
        server.options = ("--store", to, "--registry", registry)
        server.start()
        after = answers(server, number)
        agent.sends(3)
        sending.stop()
        assert after == before
        for first in range(0, agent.number, 500):
            check(server, BASE, 0, list(range(agent.number))[first : first + 500])
        again = run_cli("migrate-store", str(server.data), to)
        assert (again.returncode, "already" in again.stderr) == (1, True)
    finally:
        server.kill()
