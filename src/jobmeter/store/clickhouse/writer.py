"""Appending: descriptors, marks, samples, in the order that keeps every promise if the power goes in between."""

import numpy as np

from jobmeter.model.batch import SampleBatch, Uint64s
from jobmeter.model.retention import Retention
from jobmeter.model.time import HOUR
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import Committer, Rows
from jobmeter.store.clickhouse.ledger import JobHour, Ledger


class Writer:
    """See ``Store.append``."""

    def __init__(self, catalog: Catalog, ledger: Ledger, committer: Committer) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._committer = committer

    def append(self, batch: SampleBatch, retention: Retention) -> None:
        """Keep a batch: first who the series are, then which hours are late, then the samples."""
        if not len(batch):
            return
        jobs = batch.keys.job
        ids = batch.keys.series
        self._catalog.ensure(batch, jobs, ids, retention)
        intent = self._ledger.intent()
        touched = _touched(batch, jobs, intent)
        self._ledger.mark_before(touched)
        self._committer.commit(Rows(jobs[batch.index], ids[batch.index], batch.time, batch.value, retention))
        # A roll-up may have begun since, and may have looked before these samples were there.
        intent_now = self._ledger.intent()
        self._ledger.mark_after(touched if intent_now == intent else _touched(batch, jobs, intent_now))


def _touched(batch: SampleBatch, jobs: Uint64s, before_ms: int) -> set[JobHour]:
    """The (job, hour) pairs of the batch that lie before a time."""
    late = batch.time < before_ms
    if not late.any():
        return set()
    job, hour = jobs[batch.index[late]], batch.time[late] // HOUR
    # Rows come in runs of one job and hour: look at the first of each run only.
    first = np.empty(len(hour), np.bool_)
    first[0] = True
    np.logical_or(job[1:] != job[:-1], hour[1:] != hour[:-1], out=first[1:])
    return {(one, at * HOUR) for one, at in zip(job[first].tolist(), hour[first].tolist(), strict=True)}
