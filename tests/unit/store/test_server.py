"""The store contract through ClickHouse's HTTP interface: a server for tests, or the one that a variable names."""

import os
import secrets
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from jobmeter.errors import UnavailableError
from jobmeter.model.time import SystemClock
from jobmeter.store.base import Store
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.pool import connect
from jobmeter.store.registry import open_store
from jobmeter.testing.slot import Slot
from jobmeter.testing.store import StoreTests

REAL = os.environ.get("JOBMETER_TEST_CLICKHOUSE", "")
"""``clickhousedb://user:password@host:port`` of a ClickHouse that tests may make a database on."""


CLUSTER = """<clickhouse>
  <tcp_port>9000</tcp_port>
  <macros><shard>01</shard><replica>r1</replica></macros>
  <remote_servers><main><shard><internal_replication>true</internal_replication>
    <replica><host>127.0.0.1</host><port>9000</port></replica>
  </shard></main></remote_servers>
</clickhouse>"""


@contextmanager
def serving(folder: Path, *config: str):
    """A server for tests; gives the base of its DSN."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("http_engine.py")), str(folder), *config],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"clickhousedb://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


@contextmanager
def opened(dsn: str):
    store = open_store(dsn, SystemClock())
    yield store
    store.close()


@pytest.fixture(scope="module")
def server_dsn(tmp_path_factory):
    database = f"jobmeter_{secrets.token_hex(4)}"
    if not REAL:
        with serving(tmp_path_factory.mktemp("server") / "data") as base:
            yield f"{base}/{database}"
        return
    yield f"{REAL}/{database}"
    target = parse_dsn(REAL)
    connect(target, None).command(f"DROP DATABASE {database}")


@pytest.fixture(scope="module")
def server_store(server_dsn):
    with opened(server_dsn) as store:
        yield store


@pytest.fixture(scope="module")
def cluster_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "config.xml").write_text(CLUSTER)
    with (
        serving(folder / "data", str(folder / "config.xml")) as base,
        opened(f"{base}/telemetry?cluster=main") as store,
    ):
        yield store


class TestServer(StoreTests):
    @pytest.fixture
    def store(self, server_store: Store) -> Store:
        return server_store


class TestCluster(StoreTests):
    """Through Distributed tables, over the one node that there is."""

    @pytest.fixture
    def store(self, cluster_store: Store) -> Store:
        return cluster_store


class TwoServers:
    """One server takes samples and answers, another one rolls up."""

    def __init__(self, first: Store, second: Store) -> None:
        self._first = first
        self.roll_up = second.roll_up

    def __getattr__(self, name: str) -> object:
        return getattr(self._first, name)


def test_two_servers_share_an_engine(server_dsn, server_store):
    with opened(server_dsn) as second:
        pair = cast("Store", TwoServers(server_store, second))
        contract = TestServer()
        contract.test_appends_during_a_roll_up_are_in_it_or_marked(pair, Slot())
        contract.test_a_late_sample_takes_an_hour_back_until_it_is_rolled_up_again(pair, Slot())
        contract.test_data_far_older_than_the_roll_ups_is_rolled_up_too(pair, Slot())


def test_a_server_that_cannot_be_reached_is_unavailable():
    with pytest.raises(UnavailableError, match="cannot be reached"):
        open_store("clickhousedb://127.0.0.1:1/jobmeter", SystemClock())
