"""The store contract on embedded chDB."""

import pytest

from jobmeter.store.base import Store
from jobmeter.testing.store import StoreTests


class TestEmbedded(StoreTests):
    @pytest.fixture
    def store(self, chdb_store: Store) -> Store:
        return chdb_store
