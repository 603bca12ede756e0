"""The store contract on embedded chDB."""

import pytest

from jobmeter.model.batch import SeriesKeys
from jobmeter.store.base import Store
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.testing.samples import FOREVER, batch_of
from jobmeter.testing.store import StoreTests


class TestEmbedded(StoreTests):
    @pytest.fixture
    def store(self, chdb_store: Store) -> Store:
        return chdb_store

    def test_what_is_new_is_called_unwritten_and_what_an_earlier_process_wrote_is_not(self, chdb_store, slot):
        here = chdb_store._catalog
        before = Catalog(here._write, here._read, chdb_store._maintenance._target, here._clock)
        one, two = slot.gauge("worker-0"), slot.gauge("worker-1")
        keys = SeriesKeys.of([one, two])
        assert chdb_store.unwritten(keys).tolist() == before.unwritten(keys.series).tolist() == [True, True]
        chdb_store.append(batch_of({(one, slot.start): 1.0}), FOREVER)
        after = Catalog(here._write, here._read, chdb_store._maintenance._target, here._clock)
        assert chdb_store.unwritten(keys).tolist() == after.unwritten(keys.series).tolist() == [False, True]
