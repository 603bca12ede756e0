"""Servers and their ClickHouse node are killed and frozen at random moments: what was acknowledged is there once.

``NODE_FAULTS=200`` makes the storm longer: see ``make storm-node``.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_crash import Sender, batch, check
from tests.e2e.test_disk import mounted
from tests.support.clickhouse import NodeProcess, mortal_node, mortal_nodes
from tests.support.postgresql import fresh_database, own_server
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until

FAULTS = int(os.environ.get("NODE_FAULTS", "2"))
SEED = int(os.environ.get("NODE_SEED", "11"))
HOUR_MS = 3_600_000


@pytest.fixture
def node() -> Iterator[NodeProcess]:
    with mortal_node() as process:
        yield process


def server_of(node: NodeProcess, data: Path, *options: str) -> ServerProcess:
    return ServerProcess(data, "--store", f"{node.own.dsn}/jobmeter", *options)


def server_of_replicas(nodes: Sequence[NodeProcess], data: Path) -> ServerProcess:
    hosts = ",".join(f"127.0.0.1:{node.own.http}" for node in nodes)
    return ServerProcess(data, "--store", f"clickhousedb://{hosts}/jobmeter")


def complete_replicas(server: ServerProcess) -> int:
    """Return the number of replicas that answer and have all data."""
    return sum(server.call("GET", f"{API}/status").json()["replicas"].values())


def is_alone(server: ServerProcess) -> bool:
    """Return True if the server is the only one of its node, and acknowledges from its journal."""
    role: str = server.call("GET", f"{API}/status").json()["role"]
    return role == "alone"


def recent() -> int:
    return int(time.time() * 1000) // HOUR_MS * HOUR_MS - 48 * HOUR_MS


class Storm:
    """Two senders to one server, and the faults between which each sends for a while."""

    def __init__(self, nodes: Sequence[NodeProcess], server: ServerProcess) -> None:
        """With several nodes a fault begins only once every node has all data."""
        self.nodes, self.server = nodes, server
        self.base = recent()
        self.acknowledged: dict[int, list[int]] = {0: [], 1: []}
        self._next = {0: 0, 1: 0}
        self._generator = random.Random(SEED)
        self._senders: list[Sender] = []

    def send(self) -> None:
        """Start the senders, and return when some batches are acknowledged."""
        self._senders = [Sender(self.server, self.base, worker, self._next[worker]) for worker in (0, 1)]
        for sender in self._senders:
            sender.start()
        self.go_on(self._generator.randint(0, 60))

    def go_on(self, batches: int) -> None:
        """Return when that many more batches are acknowledged."""
        enough = self._count() + batches
        wait_until(lambda: self._count() >= enough)

    def _count(self) -> int:
        return sum(len(one.acknowledged) for one in self._senders)

    def kill_server(self) -> None:
        self.server.kill()
        for sender in self._senders:
            sender.join()
            self.acknowledged[sender.worker] += sender.acknowledged
            self._next[sender.worker] = sender.number

    def fault(self) -> None:
        """Make one fault while samples come, then kill the server and start it on what is left."""
        kind = self._generator.choice(["none", "node killed", "node frozen"])
        node = self._generator.choice(self.nodes)
        if len(self.nodes) > 1:
            self.await_complete()
        self.send()
        if kind == "node killed":
            with node.killed():
                self.go_on(5)  # the journal takes them
        elif kind == "node frozen":
            with node.frozen():
                self.go_on(5)
        self.kill_server()
        self.server.start()

    def await_complete(self) -> None:
        wait_until(lambda: complete_replicas(self.server) == len(self.nodes))

    def verify(self) -> None:
        assert sum(map(len, self.acknowledged.values())) > 0
        for worker, numbers in self.acknowledged.items():
            check(self.server, self.base, worker, numbers)


@pytest.mark.slow
def test_acknowledged_samples_survive_kills_of_the_server_and_of_the_node_once(node, tmp_path) -> None:
    server = server_of(node, tmp_path / "data")
    storm = Storm([node], server)
    server.start()
    try:
        assert is_alone(server)
        for _ in range(FAULTS):
            storm.fault()
        storm.verify()
    finally:
        server.kill()


@pytest.mark.slow
def test_acknowledged_samples_are_on_each_replica_once_after_kills_of_server_and_replicas(tmp_path) -> None:
    with mortal_nodes(2) as nodes:
        server = server_of_replicas(nodes, tmp_path / "data")
        storm = Storm(nodes, server)
        server.start()
        try:
            for _ in range(FAULTS):
                storm.fault()
            storm.await_complete()
            storm.send()
            with nodes[0].killed():  # and the server, which starts on the other one
                storm.kill_server()
                server.start()
                storm.verify()
            storm.await_complete()
            with nodes[1].killed():
                storm.verify()
                assert server.ingest(batch(storm.base, 2, 0)).status == 200
        finally:
            server.kill()


@pytest.mark.slow
def test_a_node_that_is_away_refuses_questions_and_no_samples(node, tmp_path) -> None:
    server = server_of(node, tmp_path / "data")
    server.start()
    try:
        base = recent()
        assert server.ingest(batch(base, 0, 0)).status == 200
        node.kill()
        assert server.ingest(batch(base, 0, 1)).status == 200
        query: dict[str, Any] = {
            "metric": "app.number",
            "start": base,
            "end": base + HOUR_MS,
            "step": "1h",
            "statistic": "count",
        }
        refused = server.call("GET", f"{API}/jobs/crash/metrics", **query)
        assert refused.status == 503
        assert refused.json()["error"]["message"].endswith("it cannot be reached")
        node.start()
        wait_until(lambda: server.call("GET", f"{API}/jobs/crash/metrics", **query).status == 200)
        check(server, base, 0, [0, 1])
    finally:
        server.kill()


@pytest.mark.slow
def test_a_full_disk_refuses_samples_and_loses_none(node, tmp_path) -> None:
    small = tmp_path / "small"
    if os.geteuid() != 0 or not mounted(small, "-o", "size=24m"):
        pytest.skip("needs the right to mount a tmpfs")
    with ExitStack() as stack:
        stack.callback(lambda: os.system(f"umount -l {small}"))
        server = server_of(node, small / "data")
        server.start()
        stack.callback(server.kill)
        base = recent()
        filler = small / "filler"
        with filler.open("wb", buffering=0) as file:
            free = os.statvfs(small)
            file.write(b"\0" * (free.f_bavail * free.f_frsize))
        stored = [number for number in range(3) if server.ingest(batch(base, 0, number)).status == 200]
        refused = server.ingest(batch(base, 0, 3))
        assert refused.status == 503
        assert "disk is full" in refused.json()["error"]["message"]
        filler.unlink()
        wait_until(lambda: server.ingest(batch(base, 0, 4)).status == 200)
        server.kill()
        server.start()
        check(server, base, 0, [*stored, 4])


@pytest.mark.slow
def test_two_servers_on_one_node_read_all_samples_also_after_either_is_killed(node, tmp_path) -> None:
    with ExitStack() as stack:
        registry = stack.enter_context(fresh_database(stack.enter_context(own_server()).url))
        first = server_of(node, tmp_path / "first", "--registry", registry)
        first.start()
        stack.callback(first.kill)
        assert is_alone(first)
        base = recent()
        assert first.ingest(batch(base, 0, 0)).status == 200
        (tmp_path / "second").mkdir(mode=0o700)
        secret = tmp_path / "second" / "secret.key"
        secret.write_bytes((tmp_path / "first" / "secret.key").read_bytes())
        secret.chmod(0o600)
        second = server_of(node, tmp_path / "second", "--registry", registry)
        second.start()
        stack.callback(second.kill)
        second.token = first.token
        check(second, base, 0, [0])
        assert not is_alone(first)
        for number in range(1, 16):
            one, other = (first, second) if number % 2 else (second, first)
            assert one.ingest(batch(base, 0, number)).status == 200
            check(other, base, 0, [number])
        first.kill()  # the second one has copies of all samples that the node lacks
        wait_until(lambda: is_alone(second))
        check(second, base, 0, list(range(16)))
        assert second.ingest(batch(base, 0, 16)).status == 200
        first.start()
        check(first, base, 0, list(range(17)))
        second.stop()
        wait_until(lambda: is_alone(first))
        assert first.ingest(batch(base, 0, 17)).status == 200
        first.kill()  # alone: its journal has the last samples
        second.start()  # reaches the folder of the first one
        check(second, base, 0, list(range(18)))
