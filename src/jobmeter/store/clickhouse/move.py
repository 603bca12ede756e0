"""Moves the data of an engine to another one, slice by slice, while a server reads and writes the first engine.

Passes copy what differs (``slice_copy``). When little is left, writes are refused until a pass finds no difference.
Only then the marks say where the data are (``move_marks``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from jobmeter.errors import ConfigurationError, ConflictError, InvalidRequestError, JobmeterError, UnavailableError
from jobmeter.model.move import MovedTable, MoveLine, MoveOrder, MoveReport, MoveStep
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.maintenance import Maintenance
from jobmeter.store.clickhouse.migrate import create_database, migrate
from jobmeter.store.clickhouse.move_marks import ARRIVING, COMPLETE, MoveMarks, mark_arrival, mark_departure, read_marks
from jobmeter.store.clickhouse.moved_tables import TABLES, EngineTables, SliceSum, TableSlices
from jobmeter.store.clickhouse.pool import Pool, connect
from jobmeter.store.clickhouse.replicas import ReplicaSet
from jobmeter.store.clickhouse.rollup_state import copy_states
from jobmeter.store.clickhouse.servers import ServerRow
from jobmeter.store.clickhouse.shard_record import ShardRecord, write_record
from jobmeter.store.clickhouse.slice_copy import NO_ROWS, SliceCopy, add_up
from jobmeter.store.clickhouse.target import EngineTarget, parse_dsn
from jobmeter.store.shards.placement import NUMBERS


class MoveSource(NamedTuple):
    """Source of a move: a store, or one shard of it. ``others`` returns the other servers that use it."""

    maintenance: Maintenance
    others: Callable[[], Sequence[ServerRow]]
    replicas: ReplicaSet | None

    @contextmanager
    def open_tables(self) -> Iterator[EngineTables]:
        """Open the tables: of one replica, because the states of partitions differ between replicas."""
        target = self.maintenance.target
        if self.replicas is not None:
            target = target.with_server(self.replicas.list_readable()[0])
        with closing(Pool(target, 1)) as pool:
            yield EngineTables(pool, target)

    def require_complete(self, tables: EngineTables) -> None:
        """Raise UnavailableError if the replica that was copied lacks rows meanwhile."""
        if self.replicas is not None and tables.target.places[0] not in self.replicas.list_readable():
            raise UnavailableError(f"{tables.target.name}, from which rows are copied, lacks rows itself: try again")


class StoreMove:
    """Move of the rows of one or more engines to others. Only this process writes to the latter."""

    def __init__(
        self,
        sources: Sequence[tuple[MoveSource, EngineTables]],
        destinations: Sequence[EngineTables],
        names: tuple[str, str],
        clock: Clock,
    ) -> None:
        """``names`` are the addresses of both stores. Several engines are the shards of a store, in their order."""
        self._sources = sources
        self._destinations = destinations
        self._from, self._to = names
        self._clock = clock
        self._tables = TABLES if len(sources) == 1 else [table for table in TABLES if table.table in NUMBERS]
        self._copying = [
            SliceCopy(source, destination, clock, one.maintenance.flush, self._divide(number, shard))
            for number, (one, source) in enumerate(sources)
            for shard, destination in enumerate(destinations)
        ]

    def _divide(self, source: int, destination: int) -> Sequence[TableSlices]:
        """Return the tables with the rows that go from one engine to another."""
        both = (source, len(self._sources)), (destination, len(self._destinations))
        return [table.select_shards(*both) for table in self._tables]

    def compare(self) -> Iterator[MoveLine]:
        """Compare all slices, and write nothing."""
        for source, _ in self._sources:
            source.maintenance.flush()
        found: list[MovedTable] = []
        for place, table in enumerate(self._tables):
            yield MoveLine(step=MoveStep(table=table.table, done=0, total=1, rows=0))
            slices = rows = 0
            total = NO_ROWS
            for copying in self._copying:
                part = copying.tables[place]
                differing, some = copying.compare(part, copying.find_changed(part))
                slices, rows = slices + len(differing), rows + sum(here.rows for _, here, _ in differing)
                total = add_up([total, some])
            found.append(replace(_describe_table(table, total), slices=slices, differing_rows=rows))
        yield MoveLine(report=MoveReport(tables=found))

    def run(self) -> Iterator[MoveLine]:
        """Move everything."""
        identity = self._sources[0][1].read_identity()
        if self._begin(identity):
            yield MoveLine(report=MoveReport(moved=True))
            return
        for copying in self._copying:
            yield from (MoveLine(step=step) for step in copying.passes())
        with ExitStack() as stack:
            leaving = [stack.enter_context(source.maintenance.refuse_writes()) for source, _ in self._sources]
            began = self._clock.monotonic()
            for copying in self._copying:
                copying.is_quiet = True
                yield from (MoveLine(step=step) for step in copying.copy_until_equal())
            self._carry_state()
            for source, own in self._sources:
                source.require_complete(own)
            self._depart()
            for leave in leaving:
                leave()
            for destination in self._destinations:
                mark_arrival(destination.pool, identity, COMPLETE)
            refused_ms = round(1_000 * (self._clock.monotonic() - began))
        tables = [
            _describe_table(table, add_up(copying.find_agreed_sum(table) for copying in self._copying))
            for table in self._tables
        ]
        copied = sum(copying.copied for copying in self._copying)
        yield MoveLine(report=MoveReport(tables=tables, copied=copied, refused_ms=refused_ms, moved=True))

    def _carry_state(self) -> None:
        """Give the roll-up state of several engines to each destination. A single engine's tables are copied."""
        if len(self._sources) > 1:
            states = [source.maintenance.rollup_state for source, _ in self._sources]
            for destination in self._destinations:
                copy_states(states, destination.pool)

    def _depart(self) -> None:
        """Mark the first engines as abandoned. A server that starts later sees the mark, an earlier one is in a table.

        Raises ConflictError if another server uses one of the engines.
        """
        self._mark_departure(moved=True)
        try:
            self._require_alone()
        except JobmeterError:
            self._mark_departure(moved=False)
            raise

    def _mark_departure(self, *, moved: bool) -> None:
        for source, _ in self._sources:
            mark_departure(source.maintenance.pool, self._to, moved=moved)

    def _require_alone(self) -> None:
        others = ", ".join(sorted({row.host for source, _ in self._sources for row in source.others()}))
        if others:
            raise ConflictError(
                f"other servers use {self._from}, on {others}: stop all servers but one, and name the address of that "
                "one as FROM"
            )

    def _begin(self, identity: str) -> bool:
        """Mark the destinations. Return True if they are complete already. Raises ConflictError for any other data."""
        self._require_alone()
        marks = [read_marks(destination.pool) for destination in self._destinations]
        gone_to = read_marks(self._sources[0][1].pool).gone_to
        if gone_to and gone_to != self._to:
            raise ConflictError(f"the data were moved to {gone_to}: move them from there")
        if gone_to and all(one.arrivals.get(identity) == COMPLETE for one in marks):
            return True
        for destination, one in zip(self._destinations, marks, strict=True):
            require_empty(destination, one, identity)
            if not one.arrivals:
                mark_arrival(destination.pool, identity, ARRIVING)
        self._note_shards(identity)
        return False

    def _note_shards(self, identity: str) -> None:
        """Write which shard each destination is."""
        count = len(self._destinations)
        for number, destination in enumerate(self._destinations, 1):
            if count > 1:
                with translate_failures("note its shard"), destination.pool.borrow_client() as client:
                    write_record(client, ShardRecord(identity, number, 0, count))


def _describe_table(table: TableSlices, total: SliceSum) -> MovedTable:
    return MovedTable(table=table.table, rows=total.rows, checksum=f"{total.checksum:016x}")


def require_empty(engine: EngineTables, marks: MoveMarks, identity: str) -> None:
    """Raise ConflictError if a destination has other data than an unfinished move of the same engine."""
    name = engine.target.name
    if marks.arrivals.get(identity) == ARRIVING:
        return
    if marks.arrivals or marks.departures:
        raise ConflictError(f"{name} has the data of another move: name a database that does not exist yet")
    if engine.has_rows([table.table for table in TABLES]):
        raise ConflictError(f"{name} has data already: name a database that does not exist yet")


def require_alike(source: EngineTables, destination: EngineTables) -> None:
    """Raise ConfigurationError if the tables of two engines have different columns."""
    for table in TABLES:
        if source.read_definition(table) != destination.read_definition(table):
            raise ConfigurationError(
                f"table {table.table} differs in {source.target.name} and {destination.target.name}: use the same "
                "version of Jobmeter for both"
            )


class NoTables(EngineTables):
    """Tables of a database that does not exist."""

    def list_partitions(self, table: TableSlices) -> dict[str, tuple[int, int]]:  # noqa: ARG002 - as of an engine
        """Return none."""
        return {}

    def sum_slices(
        self,
        table: TableSlices,  # noqa: ARG002 - as of an engine
        partitions: Sequence[str],
        at_seconds: int,  # noqa: ARG002
    ) -> dict[str, dict[int, SliceSum]]:
        """Return none."""
        return {name: {} for name in partitions}


def is_made(target: EngineTarget) -> bool:
    """Return True if the database of a target exists."""
    if target.path is not None:
        return target.path.is_dir()
    client = connect(target, None)
    try:
        with translate_failures("be asked for its databases"):
            sql = "SELECT 1 FROM system.databases WHERE name = {name:String}"
            return bool(client.query(sql, parameters={"name": target.database}).result_rows)
    finally:
        client.close()


@contextmanager
def open_tables(target: EngineTarget, clock: Clock, *, compare: bool) -> Iterator[EngineTables]:
    """Open an engine for a move or a comparison. For a move it gets a database of this program's schema."""
    with ExitStack() as stack:
        if target.path is not None:
            stack.callback(FolderLock(target.path).release)
        pool = Pool(target, 1)
        stack.callback(pool.close)
        client = connect(target, None)
        pool.add(client)
        if not compare:
            create_database(client, target)
        client.database = target.database
        if not compare:
            migrate(client, target, clock)
        yield EngineTables(pool, target)


def move(sources: Sequence[MoveSource], own: EngineTarget, order: MoveOrder, clock: Clock) -> Iterator[MoveLine]:
    """Move or compare. See ``jobmeter.store.base.StoreAdministration.move``.

    Of the replicas in the address of the other store the first one of each shard gets the rows. The first start on that
    store fills the others.
    """
    try:
        target = parse_dsn(order.to)
    except ConfigurationError as error:
        raise InvalidRequestError(error.message, "to") from error
    if own.cluster:
        raise InvalidRequestError("data are not moved out of a cluster with ClickHouse Keeper", "from")
    with ExitStack() as stack:
        for source in sources:
            if not source.maintenance.moving.acquire(blocking=False):
                raise ConflictError("the stored data are being moved already: wait for the end of that move")
            stack.callback(source.maintenance.moving.release)
        opened = [(source, stack.enter_context(source.open_tables())) for source in sources]
        destinations: list[EngineTables] = []
        for shard in target.split():
            one = shard.with_server(shard.places[0]) if len(shard.places) > 1 and not shard.cluster else shard
            if order.compare and not is_made(one):
                destinations.append(NoTables(opened[0][1].pool, one))
                continue
            destinations.append(stack.enter_context(open_tables(one, clock, compare=order.compare)))
            for _, tables in opened:
                require_alike(tables, destinations[-1])
                if tables.read_identity() == destinations[-1].read_identity():
                    raise InvalidRequestError(f"the data are in {one.name} already", "to")
        moving = StoreMove(opened, destinations, (own.name, target.name), clock)
        yield from moving.compare() if order.compare else moving.run()
