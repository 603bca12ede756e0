"""Tests of the store contract on two shards with two replicas each."""

from collections.abc import Iterator

import pytest
from tests.store_contract.store import StoreTests
from tests.unit.store.shards.support import address, new_database, opened

from jobmeter.store.base import Store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sharded(servers, tmp_path_factory) -> Iterator[Store]:
    with opened(address(servers, new_database(), 2), tmp_path_factory.mktemp("journals")) as store:
        yield store


class TestShards(StoreTests):
    @pytest.fixture
    def store(self, sharded: Store) -> Store:
        return sharded
