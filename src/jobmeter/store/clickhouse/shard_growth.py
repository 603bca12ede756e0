"""Fills further shards of a store beside traffic, and then places rows on them.

Jump consistent hashing moves rows to the new shards only. Passes copy these rows, as in ``move``. When little is left,
writes are refused until each complete replica of each new shard has the same rows as the old shards. Then the record
of the shards changes, the old shards drop the rows, and writes continue.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.engine import ClickHouseStore
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.moved_tables import TABLES, EngineTables
from jobmeter.store.clickhouse.nodes import SILENCE_SECONDS
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.replicas import ReplicaSet
from jobmeter.store.clickhouse.shard_record import ShardRecord, write_record
from jobmeter.store.clickhouse.slice_copy import SliceCopy
from jobmeter.store.shards.placement import NUMBERS, is_on
from jobmeter.store.shards.shard import ShardSet

_log = logging.getLogger(__name__)
AGAIN_SECONDS = 10.0
"""Seconds between two attempts."""
_DRAIN_SECONDS = 3.0
"""Longest wait for questions that run, before rows are placed on the new shards."""
_SWITCH_SECONDS = 0.5
_STOP_SECONDS = 10.0
_Copies = Sequence[tuple[int, SliceCopy]]


class StoreGrowth:
    """Implements ``jobmeter.store.shards.store.ShardGrowth``."""

    def __init__(
        self, placement: ShardSet, engines: Sequence[ClickHouseStore], record: ShardRecord, clock: Clock
    ) -> None:
        """``engines`` are the engines of all shards. The record says how many of them have rows."""
        self._placement = placement
        self._old, self._new = engines[: record.shards], engines[record.shards :]
        self._engines = engines
        self._record = record
        self._clock = clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jobmeter-shard-growth", daemon=True)

    def start(self) -> None:
        """Begin on a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End. The next start continues."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        said = ""
        while not self._over.is_set():
            try:
                self._grow()
            except JobmeterError as error:
                if said != error.message and not self._over.is_set():
                    said = error.message
                    _log.warning("the new shards have no rows yet: %s", said)
            except Exception:  # noqa: BLE001 - the next attempt may succeed
                _log.exception("the new shards cannot be filled")
            else:
                return
            self._over.wait(AGAIN_SECONDS)

    def _grow(self) -> None:
        began = self._clock.monotonic()
        until = max(engine.rollup_state.done() for engine in self._engines)
        for engine in self._old:
            engine.roll_up(until)
        with ExitStack() as stack:
            numbers = [_replicas(engine).record.number for engine in self._new]
            copies = [self._open_copies(shard, stack) for shard in range(len(self._old), len(self._engines))]
            for some in copies:
                for _, copying in some:
                    self._follow(copying.passes())
            with _refusing(self._old) as leave_old:
                if len({engine.rollup_state.done() for engine in self._old}) > 1:
                    raise UnavailableError("a roll-up ran meanwhile")
                for engine, some, number in zip(self._new, copies, numbers, strict=True):
                    self._check(_replicas(engine), some, number)
                for engine in self._new:
                    engine.maintenance.adopt([one.rollup_state for one in self._old])
                with _refusing(self._new) as leave_new:
                    self._place(lambda: (leave_old(), leave_new()))
        took = self._clock.monotonic() - began
        copied = sum(copying.copied for some in copies for _, copying in some)
        _log.info("rows are on %d shards now: %d rows were copied in %.1f s", len(self._engines), copied, took)

    def _place(self, leave: Callable[[], object]) -> None:
        """Place rows on all shards. From the first record on there is no way back.

        Writes are refused until each shard has the record. If the store is closed before, the next start goes on.
        """
        try:
            self._placement.extend(len(self._engines), self._switch, _DRAIN_SECONDS)
        except JobmeterError as error:
            if self._placement.count == len(self._old):
                raise
            _log.warning("the placement of rows on more shards is not finished yet: %s", error.message)
            while not self._is_switched():
                if self._over.wait(_SWITCH_SECONDS):
                    leave()
                    raise UnavailableError("the store is closed") from error

    def _is_switched(self) -> bool:
        try:
            self._switch()
        except JobmeterError:
            return False
        return True

    def _open_copies(self, shard: int, stack: ExitStack) -> _Copies:
        """Return a copy from each old shard to each complete replica of a new shard, with the number of the old one."""
        replicas = _replicas(self._engines[shard])
        found: list[tuple[int, SliceCopy]] = []
        for place in replicas.list_readable():
            target = replicas.target.with_server(place)
            pool = stack.enter_context(closing(Pool(target, 1, silence_seconds=SILENCE_SECONDS)))
            there = EngineTables(pool, target)
            for number, engine in enumerate(self._old):
                here = stack.enter_context(engine.move_source().opened())
                ways = (number, len(self._old)), (shard, len(self._engines))
                tables = [table.select_shards(*ways) for table in TABLES if table.table in NUMBERS]
                found.append((number, SliceCopy(here, there, self._clock, engine.maintenance.flush, tables)))
        return found

    def _follow(self, steps: Iterator[object]) -> None:
        for _ in steps:
            if self._over.is_set():
                raise UnavailableError("the store is closed")

    def _check(self, replicas: ReplicaSet, copies: _Copies, number: int) -> None:
        """Copy until each complete replica of a new shard has all rows. No repair ends meanwhile."""
        with replicas.statements.exclusive():
            for _, copying in copies:
                copying.is_quiet = True
                self._follow(copying.copy_until_equal())
            if replicas.record.number != number:
                raise UnavailableError("the complete replicas of a new shard changed")
            for old, copying in copies:
                self._old[old].move_source().require_complete(copying.source)

    def _switch(self) -> None:
        """Write the new record, and drop the rows of the new shards from the old ones."""
        self._note(self._record.version + 1)
        for number, engine in enumerate(self._old):
            drop_moved(engine, number, len(self._engines))
        self._note(self._record.version + 2)

    def _note(self, version: int) -> None:
        for number, engine in enumerate(self._engines, 1):
            record = self._record._replace(number=number, version=version, shards=len(self._engines))
            with translated("note its shard"), engine.maintenance.pool.client() as client:
                write_record(client, record)


@contextmanager
def _refusing(engines: Sequence[ClickHouseStore]) -> Iterator[Callable[[], None]]:
    """Refuse writes to some shards. After the function that the block gets was called, for ever."""
    reason = "rows are placed on more shards: try again in some seconds"
    with ExitStack() as stack:
        leaving = ExitStack()
        for engine in engines:
            leaving.callback(stack.enter_context(engine.maintenance.refusing(reason)))
        yield leaving.close


def drop_moved(engine: ClickHouseStore, shard: int, count: int) -> None:
    """Delete the rows that belong to other shards. On return no read finds them."""
    for table in NUMBERS:
        with translated("drop rows that were moved"), engine.maintenance.pool.client() as client:
            client.command(
                f"ALTER TABLE {table} DELETE WHERE NOT ({is_on(table, shard, count)}) SETTINGS mutations_sync = 0"
            )


def _replicas(engine: ClickHouseStore) -> ReplicaSet:
    assert engine.replicas is not None  # noqa: S101 - each shard has a set of replicas
    return engine.replicas
