"""The store as a whole: connections, schema, and the parts that do the work."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from jobmeter.errors import JobmeterError
from jobmeter.model.batch import Bools, BucketColumns, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series
from jobmeter.model.time import Clock, TimeRange
from jobmeter.store.base import LogSelector, Memory, NoMemory, ReadBudget, Selector, StoreStatistics, Tier
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import Committer, Flusher, Keeper
from jobmeter.store.clickhouse.damage import Damage, advice
from jobmeter.store.clickhouse.journal import Journal
from jobmeter.store.clickhouse.ledger import Ledger
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.logs import LogReader, LogWriter
from jobmeter.store.clickhouse.lookup import Lookup
from jobmeter.store.clickhouse.maintenance import Maintenance
from jobmeter.store.clickhouse.mend import mend
from jobmeter.store.clickhouse.migrate import create_database, migrate
from jobmeter.store.clickhouse.pool import Pool, connect
from jobmeter.store.clickhouse.reader import Reader
from jobmeter.store.clickhouse.rollup import Roller
from jobmeter.store.clickhouse.target import Target
from jobmeter.store.clickhouse.writer import Writer
from jobmeter.store.damage import DamagedPart

_log = logging.getLogger(__name__)
_JOURNAL = "journal"
_READERS = 12
"""More than all long questions and raw exports together may hold: ``jobmeter.server.turns``."""
_WRITERS = 4


class ClickHouseStore:
    """``jobmeter.store.base.Store`` on ClickHouse.

    Constructing it creates the database where there is none and migrates it. Raises ConfigurationError where an
    embedded store is in use elsewhere or was made by a newer program, UnavailableError where it cannot be reached.
    A process that forks must do so before: the embedded engine does not survive a fork.
    """

    memory: Memory = NoMemory()
    """See ``Store.memory``."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._lock = FolderLock(target.path) if target.path is not None else None
        self._closing = threading.Lock()
        self._pools: list[Pool] = []
        self._keeper: Keeper | None = None
        try:
            self._open(target, clock)
        except BaseException:
            self.close()
            raise

    def _open(self, target: Target, clock: Clock) -> None:
        first = connect(target, None)
        try:
            create_database(first, target)
        finally:
            first.close()
        read, write = Pool(target, _READERS), Pool(target, _WRITERS)
        self._pools = [read, write]
        with write.client() as client:
            migrate(client, target, clock)
        self._ledger = Ledger(write, target, clock)
        self._damage = _damage(target, read, write)
        if mend(self._damage.parts(), write, target, clock):
            self._ledger.reload()
        self._catalog = Catalog(write, read, target, clock)
        self._keeper = self._opened_keeper(target, write)
        self._writer = Writer(self._catalog, self._ledger, self._keeper)
        self._reader = Reader(read, self._keeper.pending)
        self._lookup = Lookup(read, self._reader, self._ledger, self._keeper.pending)
        self._roller = Roller(write, self._ledger, self._keeper.settle)
        self._log_writer = LogWriter(write)
        self._log_reader = LogReader(read, self._reader)
        self._maintenance = Maintenance(write, target, self._ledger, self._catalog, self._roller, self._keeper)
        if target.path is not None:
            self._warm()

    def _warm(self) -> None:
        """Ask for nothing: an engine that was just started takes many times as long for its first statements."""
        keys, span = SeriesKeys(np.zeros(1, np.uint64), np.zeros(1, np.uint64)), TimeRange(0, 1)
        with suppress(JobmeterError):  # whoever asks for something will be told
            self.find(Selector(jobs=(0,)))
            for _ in self.read(keys, span, ReadBudget()):
                pass
            self.read_buckets(keys, span, Tier.HOUR, ReadBudget())

    def _opened_keeper(self, target: Target, pool: Pool) -> Keeper:
        if target.path is None:
            return Committer(pool)
        journal = self._keeper = Journal(target.path / _JOURNAL, Flusher(pool))
        # What the process that died had marked is marked; what it had not come to is now.
        journal.recover(lambda rows: self._ledger.mark_before(rows.touched(self._ledger.intent())))
        return journal

    def append(self, batch: SampleBatch, retention: Retention = Retention()) -> None:  # noqa: B008 - it is frozen
        """See ``Store.append``."""
        self._writer.append((batch,), retention)

    def append_all(
        self,
        batches: Sequence[SampleBatch],
        retention: Retention = Retention(),  # noqa: B008 - it is frozen
    ) -> None:
        """See ``Store.append_all``."""
        self._writer.append(batches, retention)

    def unwritten(self, keys: SeriesKeys) -> Bools:
        """See ``Store.unwritten``."""
        return self._catalog.unwritten(keys.series)

    def find(self, selector: Selector) -> list[Series]:
        """See ``Store.find``."""
        return self._catalog.find(selector)

    def names(self, selector: Selector, part: NamePart, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        return self._catalog.names(selector, part, prefix)

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Iterator[SampleColumns]:
        """See ``Store.read``. The budget's time begins with the first block."""
        return self._reader.read(keys, span, budget)

    def read_buckets(self, keys: SeriesKeys, span: TimeRange, tier: Tier, budget: ReadBudget) -> BucketColumns:
        """See ``Store.read_buckets``."""
        return self._lookup.read_buckets(keys, span, tier, budget)

    def previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """See ``Store.previous``. Of samples whose time is over, the last one of each hour is still known."""
        return self._lookup.previous(keys, before_ms, budget)

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """See ``Store.rolled``."""
        return self._roller.rolled(jobs, span)

    def revision(self, jobs: Sequence[int]) -> None:
        """See ``Store.revision``: others may write to the same samples."""

    def roll_up(self, until_ms: int) -> int:
        """See ``Store.roll_up``."""
        return self._roller.roll_up(until_ms)

    def last_times(self, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """See ``Store.last_times``."""
        return self._lookup.last_times(jobs)

    def append_logs(self, lines: Sequence[LogLine], retention: Retention = Retention()) -> None:  # noqa: B008 - frozen
        """See ``Store.append_logs``."""
        self._log_writer.append(lines, retention)

    def read_logs(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """See ``Store.read_logs``."""
        return self._log_reader.read(selector, budget)

    def delete_job(self, job: int) -> None:
        """See ``Store.delete_job``."""
        self._maintenance.delete_job(job)

    def erase(self) -> None:
        """Forget everything: for tests, and for an operator who begins anew. Nothing may be written meanwhile."""
        self._maintenance.erase()

    def damaged(self) -> Sequence[DamagedPart]:
        """See ``Store.damaged``."""
        return self._damage.parts()

    def statistics(self) -> StoreStatistics:
        """See ``Store.statistics``. Rows count a sample twice until its rewritten copy is merged."""
        return replace(self._maintenance.statistics(), damaged=self._damage.look())

    def backup(self, directory: Path) -> None:
        """See ``Store.backup``."""
        self._maintenance.backup(directory)

    def restore(self, directory: Path) -> None:
        """See ``Store.restore``."""
        self._maintenance.restore(directory)

    def close(self) -> None:
        """See ``Store.close``."""
        with self._closing:
            if self._keeper is not None:
                self._keeper.close()
            for pool in self._pools:
                pool.close()
            if self._lock is not None:
                self._lock.release()


def _damage(target: Target, read: Pool, write: Pool) -> Damage:
    """What of the engine is damaged; told in the log."""
    damage = Damage(write, target, target.path / _JOURNAL if target.path else None)
    for pool in (read, write):
        pool.watch(damage.note)
    for part in damage.look():
        _log.error("%s", advice(part))
    return damage
