"""Opens the shards of a store on ClickHouse servers, after it has checked that each server is where it belongs."""

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.engine import ClickHouseStore
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.move import move
from jobmeter.store.clickhouse.moved_tables import EngineTables
from jobmeter.store.clickhouse.shard_record import (
    ShardRecord,
    newest,
    read_place_records,
    read_record,
    require_one_store,
    write_record,
)
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.shards.placement import NUMBERS
from jobmeter.store.shards.shard import Shard
from jobmeter.store.shards.store import ShardedStore


def open_shards(
    target: EngineTarget, clock: Clock, journals: Path | None, *, discard: bool = False, for_move: bool = False
) -> ShardedStore:
    """Open the shards of a store. See ``ClickHouseStore`` for ``discard`` and ``for_move``.

    The first start needs every shard; later ones go on without the shards that are away. Raises ConfigurationError
    for servers in another order or of another store, UnavailableError if no shard can be opened.
    """
    targets = target.split()
    records = [record for one in targets for record in read_place_records(one)]
    require_one_store(records)
    known = newest(records)
    begin = partial(ClickHouseStore, clock=clock, journals=journals, discard=discard, for_move=for_move)
    shards = [Shard(number, len(targets), partial(begin, one)) for number, one in enumerate(targets, 1)]
    try:
        _open_all(shards, known)
        known = _note(shards, known)
        _require_all(shards, known)
        return ShardedStore(shards, partial(_move, shards, target, clock))
    except BaseException:
        for shard in shards:
            shard.close()
        raise


def _move(shards: Sequence[Shard], target: EngineTarget, clock: Clock, order: MoveOrder) -> Iterator[MoveLine]:
    """Move or compare the rows of all shards."""
    engines = [shard.call(lambda engine: engine) for shard in shards]
    sources = [engine.move_source() for engine in engines if isinstance(engine, ClickHouseStore)]
    return move(sources, target, order, clock)


def _open_all(shards: Sequence[Shard], known: ShardRecord | None) -> None:
    """Open the shards that can be reached. Raises UnavailableError for none, and for any of a new store."""
    away: list[UnavailableError] = []
    for shard in shards:
        try:
            shard.open()
        except UnavailableError as error:
            away.append(error)
    if away and (known is None or len(away) == len(shards)):
        raise away[0]


def _require_all(shards: Sequence[Shard], known: ShardRecord) -> None:
    """Raise ConfigurationError for a wrong number of shards."""
    if known.shards != len(shards):
        raise ConfigurationError(
            f"the telemetry store has {known.shards} shards, and --store names {len(shards)}: name the hosts of all of "
            "them, in the order of their numbers"
        )


def _note(shards: Sequence[Shard], known: ShardRecord | None) -> ShardRecord:
    """Write the record of the open shards that lack one. Return the record of the store."""
    for number, shard in enumerate(shards, 1):
        engine = shard.engine
        if not isinstance(engine, ClickHouseStore):
            continue
        with translated("note its shard"), engine.maintenance.pool.client() as client:
            if read_record(client, engine.target.database) is not None:
                continue
            if EngineTables(engine.maintenance.pool, engine.target).has_rows(list(NUMBERS)):
                raise ConfigurationError(
                    f"{engine.target.name} has other data: name a database that does not exist on any host"
                )
            known = known or ShardRecord(secrets.token_hex(8), number, 1, len(shards))
            write_record(client, known._replace(number=number))
    assert known is not None  # noqa: S101 - the first shard without a record made one
    return known
