"""The store contract on the store that forgets."""

import pytest
from tests.store_contract.store import StoreTests
from tests.support.memory_store import MemoryStore

from jobmeter.store.base import Store


class TestMemory(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
