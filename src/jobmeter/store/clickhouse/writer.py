"""Appending: descriptors, marks, samples, in the order that keeps every promise if the power goes in between."""

from collections.abc import Sequence

from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import Keeper
from jobmeter.store.clickhouse.ledger import Ledger
from jobmeter.store.clickhouse.rows import JobHour, Rows


class Writer:
    """See ``Store.append``."""

    def __init__(self, catalog: Catalog, ledger: Ledger, keeper: Keeper) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._keeper = keeper

    def append(self, batches: Sequence[SampleBatch], retention: Retention) -> None:
        """Keep batches: first who the series are, then which hours are late, then the samples, all in one commit."""
        batches = [batch for batch in batches if len(batch)]
        if not batches:
            return
        self._catalog.ensure(batches, retention)
        group = [Rows.of(batch, retention) for batch in batches]
        intent = self._ledger.intent()
        touched = _touched(group, intent)
        self._ledger.mark_before(touched)
        self._keeper.commit(*group)
        # A roll-up may have begun since, and may have looked before these samples were there.
        intent_now = self._ledger.intent()
        self._ledger.mark_after(touched if intent_now == intent else _touched(group, intent_now))


def _touched(group: Sequence[Rows], before_ms: int) -> set[JobHour]:
    return set[JobHour]().union(*(rows.touched(before_ms) for rows in group))
