"""Installations for storms: servers, their ClickHouse servers, and their PostgreSQL."""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.clickhouse import NodeProcess, mortal_nodes
from tests.support.postgresql import PostgreSQL, own_server
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until


class RestartedServer:
    """Server that restarts whenever it ends, as under a service manager."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.failed_starts = 0
        self.ends: list[str] = []
        """Last log lines before each end that no fault caused."""
        self._wanted, self._down, self._over = threading.Event(), threading.Event(), threading.Event()
        self._down.set()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def revive(self) -> None:
        """Start the server, and restart it after each end from now on."""
        self._wanted.set()

    def kill(self) -> None:
        """Kill the server with its workers. It stays down until ``revive``."""
        self._wanted.clear()
        while not self._down.wait(0.05):
            with suppress(AssertionError):
                self.server.kill()

    def close(self) -> None:
        """Kill the server for good."""
        self._over.set()
        self.kill()
        self._wanted.set()
        self._thread.join()

    def await_ready(self) -> None:
        """Return when the server answers questions."""
        wait_until(self._is_ready, f"an answer of {self.server.data.name}")

    def _is_ready(self) -> bool:
        with suppress(Exception):
            return self.server.call("GET", f"{API}/jobs", seconds=5.0, limit=1).status == 200
        return False

    def _keep(self) -> None:
        while not self._over.is_set():
            self._wanted.wait()
            if self._over.is_set():
                return
            self._down.clear()
            self._run_once()
            if not self._wanted.is_set():
                self._down.set()

    def _run_once(self) -> None:
        try:
            self.server.start()
        except AssertionError:  # for example while PostgreSQL is down
            self.failed_starts += self._wanted.is_set()
            return
        self.server.process.wait()
        if self._wanted.is_set():
            self.ends.append("\n".join(self.server.output().splitlines()[-5:]))


@dataclass(frozen=True)
class Installation:
    """Everything that a storm can kill and freeze. The other servers share the keys of the first one.

    ``stores`` are values of ``--store`` with different numbers of shards; a single one if the number is constant.
    """

    servers: Sequence[RestartedServer]
    nodes: Sequence[NodeProcess]
    database: PostgreSQL
    stores: Sequence[str]


@dataclass(frozen=True)
class Topology:
    """Number of servers of each kind. The nodes are distributed over ``shards`` shards.

    ``resized`` removes and adds the last shard again and again.
    """

    servers: int
    nodes: int
    shards: int = 1
    resized: bool = False

    def list_stores(self, nodes: Sequence[NodeProcess]) -> Sequence[str]:
        """Return the addresses of the engine. The first one has all shards."""
        hosts = ",".join(f"127.0.0.1:{node.own.http}" for node in nodes)
        whole = f"clickhousedb://{hosts}/jobmeter" + (f"?shards={self.shards}" if self.shards > 1 else "")
        return [whole, f"{whole}&keep={self.shards - 1}"] if self.resized else [whole]

    @contextmanager
    def run(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Installation]:
        """Start everything, and kill it afterwards."""
        with ExitStack() as stack:
            database = stack.enter_context(own_server())
            nodes = stack.enter_context(mortal_nodes(self.nodes))
            stores = self.list_stores(nodes)
            options = ("--store", stores[0], "--registry", f"{database.url}/postgres", *options)
            made: list[RestartedServer] = []
            for number in range(self.servers):
                kept = RestartedServer(ServerProcess(folder / str(number), *options, environment=environment))
                stack.callback(kept.close)
                if made:
                    _share_keys(made[0].server, kept.server)
                kept.revive()
                kept.await_ready()
                made.append(kept)
            yield Installation(made, nodes, database, stores)


def _share_keys(first: ServerProcess, other: ServerProcess) -> None:
    """Give another server the keys of the first one."""
    other.data.mkdir(mode=0o700)
    shutil.copy2(first.data / "secret.key", other.data)
    other.token = first.token


TOPOLOGIES: Mapping[str, Topology] = {
    "leader": Topology(servers=3, nodes=1),
    "replicas": Topology(servers=3, nodes=2),
    "shards": Topology(servers=1, nodes=4, shards=2),
    "resized": Topology(servers=1, nodes=4, shards=2, resized=True),
    "cluster": Topology(servers=3, nodes=4, shards=2),
}
"""Topologies with a single ClickHouse server, two replicas, or two shards of two replicas.

A ``resized`` topology removes and adds the second shard while samples arrive.
"""
