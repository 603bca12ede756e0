"""Tests of three servers on one ClickHouse node and one PostgreSQL: shared signatures, limits and records."""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobmeter.examples.acs3 import KeyPair, sign
from jobmeter.model.time import SystemClock
from tests.e2e.test_crash import batch
from tests.support.clickhouse import node
from tests.support.frames import records
from tests.support.postgresql import PostgreSQL, own_server
from tests.support.processes import ServerProcess
from tests.support.waiting import wait_until

BURST = 12
RATES = f"GetJob=0.001:{BURST}"
HOST = "jobmeter.test"


class Servers:
    """Servers that share the keys of the first one. Number 0 starts alone."""

    def __init__(self, folder: Path, store: str, registry: str, database: PostgreSQL, processes: str) -> None:
        self.database = database
        environment = {"JOBMETER_RATE_LIMITS": RATES, "JOBMETER_PROCESSES": processes}
        options = ("--store", store, "--registry", registry)
        self.all = [ServerProcess(folder / str(number), *options, environment=environment) for number in range(3)]
        self.first = self.all[0].start()

    def start(self, number: int) -> ServerProcess:
        server = self.all[number]
        if not server.data.exists():
            server.data.mkdir(mode=0o700)
            shutil.copy2(self.first.data / "secret.key", server.data)
        server.start()
        server.token = self.first.token
        return server

    def signed(self, action: str = "GetJob", job: str = "crash") -> tuple[str, dict[str, str]]:
        """Return a new signed request: its target and its headers."""
        key = KeyPair(self.first.admin["access_key_id"], self.first.admin["access_key_secret"])
        path = f"/api/v1/jobs/{job}"
        headers = sign("GET", HOST, path, {}, ("2020-12-03", action), key, SystemClock())
        headers["Host"] = headers.pop("host")
        return path, headers

    def send(self, number: int, call: tuple[str, dict[str, str]]) -> int:
        """Send a request, and return the status of its answer."""
        return self.all[number].call("GET", call[0], headers=call[1]).status


def _end(server: ServerProcess) -> None:
    """Kill a server if it was started."""
    if server._process:
        server.kill()


@pytest.fixture
def servers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Start servers in turn. The parameter is the number of HTTP processes of each."""
    with ExitStack() as stack:
        database = stack.enter_context(own_server())
        registry = f"{database.url}/postgres"
        store = f"{stack.enter_context(node()).dsn}/jobmeter"
        made = Servers(tmp_path, store, registry, database, getattr(request, "param", "1"))
        for server in made.all:
            stack.callback(_end, server)
        yield made


@pytest.mark.slow
def test_several_servers_admit_calls_as_one_server_does(servers: Servers) -> None:
    base = int(time.time() * 1000) // 1000 * 1000 - 600_000
    assert servers.first.ingest(batch(base, 0, 0)).status == 200
    alone = servers.signed()
    assert servers.send(0, alone) == 200
    servers.start(1)
    servers.start(2)
    # Use a signature that a server accepted while alone, and one that it accepts beside others.
    for call in (alone, servers.signed()):
        accepted = [servers.send(number, call) for number in (1, 2, 0)]
        assert accepted == ([400] * 3 if call is alone else [200, 400, 400])
    # Read a changed record at another server right before and after the change.
    for number in range(20):
        writer, reader = servers.all[number % 3], servers.all[(number + 1) % 3]
        reader.request("GET", "/jobs/crash")
        assert writer.ingest(records({"jobs": [{"job_id": "crash", "name": f"name-{number}"}]})).status == 200
        assert reader.request("GET", "/jobs/crash").json()["job"]["name"] == f"name-{number}"
    # Concurrent requests to all servers share the rest of the burst, even if a server dies meanwhile.
    calls = [(number % 3, servers.signed()) for number in range(30)]
    with ThreadPoolExecutor(6) as threads:
        statuses = list(threads.map(lambda call: servers.send(*call), calls[:15]))
        servers.all[2].kill()
        statuses += threads.map(lambda call: servers.send(call[0] % 2, call[1]), calls[15:])
    assert statuses.count(200) <= BURST
    assert statuses.count(200) >= BURST - 2
    # Without PostgreSQL no server can know whether another one accepted a signature.
    servers.database.kill()
    assert servers.send(0, servers.signed()) == 503
    assert servers.first.ingest(batch(base, 0, 1)).status == 200
    servers.database.start()
    wait_until(lambda: servers.send(0, servers.signed()) == 200)  # the buckets are full after the crash
