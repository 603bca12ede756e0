"""Three servers on one ClickHouse node, a leader and two followers: killed and frozen in turn while samples arrive.

Every acknowledged sample is there once, and each answer has what was acknowledged before the question: samples, and the
name of a job that changes all the time.
"""

import os
import signal
import time

import pytest

from tests.e2e.leading import Writer, leader_of, values
from tests.e2e.test_processes import worker_answers
from tests.e2e.test_several_servers import Servers, servers  # noqa: F401 - a fixture
from tests.support.frames import records, row, samples
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


class NamingWriter(Writer):
    """Also changes the name of a job, and asks the next server for the name at once."""

    def __init__(self, several: Servers, base: int, number: int) -> None:
        super().__init__(several, base, number)
        self.named = 0
        self.refused: set[str] = set()  # names that were not acknowledged, and may be written later

    def write_more(self, at: int) -> None:
        name = f"name-{at}"
        if self.send(at, records({"jobs": [{"job_id": self.replica, "name": name}]})) == 200:
            self._look_at_name(at, name)
        else:
            self.refused.add(name)

    def _look_at_name(self, at: int, name: str) -> None:
        server = self.find_reader(at)
        try:
            reply = server.call("GET", f"{API}/jobs/{self.replica}", seconds=5.0)
            found = reply.json()["job"]["name"] if reply.status == 200 else None
        except Exception:  # noqa: BLE001 - http.client has many kinds of torn answers
            return
        if reply.status == 404 or found is not None:
            self.named += 1
            if found != name and found not in self.refused:
                self.stale.append((name, found))


@pytest.mark.slow
@pytest.mark.parametrize("servers", ["2"], indirect=True, ids=["worker processes"])
def test_killed_and_frozen_leaders_neither_lose_nor_hide_samples(servers: Servers) -> None:  # noqa: F811
    base = int(time.time() * 1000) // 1000 * 1000 - 3_000_000
    assert servers.first.ingest(samples([row("app.number", [(base, 0.0)], job="crash")])).status == 200
    servers.start(1)
    servers.start(2)
    writers = [NamingWriter(servers, base, number) for number in range(3)]
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
