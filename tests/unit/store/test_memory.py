"""Tests of the store contract on the store in memory."""

import pytest
from tests.store_contract.store import StoreTests
from tests.support.memory_store import MemoryStore

from jobmeter.store.base import Store


class TestMemory(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
