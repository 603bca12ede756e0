"""The store contract on the store that forgets."""

import pytest
from tests.memory_store import MemoryStore

from jobmeter.store.base import Store
from jobmeter.testing.store import StoreTests


class TestMemory(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
