"""Record of a shard in its table ``progress``: its store, its number, and how many shards of the store have rows.

``shard of STORE`` is the number of the shard, from 1. ``shards of STORE`` is a version and the number of shards that
have rows.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.nodes import LOST, SILENCE_SECONDS
from jobmeter.store.clickhouse.pool import Pool, connect
from jobmeter.store.clickhouse.progress import read_progress, write_progress
from jobmeter.store.clickhouse.target import EngineTarget, format_place

_SHARD, _SHARDS = "shard of ", "shards of "
_MOST = 1 << 10
_HAS_TABLE = "SELECT 1 FROM system.tables WHERE database = {database:String} AND name = 'progress'"


class ShardRecord(NamedTuple):
    """Record of a shard. ``store`` names the store of all its shards, ``number`` counts from 1.

    ``shards`` is the number of shards that have rows. The record with the highest ``version`` is right.
    """

    store: str
    number: int
    version: int
    shards: int

    @property
    def moves(self) -> bool:
        """True if old shards may still have rows that new ones have: an odd version."""
        return bool(self.version % 2)


def read_record(client: Client, database: str) -> ShardRecord | None:
    """Read the record of a server; None for a server that is no shard."""
    if not client.query(_HAS_TABLE, parameters={"database": database}).result_rows:
        return None
    rows = read_progress(client, table=f"{database}.progress")
    for name, number in rows.items():
        if name.startswith(_SHARD):
            store = name.removeprefix(_SHARD)
            version, shards = divmod(rows.get(_SHARDS + store, 0), _MOST)
            return ShardRecord(store, number, version, shards)
    return None


def has_tables(target: EngineTarget) -> bool:
    """Return True if a server of a target that can be reached has tables of Jobmeter."""
    for place in target.places:
        with suppress(*LOST), closing(connect(target.with_server(place), None, SILENCE_SECONDS)) as client:
            if client.query(_HAS_TABLE, parameters={"database": target.database}).result_rows:
                return True
    return False


def write_record(client: Client, record: ShardRecord) -> None:
    """Write a record into the database of a connection. It is durable on return."""
    shards = record.version * _MOST + record.shards
    write_progress(client, {_SHARD + record.store: record.number, _SHARDS + record.store: shards})


def read_place_records(target: EngineTarget) -> list[ShardRecord | None]:
    """Read the records of the servers of a target that can be reached."""
    found: list[ShardRecord | None] = []
    for place in target.places:
        try:
            with closing(connect(target.with_server(place), None, SILENCE_SECONDS)) as client:
                record = read_record(client, target.database)
        except LOST:
            continue
        expected = target.shard or 1
        if record is not None and record.number != expected:
            raise ConfigurationError(
                f"{format_place(place)} is shard {record.number} of its store, and --store names it as "
                f"shard {expected}: "
                "name the hosts of all shards, in the order of their numbers, and the option shards"
            )
        found.append(record)
    return found


def require_whole(pool: Pool, target: EngineTarget) -> None:
    """Raise ConfigurationError if the servers of a whole store are one of several shards."""
    with translate_failures("read its record"), pool.borrow_client() as client:
        record = read_record(client, target.database)
    if record is not None and (record.number, record.shards) != (1, 1):
        raise ConfigurationError(
            f"{target.name} is shard {record.number} of {record.shards}: name the hosts of all shards in --store, in "
            f"the order of their numbers, and the option shards={record.shards}"
        )


def require_one_store(records: Iterable[ShardRecord | None]) -> None:
    """Raise ConfigurationError for shards of different stores."""
    stores = {record.store for record in records if record is not None}
    if len(stores) > 1:
        raise ConfigurationError("--store names shards of different stores: name the hosts of one store only")


def require_same(before: ShardRecord | None, now: ShardRecord | None) -> None:
    """Raise an error if the record of a shard is of another store, or newer than the one that was read before."""
    require_one_store([before, now])
    if before is not None and now is not None and now.version > before.version:
        raise UnavailableError("another server changed the number of shards: start this one again")


def find_newest(records: Sequence[ShardRecord | None]) -> ShardRecord | None:
    """Return the record with the highest version."""
    return max((one for one in records if one is not None), key=lambda one: one.version, default=None)
