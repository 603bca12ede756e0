"""Opens the shards of a store on ClickHouse servers, after it has checked that each server is where it belongs."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.engine import ClickHouseStore
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.move import move
from jobmeter.store.clickhouse.moved_tables import EngineTables
from jobmeter.store.clickhouse.placement_change import PlacementChange, drop_moved
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
from jobmeter.store.shards.shard import Shard, ShardSet
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
    stored = newest(records)
    begin = partial(ClickHouseStore, clock=clock, journals=journals, discard=discard, for_move=for_move)
    shards = [Shard(number, len(targets), partial(begin, one)) for number, one in enumerate(targets, 1)]
    try:
        count = target.keep or len(shards)
        _open_all(shards, stored, count)
        record = _note(shards, stored, count)
        _require_count(shards, record)
        placement = ShardSet(shards, record.shards)
        engines = [engine for shard in shards if isinstance(engine := shard.engine, ClickHouseStore)]
        work = None if record.shards == count else PlacementChange(placement, engines, record, count, clock)
        return ShardedStore(placement, partial(_move, shards, target, clock), None if for_move else work)
    except BaseException:
        for shard in shards:
            shard.close()
        raise


def _open(begin: Callable[[], ClickHouseStore], stored: ShardRecord | None) -> ClickHouseStore:
    """Open a shard. Raises ConfigurationError if it belongs to another store than the shards that were read before."""
    engine = begin()
    try:
        with translated("read its shard"), engine.maintenance.pool.client() as client:
            require_one_store([stored, read_record(client, engine.target.database)])
    except BaseException:
        engine.close()
        raise
    return engine


def _move(shards: Sequence[Shard], target: EngineTarget, clock: Clock, order: MoveOrder) -> Iterator[MoveLine]:
    """Move or compare the rows of all shards."""
    engines = [shard.call(lambda engine: engine) for shard in shards]
    sources = [engine.move_source() for engine in engines if isinstance(engine, ClickHouseStore)]
    return move(sources, target, order, clock)


def _open_all(shards: Sequence[Shard], stored: ShardRecord | None, count: int) -> None:
    """Open the shards that can be reached.

    Raises UnavailableError for none, and for any of a store that is new or whose number of shards changes.
    """
    away: list[UnavailableError] = []
    for shard in shards:
        try:
            shard.open()
        except UnavailableError as error:
            away.append(error)
    changes = stored is None or stored.shards != count or stored.moves
    if away and (changes or len(away) == len(shards)):
        raise away[0]


def _note(shards: Sequence[Shard], stored: ShardRecord | None, count: int) -> ShardRecord:
    """Write the record of the open shards that lack it. Return the record of the store.

    ``count``: number of shards that are to have the rows.
    """
    lacking: list[tuple[int, ClickHouseStore]] = []
    for number, shard in enumerate(shards, 1):
        engine = shard.engine
        if not isinstance(engine, ClickHouseStore):
            continue
        with translated("read its shard"), engine.maintenance.pool.client() as client:
            record = read_record(client, engine.target.database)
        if record is None or (stored is not None and record.version < stored.version):
            lacking.append((number, engine))
        if record is None and _has_rows(engine):
            if stored is not None or number > 1:
                raise ConfigurationError(
                    f"{engine.target.name} has other data: name a database that does not exist on any host"
                )
            stored = ShardRecord(secrets.token_hex(8), 1, 0, 1)  # a store without shards becomes the first one
    stored = stored or ShardRecord(secrets.token_hex(8), 1, 0, count)
    for number, engine in lacking:
        _write(engine, stored._replace(number=number))
    return _tidy(shards, stored) if stored.moves and stored.shards <= count else stored


def _tidy(shards: Sequence[Shard], stored: ShardRecord) -> ShardRecord:
    """Finish a change of the placement, which a kill interrupted: shards have rows of other ones."""
    clean = stored._replace(version=stored.version + 1)
    engines = [engine for shard in shards if isinstance(engine := shard.engine, ClickHouseStore)]
    for number, engine in enumerate(engines):
        drop_moved(engine, number, stored.shards)
    for number, engine in enumerate(engines, 1):
        _write(engine, clean._replace(number=number))
    return clean


def _write(engine: ClickHouseStore, record: ShardRecord) -> None:
    with translated("note its shard"), engine.maintenance.pool.client() as client:
        write_record(client, record)


def _has_rows(engine: ClickHouseStore) -> bool:
    return EngineTables(engine.maintenance.pool, engine.target).has_rows(list(NUMBERS))


def _require_count(shards: Sequence[Shard], stored: ShardRecord) -> None:
    """Raise ConfigurationError if hosts are missing."""
    if stored.shards > len(shards):
        raise ConfigurationError(
            f"the telemetry store has {stored.shards} shards, and --store names {len(shards)}: name the hosts of all "
            "shards, in the order of their numbers. To remove the last ones, add the option keep with the number of "
            "shards that stay"
        )
