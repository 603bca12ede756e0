"""The store contract on two shards with two replicas each: four real ClickHouse servers without Keeper."""

from collections.abc import Iterator, Sequence

import pytest
from tests.store_contract.store import StoreTests
from tests.support.clickhouse import NodeProcess, mortal_nodes

from jobmeter.model.time import SystemClock
from jobmeter.store.base import Store
from jobmeter.store.registry import open_store


def address(servers: Sequence[NodeProcess], shards: int) -> str:
    hosts = ",".join(f"127.0.0.1:{one.own.http}" for one in servers)
    return f"clickhousedb://{hosts}/telemetry?shards={shards}"


@pytest.fixture(scope="module")
def servers() -> Iterator[Sequence[NodeProcess]]:
    with mortal_nodes(4) as four:
        yield four


@pytest.fixture(scope="module")
def engine(servers, tmp_path_factory) -> Iterator[Store]:
    store = open_store(address(servers, 2), SystemClock(), tmp_path_factory.mktemp("journals"))
    yield store
    store.close()


class TestShards(StoreTests):
    @pytest.fixture
    def store(self, engine: Store) -> Store:
        return engine
