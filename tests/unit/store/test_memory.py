"""The store contract on the store that forgets."""

import pytest

from jobmeter.model.time import SystemClock
from jobmeter.store.base import Store
from jobmeter.store.registry import open_store
from jobmeter.testing.store import StoreTests


class TestMemory(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return open_store("memory://", SystemClock())
