"""Appending: descriptors, marks, samples, in the order that keeps every promise if the power goes in between."""

from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import Keeper
from jobmeter.store.clickhouse.ledger import Ledger
from jobmeter.store.clickhouse.rows import Rows


class Writer:
    """See ``Store.append``."""

    def __init__(self, catalog: Catalog, ledger: Ledger, keeper: Keeper) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._keeper = keeper

    def append(self, batch: SampleBatch, retention: Retention) -> None:
        """Keep a batch: first who the series are, then which hours are late, then the samples."""
        if not len(batch):
            return
        self._catalog.ensure(batch, retention)
        rows = Rows.of(batch, retention)
        intent = self._ledger.intent()
        touched = rows.touched(intent)
        self._ledger.mark_before(touched)
        self._keeper.commit(rows)
        # A roll-up may have begun since, and may have looked before these samples were there.
        intent_now = self._ledger.intent()
        self._ledger.mark_after(touched if intent_now == intent else rows.touched(intent_now))
