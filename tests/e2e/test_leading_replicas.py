"""Three servers on two ClickHouse replicas without Keeper: all of them, and PostgreSQL, fail in turn under writes."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from tests.e2e.leading import Writer, leader_of, values
from tests.e2e.test_several_servers import Servers, _end
from tests.support.clickhouse import NodeProcess, mortal_nodes
from tests.support.frames import row, samples
from tests.support.postgresql import own_server
from tests.support.processes import ServerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


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
