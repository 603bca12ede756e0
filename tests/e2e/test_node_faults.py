"""Tests of servers that lose their ClickHouse node, fill their disk, or are killed beside another server.

``tests/storm`` kills and freezes servers at random moments.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_crash import batch, check
from tests.e2e.test_disk import mounted
from tests.support.clickhouse import NodeProcess, mortal_node
from tests.support.postgresql import fresh_database, own_server
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000


@pytest.fixture
def node() -> Iterator[NodeProcess]:
    with mortal_node() as process:
        yield process


def server_of(node: NodeProcess, data: Path, *options: str) -> ServerProcess:
    return ServerProcess(data, "--store", f"{node.own.dsn}/jobmeter", *options)


def is_alone(server: ServerProcess) -> bool:
    """Return True if the server is the only one of its node, and acknowledges from its journal."""
    role: str = server.call("GET", f"{API}/status").json()["role"]
    return role == "alone"


def recent() -> int:
    return int(time.time() * 1000) // HOUR_MS * HOUR_MS - 48 * HOUR_MS


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
        first.kill()  # the second server has copies of all samples that the node lacks
        wait_until(lambda: is_alone(second))
        check(second, base, 0, list(range(16)))
        assert second.ingest(batch(base, 0, 16)).status == 200
        first.start()
        check(first, base, 0, list(range(17)))
        second.stop()
        wait_until(lambda: is_alone(first))
        assert first.ingest(batch(base, 0, 17)).status == 200
        first.kill()  # alone: its journal contains the last samples
        second.start()  # with access to the folder of the first server
        check(second, base, 0, list(range(18)))
