"""Moves the data of an engine to another one, slice by slice, while a server reads and writes the first engine.

Passes copy what differs (``slice_copy``). When little is left, writes are refused until a pass finds no difference.
Only then the marks say where the data are (``move_marks``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec.structs import replace

from jobmeter.errors import (
    ConfigurationError,
    ConflictError,
    InvalidRequestError,
    JobmeterError,
)
from jobmeter.model.move import MovedTable, MoveLine, MoveOrder, MoveReport, MoveStep
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.lock import FolderLock
from jobmeter.store.clickhouse.maintenance import Maintenance
from jobmeter.store.clickhouse.migrate import create_database, migrate
from jobmeter.store.clickhouse.move_marks import (
    ARRIVING,
    COMPLETE,
    MoveMarks,
    mark_arrival,
    mark_departure,
    read_marks,
)
from jobmeter.store.clickhouse.moved_tables import TABLES, EngineTables, SliceSum, TableSlices
from jobmeter.store.clickhouse.pool import Pool, connect
from jobmeter.store.clickhouse.servers import ServerRow
from jobmeter.store.clickhouse.slice_copy import SliceCopy
from jobmeter.store.clickhouse.target import EngineTarget, parse_dsn


class StoreMove:
    """Move of one engine's data to another engine. Only this process writes to the second engine."""

    def __init__(
        self,
        source: EngineTables,
        destination: EngineTables,
        clock: Clock,
        maintenance: Maintenance,
        others: Callable[[], Sequence[ServerRow]],
    ) -> None:
        """``maintenance`` belongs to the first engine. ``others`` returns the other servers that use that engine."""
        self._source = source
        self._destination = destination
        self._clock = clock
        self._maintenance = maintenance
        self._others = others
        self._copying = SliceCopy(source, destination, clock, maintenance.flush)

    def compare(self) -> Iterator[MoveLine]:
        """Compare all slices, and write nothing."""
        self._maintenance.flush()
        found: list[MovedTable] = []
        for table in TABLES:
            yield MoveLine(step=MoveStep(table=table.table, done=0, total=1, rows=0))
            differing, total = self._copying.compared(table, self._copying.changed(table))
            rows = sum(source.rows for _, source, _ in differing)
            found.append(replace(_describe_table(table, total), slices=len(differing), differing_rows=rows))
        yield MoveLine(report=MoveReport(tables=found))

    def run(self) -> Iterator[MoveLine]:
        """Move everything."""
        identity, name = self._source.identity(), self._destination.target.name
        if self._begin(identity, name):
            yield MoveLine(report=MoveReport(moved=True))
            return
        yield from (MoveLine(step=step) for step in self._copying.passes())
        with self._maintenance.refusing() as leave:
            began = self._clock.monotonic()
            self._copying.is_quiet = True
            yield from (MoveLine(step=step) for step in self._copying.checks())
            self._depart(name)
            leave()
            mark_arrival(self._destination.pool, identity, COMPLETE)
            refused_ms = round(1_000 * (self._clock.monotonic() - began))
        tables = [_describe_table(table, self._copying.agreed_on(table)) for table in TABLES]
        yield MoveLine(report=MoveReport(tables=tables, copied=self._copying.copied, refused_ms=refused_ms, moved=True))

    def _depart(self, name: str) -> None:
        """Mark the first engine as abandoned. A server that starts later sees the mark, an earlier one is in the table.

        Raises ConflictError if another server uses the engine.
        """
        mark_departure(self._source.pool, name, moved=True)
        try:
            self._require_alone()
        except JobmeterError:
            mark_departure(self._source.pool, name, moved=False)
            raise

    def _require_alone(self) -> None:
        others = ", ".join(sorted({row.host for row in self._others()}))
        if others:
            raise ConflictError(
                f"other servers use {self._source.target.name}, on {others}: stop all servers but one, and name the "
                "address of that one as FROM"
            )

    def _begin(self, identity: str, name: str) -> bool:
        """Mark the destination. Return True if it is complete already. Raises ConflictError for any other data."""
        self._require_alone()
        marks = read_marks(self._destination.pool)
        gone_to = read_marks(self._source.pool).gone_to
        if gone_to and gone_to != name:
            raise ConflictError(f"the data were moved to {gone_to}: move them from there")
        if gone_to and marks.arrivals.get(identity) == COMPLETE:
            return True
        require_empty(self._destination, marks, identity)
        if not marks.arrivals:
            mark_arrival(self._destination.pool, identity, ARRIVING)
        return False


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
        if source.definition(table) != destination.definition(table):
            raise ConfigurationError(
                f"table {table.table} differs in {source.target.name} and {destination.target.name}: use the same "
                "version of Jobmeter for both"
            )


class NoTables(EngineTables):
    """Tables of a database that does not exist."""

    def partitions(self, table: TableSlices) -> dict[str, tuple[int, int]]:  # noqa: ARG002 - as of an engine
        """Return none."""
        return {}

    def sums(self, table: TableSlices, partitions: Sequence[str], at_seconds: int) -> dict[str, dict[int, SliceSum]]:  # noqa: ARG002 - as of an engine
        """Return none."""
        return {name: {} for name in partitions}


def is_made(target: EngineTarget) -> bool:
    """Return True if the database of a target exists."""
    if target.path is not None:
        return target.path.is_dir()
    client = connect(target, None)
    try:
        with translated("be asked for its databases"):
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


def move(
    maintenance: Maintenance, order: MoveOrder, clock: Clock, others: Callable[[], Sequence[ServerRow]]
) -> Iterator[MoveLine]:
    """Move or compare. See ``jobmeter.store.base.StoreAdministration.move``."""
    try:
        target = parse_dsn(order.to)
    except ConfigurationError as error:
        raise InvalidRequestError(error.message, "to") from error
    if maintenance.target.cluster or len(maintenance.target.places) > 1:
        raise InvalidRequestError("data are moved out of an embedded store or one ClickHouse server only", "from")
    if len(target.places) > 1 and not target.cluster:
        raise InvalidRequestError(
            "data are moved to one of several replicas: name one host, and the others at the next start", "to"
        )
    if not maintenance.moving.acquire(blocking=False):
        raise ConflictError("the stored data are being moved already: wait for the end of that move")
    with ExitStack() as stack:
        stack.callback(maintenance.moving.release)
        pool = Pool(maintenance.target, 1)
        stack.callback(pool.close)
        source = EngineTables(pool, maintenance.target)
        destination: EngineTables
        if order.compare and not is_made(target):
            destination = NoTables(pool, target)
        else:
            destination = stack.enter_context(open_tables(target, clock, compare=order.compare))
            require_alike(source, destination)
            if source.identity() == destination.identity():
                raise InvalidRequestError(f"the data are in {target.name} already", "to")
        moving = StoreMove(source, destination, clock, maintenance, others)
        yield from moving.compare() if order.compare else moving.run()
