"""Three servers on one ClickHouse node, a leader and two followers: killed and frozen in turn while samples arrive.

Every acknowledged sample is there once, and each answer has what was acknowledged before the question: samples, and the
name of a job that changes all the time.
"""

import os
import signal
import threading
import time
from typing import Any

import pytest

from tests.e2e.test_processes import worker_answers
from tests.e2e.test_several_servers import Servers, servers  # noqa: F401 - a fixture
from tests.support.frames import records, row, samples
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LEADS, FOLLOWS = "this server leads", "this server follows"


class Writer(threading.Thread):
    """Sends samples and records to one server after another, and asks the next server for each at once."""

    def __init__(self, several: Servers, base: int, number: int) -> None:
        super().__init__()
        self.several, self.base, self.number = several, base, number
        self.acknowledged: set[int] = set()
        self.stale: list[tuple[object, object]] = []
        self.answers = self.named = 0
        self.refused: set[str] = set()  # names that were not acknowledged, and may be written later
        self.over = threading.Event()

    def run(self) -> None:
        at = 0
        while not self.over.is_set():
            at += 1
            body = samples([row("app.number", [(self.base + at * 1000, float(at))], job="crash", replica=self.replica)])
            if self._send(at, body) == 200:
                self.acknowledged.add(at)
                self._look(at)
            name = f"name-{at}"
            body = records({"jobs": [{"job_id": self.replica, "name": name}]})
            if self._send(at, body) == 200:
                self._look_at_name(at, name)
            else:
                self.refused.add(name)

    @property
    def replica(self) -> str:
        return f"worker-{self.number}"

    def _send(self, at: int, body: bytes) -> int:
        server = self.several.all[(at + self.number) % 3]
        headers = {"Content-Type": "application/vnd.jobmeter.frames"}
        try:
            return server.call("POST", f"{API}/ingest", body, headers, seconds=5.0).status
        except (OSError, ValueError, AssertionError):
            return 0
        except Exception:  # noqa: BLE001 - a torn answer (http.client has many kinds) is no acknowledgement
            return 0

    def _look(self, at: int) -> None:
        server = self.several.all[(at + self.number + 1) % 3]
        try:
            found = values(server, self.replica, self.base + at * 1000, 1, seconds=5.0)
        except Exception:  # noqa: BLE001 - as above
            return
        if found is not None:
            self.answers += 1
            if found != {at: float(at)} and found != {0: float(at)}:
                self.stale.append((at, len(found)))

    def _look_at_name(self, at: int, name: str) -> None:
        server = self.several.all[(at + self.number + 1) % 3]
        try:
            reply = server.call("GET", f"{API}/jobs/{self.replica}", seconds=5.0)
            found = reply.json()["job"]["name"] if reply.status == 200 else None
        except Exception:  # noqa: BLE001 - as above
            return
        if reply.status == 404 or found is not None:
            self.named += 1
            if found != name and found not in self.refused:
                self.stale.append((name, found))


def values(
    server: ServerProcess, replica: str, start: int, count: int, seconds: float = 60.0
) -> dict[int, float] | None:
    """Return the samples of a replica by their number in the span; None if the server refuses to answer."""
    query: dict[str, Any] = {
        "metric": "app.number",
        "replica": replica,
        "start": start,
        "end": start + count * 1000,
        "step": "1s",
        "statistic": "last",
    }
    reply = server.call("GET", f"{API}/jobs/crash/metrics", seconds=seconds, **query)
    if reply.status != 200:
        return None
    points = [point for line in reply.json()["lines"] for point in line["points"]]
    return {(time_ms - start) // 1000: value for time_ms, value in points if value is not None}


def role_of(server: ServerProcess) -> str:
    """Return the last role that a server has logged."""
    lines = [line for line in server.output().splitlines() if LEADS in line or FOLLOWS in line]
    return LEADS if lines and LEADS in lines[-1] else FOLLOWS


def leader_of(several: Servers) -> ServerProcess:
    return next(one for one in several.all if role_of(one) == LEADS)


@pytest.mark.slow
@pytest.mark.parametrize("servers", ["2"], indirect=True, ids=["worker processes"])
def test_killed_and_frozen_leaders_neither_lose_nor_hide_samples(servers: Servers) -> None:  # noqa: F811
    base = int(time.time() * 1000) // 1000 * 1000 - 3_000_000
    assert servers.first.ingest(samples([row("app.number", [(base, 0.0)], job="crash")])).status == 200
    servers.start(1)
    servers.start(2)
    writers = [Writer(servers, base, number) for number in range(3)]
    for writer in writers:
        writer.start()

    def progress(what: str) -> None:
        before = [len(writer.acknowledged) for writer in writers]
        wait_until(lambda: all(len(one.acknowledged) > old + 5 for one, old in zip(writers, before, strict=True)), what)

    try:
        progress("writes to three servers")
        victim = leader_of(servers)
        victim.kill()
        progress("writes beside a dead leader")
        servers.start(servers.all.index(victim))
        progress("writes after its return")
        victim = leader_of(servers)
        os.killpg(victim.process.pid, signal.SIGSTOP)
        progress("writes beside a frozen leader")
        os.killpg(victim.process.pid, signal.SIGCONT)
        progress("writes after its end as a leader")
    finally:
        for writer in writers:
            writer.over.set()
        for writer in writers:
            writer.join()
    for writer in writers:
        assert writer.answers
        assert writer.named
        assert not writer.stale
        for server in servers.all:
            found = wait_until(lambda: values(server, writer.replica, base, max(writer.acknowledged) + 1))  # noqa: B023
            assert found is not None
            assert writer.acknowledged <= {number for number, value in found.items() if value == number}


@pytest.mark.slow
@pytest.mark.parametrize("servers", ["2"], indirect=True, ids=["worker processes"])
def test_workers_of_every_server_answer_live_questions_with_each_sample(servers: Servers) -> None:  # noqa: F811
    base = int(time.time() * 1000) // 1000 * 1000 - 3_000_000
    assert servers.first.ingest(samples([row("app.number", [(base, 0.0)], job="crash", replica="w")])).status == 200
    servers.start(1)
    servers.start(2)

    def answers_itself(server: ServerProcess, before: float, newest: int) -> bool:
        found = values(server, "w", base, 10)
        assert found is not None
        assert set(found) == set(range(newest + 1))
        return worker_answers(server) > before

    for number in range(1, 7):
        body = samples([row("app.number", [(base + number * 1000, float(number))], job="crash", replica="w")])
        assert servers.all[number % 3].ingest(body).status == 200
        for server in servers.all:
            before = worker_answers(server)
            wait_until(lambda: answers_itself(server, before, number), "an answer of a worker")  # noqa: B023
