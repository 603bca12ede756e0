"""Tests of the store contract on ClickHouse servers: one, two shards of a cluster, or one named by a variable."""

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.store_contract.samples import FOREVER, batch_of
from tests.store_contract.slot import Slot
from tests.store_contract.store import StoreTests
from tests.support.clickhouse import CLUSTER, each_node, node, shards

from jobmeter.errors import UnavailableError
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, SystemClock, TimeRange, parse_time
from jobmeter.store.base import SeriesSelector, Store
from jobmeter.store.clickhouse import membership, parse_dsn
from jobmeter.store.clickhouse.pool import connect
from jobmeter.store.clickhouse.servers import ServerRow, ServerTable
from jobmeter.store.registry import open_store

START = parse_time("2026-01-01")
ONE = Series("gpu.power", job="one", replica="worker-0")
REAL = os.environ.get("JOBMETER_TEST_CLICKHOUSE", "")
"""``clickhousedb://user:password@host:port`` of a ClickHouse on which tests may create a database."""


@contextmanager
def opened(dsn: str, journals: Path | None = None):
    store = open_store(dsn, SystemClock(), journals)
    yield store
    store.close()


@pytest.fixture(scope="module")
def server_dsn():
    database = f"jobmeter_{secrets.token_hex(4)}"
    if not REAL:
        with node() as server:
            yield f"{server.dsn}/{database}"
        return
    yield f"{REAL}/{database}"
    target = parse_dsn(REAL)
    client = connect(target, None)
    for name in (database, f"{database}_alone", f"{database}_expelled"):
        client.command(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture(scope="module")
def server_store(server_dsn):
    with opened(server_dsn) as store:
        yield store


@pytest.fixture(scope="module")
def cluster():
    with shards(2) as nodes, each_node(nodes):
        yield nodes


@pytest.fixture(scope="module")
def cluster_store(cluster):
    with opened(f"{cluster[0].dsn}/telemetry?cluster={CLUSTER}") as store:
        yield store


class TestServer(StoreTests):
    @pytest.fixture
    def store(self, server_store: Store) -> Store:
        return server_store


@pytest.fixture(scope="module")
def alone_store(server_dsn, tmp_path_factory):
    with opened(f"{server_dsn}_alone", tmp_path_factory.mktemp("journals")) as store:
        assert store.node_log.is_alone
        yield store


class TestAlone(StoreTests):
    """Store contract with a journal before the server, as the only server of its database."""

    @pytest.fixture
    def store(self, alone_store: Store) -> Store:
        return alone_store


class TestCluster(StoreTests):
    """Store contract through Distributed tables, over two shards."""

    @pytest.fixture
    def store(self, cluster_store: Store) -> Store:
        return cluster_store


class TwoServers:
    """Pair of servers: the first takes samples and answers, the second rolls up."""

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


def test_a_server_that_others_may_have_expelled_neither_answers_nor_acknowledges(server_dsn, monkeypatch):
    with opened(f"{server_dsn}_expelled") as store:
        store.append_all((batch_of({(ONE, START): 1.0}),), FOREVER)
        done = store.rollup_state.read_done()
        store.membership.stop()
        with monkeypatch.context() as patch:
            patch.setattr(membership, "FENCE_SECONDS", -1.0)
            for use in (
                lambda: store.find(SeriesSelector(jobs=(ONE.job_key,))),
                lambda: store.find_rolled_up_ranges((ONE.job_key,), TimeRange(0, HOUR)),
                lambda: store.append_all((batch_of({(ONE, START): 2.0}),), FOREVER),
                lambda: store.roll_up(done + 2 * HOUR),
            ):
                with pytest.raises(UnavailableError, match="cannot confirm that it sees"):
                    use()
        assert store.rollup_state.read_done() == done


def test_a_node_refuses_the_late_roll_up_of_an_expelled_server(server_dsn):
    with opened(f"{server_dsn}_expelled") as store:
        store.membership.stop()
        done = store.rollup_state.read_done()
        ServerTable(store.maintenance.pool, SystemClock()).expel(ServerRow(store.membership.number))
        with pytest.raises(UnavailableError, match=r"cannot (roll up|note how far roll-ups are)"):
            store.roll_up(done + 2 * HOUR)
        assert store.rollup_state.select_progress()["intent"] < done + 2 * HOUR


def test_a_server_that_cannot_be_reached_is_unavailable():
    with pytest.raises(UnavailableError, match="cannot be reached"):
        open_store("clickhousedb://127.0.0.1:1/jobmeter", SystemClock())
