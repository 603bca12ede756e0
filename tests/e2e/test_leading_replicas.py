"""Three servers on two ClickHouse replicas without Keeper: all of them, and PostgreSQL, fail in turn under writes."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from tests.e2e.test_several_servers import Servers, _end
from tests.support.clickhouse import NodeProcess, mortal_nodes
from tests.support.frames import row, samples
from tests.support.postgresql import own_server
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LEADS, FOLLOWS = "this server leads", "this server follows"


class Writer(threading.Thread):
    """Sends samples to one server after another, a new one each time, and asks the next server for each at once."""

    def __init__(self, several: Servers, base: int, number: int) -> None:
        super().__init__()
        self.several, self.base, self.number = several, base, number
        self.acknowledged: set[int] = set()
        self.stale: list[tuple[int, int]] = []
        self.answers = 0
        self.over = threading.Event()

    def run(self) -> None:
        at = 0
        while not self.over.is_set():
            at += 1
            body = samples([row("app.number", [(self.base + at * 1000, float(at))], job="crash", replica=self.replica)])
            if self._send(at, body) == 200:
                self.acknowledged.add(at)
                self._look(at)

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


class Site(Servers):
    """Servers, and the replicas that they use."""

    replicas: Sequence[NodeProcess] = ()


@pytest.fixture
def site(tmp_path) -> Iterator[Site]:
    with ExitStack() as stack:
        replicas = stack.enter_context(mortal_nodes(2))
        database = stack.enter_context(own_server())
        hosts = ",".join(f"127.0.0.1:{one.own.http}" for one in replicas)
        made = Site(tmp_path, f"clickhousedb://{hosts}/jobmeter", f"{database.url}/postgres", database, "1")
        made.replicas = replicas
        for server in made.all:
            stack.callback(_end, server)
        yield made


@contextmanager
def killed(site: Site, server: ServerProcess) -> Iterator[None]:
    server.kill()
    yield
    site.start(site.all.index(server))


@contextmanager
def frozen(server: ServerProcess) -> Iterator[None]:
    os.killpg(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(server.process.pid, signal.SIGCONT)


@contextmanager
def without_registry(site: Site) -> Iterator[None]:
    site.database.kill()
    yield
    site.database.start()


def are_complete(site: Site) -> bool:
    return all(all(one.request("GET", "/status").json()["replicas"].values()) for one in site.all)


FAULTS: Sequence[Callable[[Site], AbstractContextManager[None]]] = (
    lambda site: killed(site, leader_of(site)),
    lambda site: site.replicas[0].killed(),
    lambda site: frozen(leader_of(site)),
    lambda site: site.replicas[1].frozen(),
    lambda site: killed(site, next(one for one in site.all if one is not leader_of(site))),
    without_registry,
)


def test_no_fault_loses_or_hides_samples(site: Site) -> None:
    base = int(time.time() * 1000) // 1000 * 1000 - 3_000_000
    assert site.first.ingest(samples([row("app.number", [(base, 0.0)], job="crash")])).status == 200
    site.start(1)
    site.start(2)
    writers = [Writer(site, base, number) for number in range(3)]
    for writer in writers:
        writer.start()

    def progress(what: str) -> None:
        before = [len(writer.acknowledged) for writer in writers]
        wait_until(lambda: all(len(one.acknowledged) > old + 5 for one, old in zip(writers, before, strict=True)), what)

    try:
        for number, fault in enumerate(FAULTS):
            wait_until(lambda: are_complete(site), f"the repair before fault {number}", 60)
            with fault(site):
                progress(f"writes during fault {number}")
            progress(f"writes after fault {number}")
    finally:
        for writer in writers:
            writer.over.set()
        for writer in writers:
            writer.join()
    wait_until(lambda: are_complete(site), "the last repair", 60)
    for replica in site.replicas:
        with replica.killed():
            for writer in writers:
                assert writer.answers
                assert not writer.stale
                for server in site.all:
                    found = wait_until(lambda: values(server, writer.replica, base, max(writer.acknowledged) + 1))  # noqa: B023
                    assert found is not None
                    assert writer.acknowledged <= {number for number, value in found.items() if value == number}
        wait_until(lambda: are_complete(site), "the repair", 60)
