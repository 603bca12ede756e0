"""Places the rows of a store on more or fewer shards, beside traffic.

Jump consistent hashing moves rows to the new shards only, or from the removed last shards only. Passes copy these rows,
as in ``move``. When little is left, writes to the sources are refused until each complete replica of each destination
has the same rows. Then the record of the shards changes, the sources drop the rows, and writes continue.

Shards that have rows and get others answer without the copies until the record changes. Before the first copy, the
record says by an odd version that there may be copies: a later start continues, or drops them.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.engine import ClickHouseStore
from jobmeter.store.clickhouse.failures import translate_failures
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


class PlacementChange:
    """Implements ``jobmeter.store.shards.store.PlacementWork``."""

    def __init__(
        self, placement: ShardSet, engines: Sequence[ClickHouseStore], record: ShardRecord, count: int, clock: Clock
    ) -> None:
        """Place rows on the first ``count`` of these engines. ``record`` says how many of them have rows now."""
        self._placement = placement
        self._record = record
        self._before, self._after = record.shards, count
        self._engines = engines[: max(self._before, self._after)]
        self._sources = range(self._before) if self._grows else range(self._after, self._before)
        self._destinations = range(self._before, self._after) if self._grows else range(self._after)
        self._clock = clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jobmeter-placement", daemon=True)
        if not self._grows:
            self._hide_copies()

    @property
    def _grows(self) -> bool:
        return self._after > self._before

    def _hide_copies(self) -> None:
        """Let shards that have rows answer without the rows that are copied to them."""
        for number in self._destinations:
            self._engines[number].hide_others(number, self._before)

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
                self._change()
            except JobmeterError as error:
                if said != error.message and not self._over.is_set():
                    said = error.message
                    _log.warning("rows are not on %d shards yet: %s", self._after, said)
            except Exception:  # noqa: BLE001 - the next attempt may succeed
                _log.exception("rows cannot be placed on other shards")
            else:
                return
            self._over.wait(AGAIN_SECONDS)

    def _change(self) -> None:
        began = self._clock.monotonic()
        until = max(engine.rollup_state.read_done() for engine in self._engines)
        for engine in self._engines[: self._before]:
            engine.roll_up(until)
        sources, destinations = ([self._engines[one] for one in some] for some in (self._sources, self._destinations))
        if not self._grows and not self._record.moves:
            self._note(self._record.version + 1, self._before)  # another start drops the copies, or continues
        with ExitStack() as stack:
            numbers = [_replicas(engine).record.number for engine in destinations]
            copies = [self._open_copies(shard, stack) for shard in self._destinations]
            for some in copies:
                for _, copying in some:
                    self._follow(copying.passes())
            with _refusing(sources) as leave_sources:
                _require_equal_rollups(sources)
                for engine, some, number in zip(destinations, copies, numbers, strict=True):
                    self._check(_replicas(engine), some, number)
                for engine in destinations:
                    engine.maintenance.adopt([one.rollup_state for one in sources])
                with _refusing(destinations) as leave_destinations:
                    _require_equal_rollups(self._engines)
                    self._place(lambda: (leave_sources(), leave_destinations()))
        took = self._clock.monotonic() - began
        copied = sum(copying.copied for some in copies for _, copying in some)
        _log.info("rows are on %d shards now: %d rows were copied in %.1f s", self._after, copied, took)

    def _place(self, leave: Callable[[], object]) -> None:
        """Place the rows. From the first record on there is no way back.

        Writes are refused until each shard has the record. If the store is closed before, the next start goes on.
        """
        try:
            self._placement.change(self._after, self._switch, _DRAIN_SECONDS)
        except JobmeterError as error:
            if self._placement.count == self._before:
                raise
            _log.warning("the placement of rows on %d shards is not finished yet: %s", self._after, error.message)
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
        """Return a copy from each source to each complete replica of a destination, with the number of the source."""
        replicas = _replicas(self._engines[shard])
        found: list[tuple[int, SliceCopy]] = []
        for place in replicas.list_readable():
            target = replicas.target.with_server(place)
            pool = stack.enter_context(closing(Pool(target, 1, silence_seconds=SILENCE_SECONDS)))
            there = EngineTables(pool, target)
            for number in self._sources:
                engine = self._engines[number]
                here = stack.enter_context(engine.move_source().open_tables())
                ways = (number, self._before), (shard, self._after)
                tables = [table.select_shards(*ways) for table in TABLES if table.table in NUMBERS]
                found.append((number, SliceCopy(here, there, self._clock, engine.maintenance.flush, tables)))
        return found

    def _follow(self, steps: Iterator[object]) -> None:
        for _ in steps:
            if self._over.is_set():
                raise UnavailableError("the store is closed")

    def _check(self, replicas: ReplicaSet, copies: _Copies, number: int) -> None:
        """Copy until each complete replica of a destination has all rows. No repair ends meanwhile."""
        with replicas.statements.lock_exclusive():
            for _, copying in copies:
                copying.is_quiet = True
                self._follow(copying.copy_until_equal())
            if replicas.record.number != number:
                raise UnavailableError("the complete replicas of a shard that gets rows changed")
            for source, copying in copies:
                self._engines[source].move_source().require_complete(copying.source)

    def _switch(self) -> None:
        """Write the new record, and drop the rows from the shards that had them."""
        for number in self._destinations:
            self._engines[number].hide_others(0, 1)
        placing = self._record.version + 1 | 1
        self._note(placing, self._after)
        for number in self._sources:
            drop_moved(self._engines[number], number, self._after)
        self._note(placing + 1, self._after)

    def _note(self, version: int, count: int) -> None:
        for number, engine in enumerate(self._engines, 1):
            record = self._record._replace(number=number, version=version, shards=count)
            with translate_failures("note its shard"), engine.maintenance.pool.borrow_client() as client:
                write_record(client, record)
        if count == self._before:
            self._record = self._record._replace(version=version)


def _require_equal_rollups(engines: Sequence[ClickHouseStore]) -> None:
    """Raise UnavailableError if the roll-ups of some shards do not end at the same hour."""
    if len({engine.rollup_state.read_done() for engine in engines}) > 1:
        raise UnavailableError("a roll-up ran meanwhile")


@contextmanager
def _refusing(engines: Sequence[ClickHouseStore]) -> Iterator[Callable[[], None]]:
    """Refuse writes to some shards inside the block. The block gets a function that makes this last for ever."""
    reason = "rows are placed on other shards: try again in some seconds"
    with ExitStack() as stack:
        leaving = ExitStack()
        for engine in engines:
            leaving.callback(stack.enter_context(engine.maintenance.refuse_writes(reason)))
        yield leaving.close


def drop_moved(engine: ClickHouseStore, shard: int, count: int) -> None:
    """Delete the rows that belong to other shards. On return no read finds them."""
    for table in NUMBERS:
        with translate_failures("drop rows that were moved"), engine.maintenance.pool.borrow_client() as client:
            client.command(
                f"ALTER TABLE {table} DELETE WHERE NOT ({is_on(table, shard, count)}) SETTINGS mutations_sync = 0"
            )


def _replicas(engine: ClickHouseStore) -> ReplicaSet:
    assert engine.replicas is not None  # noqa: S101 - each shard has a set of replicas
    return engine.replicas
