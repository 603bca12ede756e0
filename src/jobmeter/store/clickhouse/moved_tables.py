"""Tables as a move reads and writes them: in slices, each with a number of rows and a checksum.

A slice is an hour of samples, a month of hourly values, a part of the job keys of series. Rows that have expired count
nowhere: each engine deletes them at a time of its own choice.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.schema import make_cluster_clause, name_stored_table
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.shards.placement import NUMBERS, is_on

_PIECE = 1 << 20
_ONE = "0"
"""SQL of the partition of a table that is not divided."""


class TableSlices(NamedTuple):
    """Division of a table. ``number`` is the SQL of a row's slice, ``partition`` of its partition, if it has any.

    A slice belongs to one partition. ``expires`` is the SQL of the second at which a row expires, empty for never. Only
    rows that satisfy ``where`` are moved.
    """

    table: str
    number: str
    partition: str = _ONE
    expires: str = ""
    where: str = "1"

    def select_shards(self, source: tuple[int, int], destination: tuple[int, int]) -> "TableSlices":
        """Return the rows that one shard of a store gives to one shard of another store, each as (shard, shards)."""
        if self.table not in NUMBERS:
            return self
        conditions = [is_on(self.table, shard, count) for shard, count in (source, destination) if count > 1]
        return self._replace(where=" AND ".join((self.where, *conditions)))

    def make_alive_condition(self, at_seconds: int) -> str:
        """Return the condition for the moved rows that expire after a time."""
        return f"{self.where} AND {self.expires} > {at_seconds}" if self.expires else self.where


def _make_timed_table(
    table: str, column: str, second: int, slice_seconds: int, days: str, spare: int = 1
) -> TableSlices:
    """Divide a table by time. ``second`` is the length of a second in units of the column."""
    return TableSlices(
        table,
        f"intDiv({column}, {slice_seconds * second})",
        f"intDiv({column}, {86_400 * second})",
        f"intDiv({column}, {second}) + 86400 * ({days} + {spare})",
    )


_HOUR, _DAY = 3_600, 86_400
_MONTH = "toYYYYMM(toDateTime(intDiv(time, 1000), 'UTC'))"
TABLES: Sequence[TableSlices] = (
    TableSlices("series", "intDiv(job, 288230376151711744)", expires="86400 * (toUInt64(last_day) + keep_days + 1)"),
    _make_timed_table("samples", "time", 1_000, _HOUR, "raw_days"),
    _make_timed_table("minutes", "time", 1_000, _DAY, "minute_days")._replace(partition=_MONTH),
    _make_timed_table("hours", "time", 1_000, _DAY, "hour_days")._replace(number=_MONTH, partition=_MONTH),
    _make_timed_table("logs", "time_ns", 1_000_000_000, _HOUR, "raw_days"),
    _make_timed_table("spans", "start_ns", 1_000_000_000, _HOUR, "raw_days"),
    _make_timed_table("outbox", "arrived", 1_000, _HOUR, "raw_days", 2),
    TableSlices("marks", "0", expires="if(cleared = 1, intDiv(at, 1000) + 86400, 4294967295)"),
    # The other rows are marks of moves, which belong to one engine.
    TableSlices("progress", "0", where="name IN ('done', 'intent')"),
)
_EVERYWHERE = frozenset({"marks", "progress"})


class SliceSum(NamedTuple):
    """Number of rows and checksum of a slice."""

    rows: int
    checksum: int


class EngineTables:
    """Tables of one engine. Reads and writes use one connection at a time."""

    def __init__(self, pool: Pool, target: EngineTarget) -> None:
        self.pool = pool
        self.target = target
        self._columns: dict[str, str] = {}

    def read_identity(self) -> str:
        """Return the UUID of the samples: another one for each database."""
        sql = "SELECT toString(uuid) FROM system.tables WHERE database = currentDatabase() AND name = {name:String}"
        return str(self._query(sql, {"name": name_stored_table("samples", self.target)})[0][0])

    def read_definition(self, table: TableSlices) -> Sequence[tuple[str, str]]:
        """Return names and types of the columns, in order of the names."""
        sql = (
            "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {name:String} "
            "ORDER BY name"
        )
        found = [(str(name), str(kind)) for name, kind in self._query(sql, {"name": table.table})]
        self._columns[table.table] = ", ".join(name for name, _ in found)
        return found

    def list_partitions(self, table: TableSlices) -> Mapping[str, tuple[int, int]]:
        """Return the state of each partition: two numbers. Each insert and each deletion raises one of the numbers."""
        parts, mutations = ("parts", "mutations")
        if self.target.cluster:
            parts, mutations = (
                f"clusterAllReplicas('{self.target.cluster}', system.{name})" for name in (parts, mutations)
            )
        else:
            parts, mutations = f"system.{parts}", f"system.{mutations}"
        where = "WHERE database = currentDatabase() AND table = {name:String}"
        name = {"name": self._name_stored(table)}
        changes = self._query(f"SELECT max(arrayMax(block_numbers.number)) FROM {mutations} {where}", name)
        deleted = int(changes[0][0] or 0) if changes else 0
        sql = f"SELECT partition, max(max_block_number) FROM {parts} {where} AND active GROUP BY partition"
        return {str(partition): (int(block), deleted) for partition, block in self._query(sql, name)}

    def has_rows(self, tables: Sequence[str]) -> bool:
        """Return True if any of these tables has a row."""
        return any(self._query(f"SELECT 1 FROM {table} LIMIT 1", {}) for table in tables)

    def sum_slices(
        self, table: TableSlices, partitions: Sequence[str], at_seconds: int
    ) -> dict[str, dict[int, SliceSum]]:
        """Return by partition the sum of each slice, of rows that expire after a time."""
        divided = table.partition != _ONE
        some = f" AND {table.partition} IN ({', '.join(str(int(one)) for one in partitions)})" if divided else ""
        rows = self._query(
            f"SELECT {table.partition} AS part, {table.number} AS slice, count(), "
            f"sum(cityHash64({self._names(table)})) FROM {table.table} FINAL "
            f"WHERE {table.make_alive_condition(at_seconds)}{some} GROUP BY part, slice",
            {},
        )
        found: dict[str, dict[int, SliceSum]] = {name: {} for name in partitions}
        for partition, number, count, checksum in rows:
            name = str(partition) if divided else partitions[0]
            found[name][int(number)] = SliceSum(int(count), int(checksum))
        return found

    def copy(self, table: TableSlices, number: int, at_seconds: int, other: "EngineTables") -> None:
        """Insert the rows of a slice that expire after a time into another engine, each once."""
        names = self._names(table)
        sql = (
            f"SELECT {names} FROM {table.table} FINAL WHERE {table.number} = {number} AND "
            f"{table.make_alive_condition(at_seconds)}"
        )
        with translate_failures("be read for the move"), self.pool.borrow_client() as client:
            stream: Any = client.raw_stream(sql, fmt="Native")
            with closing(stream):
                other.insert(table, names.split(", "), _pieces(stream))

    def insert(self, table: TableSlices, names: Sequence[str], body: Generator[bytes]) -> None:
        """Insert rows in the format Native. They are durable on return."""
        with translate_failures("keep the moved rows"), self.pool.borrow_client() as client:
            client.raw_insert(table.table, list(names), body, fmt="Native")

    def erase(self, table: TableSlices, numbers: Sequence[int]) -> None:
        """Delete the rows of some slices. On return no read finds them; rows that are inserted later stay."""
        some = ", ".join(map(str, numbers))
        with translate_failures("delete rows before they are moved again"), self.pool.borrow_client() as client:
            client.command(
                f"ALTER TABLE {self._name_stored(table)}{make_cluster_clause(self.target)} "
                f"DELETE WHERE {table.number} IN ({some}) "
                f"AND {table.where} SETTINGS mutations_sync = 0"
            )

    def _names(self, table: TableSlices) -> str:
        if table.table not in self._columns:
            self.read_definition(table)
        return self._columns[table.table]

    def _name_stored(self, table: TableSlices) -> str:
        return table.table if table.table in _EVERYWHERE else name_stored_table(table.table, self.target)

    def _query(self, sql: str, parameters: dict[str, Any]) -> Sequence[Sequence[Any]]:
        with translate_failures("compare its rows"), self.pool.borrow_client() as client:
            rows: Sequence[Sequence[Any]] = client.query(sql, parameters=parameters).result_rows
        return rows


def _pieces(stream: Any) -> Generator[bytes]:  # noqa: ANN401 - an open file of either client
    while piece := stream.read(_PIECE):
        yield piece
