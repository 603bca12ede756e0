"""The store as a whole: connections, schema, and the parts that do the work."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from jobmeter.errors import JobmeterError
from jobmeter.model.batch import Bools, BucketColumns, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series
from jobmeter.model.span import Span, TracePage
from jobmeter.model.time import Clock, TimeRange
from jobmeter.model.trace_filter import SpanFilter, TraceFilter
from jobmeter.store.base import (
    NEWEST,
    LogSelector,
    Memory,
    ReadBudget,
    Selector,
    SeriesPage,
    SeriesPlace,
    StoreStatistics,
    Tier,
)
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import CommitLog, DirectInserts, Flusher
from jobmeter.store.clickhouse.damage import Damage, advice
from jobmeter.store.clickhouse.journal import Journal
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.logs import LogReader, LogWriter
from jobmeter.store.clickhouse.lookup import Lookup
from jobmeter.store.clickhouse.maintenance import Maintenance
from jobmeter.store.clickhouse.mend import mend
from jobmeter.store.clickhouse.migrate import create_database, migrate
from jobmeter.store.clickhouse.outbox import Outbox
from jobmeter.store.clickhouse.pending import NOTHING, Pending
from jobmeter.store.clickhouse.pool import Pool, connect
from jobmeter.store.clickhouse.reader import Reader
from jobmeter.store.clickhouse.rollup import Roller
from jobmeter.store.clickhouse.rollup_state import RollupState
from jobmeter.store.clickhouse.rows import JobHour, Rows
from jobmeter.store.clickhouse.spans import SpanReader, SpanWriter
from jobmeter.store.clickhouse.target import Target
from jobmeter.store.damage import DamagedPart

_log = logging.getLogger(__name__)
_JOURNAL = "journal"
_READERS = 12
"""Connections: more than long queries and raw exports together may use (``jobmeter.server.admission``)."""
_WRITERS = 4


class ClickHouseStore:
    """``jobmeter.store.base.Store`` on ClickHouse.

    Constructing it creates the database where there is none and migrates it. Raises ConfigurationError where an
    embedded store is in use elsewhere or was made by a newer program, UnavailableError where it cannot be reached.
    A process that forks must do so before: the embedded engine does not survive a fork.
    """

    memory: Memory | None = None
    """See ``Store.memory``."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._lock = FolderLock(target.path) if target.path is not None else None
        self._closing = threading.Lock()
        self._pools: list[Pool] = []
        self._commit_log: CommitLog | None = None
        try:
            self._open(target, clock)
        except BaseException:
            self.close()
            raise

    def _open(self, target: Target, clock: Clock) -> None:
        read, write = Pool(target, _READERS), Pool(target, _WRITERS)
        self._pools = [read, write]
        # Each connection takes a while to make: the one that makes the database is the first that is used.
        first = connect(target, None)
        write.add(first)
        create_database(first, target)
        first.database = target.database
        with write.client() as client:
            migrate(client, target, clock)
        self._rollup_state = RollupState(write, target, clock)
        self._damage = _damage(target, read, write)
        if mend(self._damage.parts(), write, target, clock):
            self._rollup_state.reload()
        self._catalog = Catalog(read, target, clock, self._pending)
        self._commit_log = self._opened_log(target, write)
        self._reader = Reader(read, self._commit_log.pending)
        self._lookup = Lookup(read, self._reader, self._rollup_state, self._commit_log.pending)
        self._roller = Roller(write, self._rollup_state, self._commit_log.flush)
        self._log_writer = LogWriter(write)
        self._log_reader = LogReader(read, self._reader)
        self.outbox = Outbox(write, read, target)
        self._span_writer, self._span_reader = SpanWriter(write), SpanReader(read)
        self._maintenance = Maintenance(
            write, target, self._rollup_state, self._catalog, self._roller, self._commit_log
        )
        if target.path is not None:
            self._warm(read)

    def _warm(self, read: Pool) -> None:
        """Run trivial statements: the first ones after a start of the engine take many times as long."""
        # Two connections: while the window is filled over one, the first question does not wait for another.
        with suppress(JobmeterError), read.client(), read.client():
            pass
        keys, span = SeriesKeys(np.zeros(1, np.uint64), np.zeros(1, np.uint64)), TimeRange(0, 1)
        with suppress(JobmeterError):  # the next statement reports it
            self.find(Selector(jobs=(0,)))
            for _ in self.read(keys, span, ReadBudget()):
                pass
            self.read_buckets(keys, span, Tier.HOUR, ReadBudget())

    def _opened_log(self, target: Target, pool: Pool) -> CommitLog:
        if target.path is None:
            return DirectInserts(pool)
        flusher = Flusher(pool)

        def insert(group: Sequence[Rows]) -> None:
            self._rollup_state.write_marks()
            flusher(group)

        journal = self._commit_log = Journal(target.path / _JOURNAL, insert)
        # What the process that died had marked, and not written, is marked again.
        journal.recover(
            lambda rows: self._rollup_state.dirty_before(rows.touched(self._rollup_state.intent())), self._catalog
        )
        if journal.damaged:
            self._damage.refresh()
        return journal

    def _pending(self) -> Pending:
        return NOTHING if self._commit_log is None else self._commit_log.pending()

    def append(self, batch: SampleBatch, retention: Retention = Retention()) -> None:  # noqa: B008 - it is frozen
        """See ``Store.append``."""
        self.append_all((batch,), retention)

    def append_all(
        self,
        batches: Sequence[SampleBatch],
        retention: Retention = Retention(),  # noqa: B008 - it is frozen
    ) -> None:
        """See ``Store.append_all``."""
        batches = [batch for batch in batches if len(batch)]
        if not batches or self._commit_log is None:
            return
        missing = self._catalog.missing(batches, retention)
        group = [Rows.of(*one, retention) for one in zip(batches, missing.descriptors, strict=True)]
        intent = self._rollup_state.intent()
        touched = _touched(group, intent)
        before = self._rollup_state.dirty_before(touched)
        self._commit_log.append(group)
        self._catalog.note(missing)
        # A roll-up may have begun since, and may have read before these samples were there.
        intent_now = self._rollup_state.intent()
        touched = touched if intent_now == intent else _touched(group, intent_now)
        if touched:
            self._rollup_state.dirty_after(touched, before)

    def unwritten(self, keys: SeriesKeys, since_ms: int = 0) -> Bools:
        """See ``Store.unwritten``."""
        return self._catalog.unwritten(keys.series, since_ms)

    def find(self, selector: Selector) -> list[Series]:
        """See ``Store.find``."""
        return self._catalog.find(selector)

    def live(self, since_ms: int, most: int, place: SeriesPlace = NEWEST) -> SeriesPage:
        """See ``Store.live``."""
        if place == NEWEST and self._commit_log is not None:
            with suppress(JobmeterError):
                self._commit_log.flush()
        return self._catalog.live(since_ms, most, place)

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
        """See ``Store.previous``. Of expired samples the last one of each hour is still there."""
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

    def append_spans(self, spans: Sequence[Span], retention: Retention = Retention()) -> None:  # noqa: B008 - frozen
        """See ``Store.append_spans``."""
        self._span_writer.append(spans, retention)

    def read_traces(self, selector: TraceFilter, budget: ReadBudget) -> TracePage:
        """See ``Store.read_traces``."""
        return self._span_reader.traces(selector, budget)

    def read_spans(self, selector: SpanFilter, budget: ReadBudget) -> list[Span]:
        """See ``Store.read_spans``."""
        return self._span_reader.spans(selector, budget)

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
        return replace(self._maintenance.statistics(), damaged=self._damage.refresh())

    def backup(self, directory: Path) -> None:
        """See ``Store.backup``."""
        self._maintenance.backup(directory)

    def restore(self, directory: Path) -> None:
        """See ``Store.restore``."""
        self._maintenance.restore(directory)

    def close(self) -> None:
        """See ``Store.close``."""
        with self._closing:
            if self._commit_log is not None:
                self._commit_log.close()
            for pool in self._pools:
                pool.close()
            if self._lock is not None:
                self._lock.release()


def _touched(group: Sequence[Rows], before_ms: int) -> set[JobHour]:
    return set[JobHour]().union(*(rows.touched(before_ms) for rows in group))


def _damage(target: Target, read: Pool, write: Pool) -> Damage:
    """What of the engine is damaged; logged."""
    damage = Damage(write, target, target.path / _JOURNAL if target.path else None)
    for pool in (read, write):
        pool.watch(damage.note)
    for part in damage.refresh():
        _log.error("%s", advice(part))
    return damage
