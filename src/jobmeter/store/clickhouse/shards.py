"""Opens the shards of a store on ClickHouse servers, after it has checked that each server is where it belongs."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.server_group import OpenGroup, open_no_group
from jobmeter.model.time import Clock
from jobmeter.store.clickhouse.engine import ClickHouseStore
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.move import move
from jobmeter.store.clickhouse.moved_tables import EngineTables
from jobmeter.store.clickhouse.peer_place import OFF
from jobmeter.store.clickhouse.placement_change import PlacementChange, drop_moved
from jobmeter.store.clickhouse.shard_record import (
    ShardRecord,
    find_newest,
    has_tables,
    read_place_records,
    read_record,
    require_one_store,
    require_same,
    write_record,
)
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.shards.placement import NUMBERS
from jobmeter.store.shards.shard import Shard, ShardSet
from jobmeter.store.shards.store import ShardedStore

_RECORD_SECONDS, _RECORD_STEP_SECONDS = 10.0, 0.1
"""Seconds for which a start waits for the record of a new shard, and between two reads of it."""


def open_shards(
    target: EngineTarget,
    clock: Clock,
    journals: Path | None,
    *,
    discard: bool = False,
    for_move: bool = False,
    peer_listen: str = OFF,
    open_group: OpenGroup = open_no_group,
) -> ShardedStore:
    """Open the shards of a store. See ``ClickHouseStore`` for the options.

    The first start needs every shard; later ones go on without the shards that are away. Only a server without others
    changes the number of shards: until its next start no other server can join it. Raises ConfigurationError for
    servers in another order or of another store, UnavailableError if no shard can be opened.
    """
    targets = target.split()
    records = [record for one in targets for record in read_place_records(one)]
    require_one_store(records)
    stored = find_newest(records)
    count = target.keep or len(targets)
    changes = has_tables(targets[0]) if stored is None else stored.shards != count or stored.moves
    begin = partial(
        ClickHouseStore,
        clock=clock,
        journals=journals,
        discard=discard,
        for_move=for_move,
        peer_listen=peer_listen,
        open_group=open_group,
        joinable=not changes,
    )
    shards = [Shard(number, len(targets), partial(_open, begin, one, stored)) for number, one in enumerate(targets, 1)]
    try:
        _open_all(shards, strict=stored is None or changes)
        record = _note(shards, stored, count)
        _require_count(shards, record, count if not changes else record.shards)
        placement = ShardSet(shards, record.shards)
        engines = [engine for shard in shards if isinstance(engine := shard.engine, ClickHouseStore)]
        work = None if record.shards == count else PlacementChange(placement, engines, record, count, clock)
        return ShardedStore(placement, partial(_move, shards, target, clock), None if for_move else work)
    except BaseException:
        for shard in shards:
            shard.close()
        raise


def _open(
    begin: Callable[[EngineTarget], ClickHouseStore], target: EngineTarget, stored: ShardRecord | None
) -> ClickHouseStore:
    """Open a shard.

    Raises ConfigurationError if it belongs to another store than the shards that were read before, UnavailableError if
    another server has changed the number of shards since.
    """
    engine = begin(target)
    try:
        require_same(stored, _read(engine))
    except BaseException:
        engine.close()
        raise
    return engine


def _move(shards: Sequence[Shard], target: EngineTarget, clock: Clock, order: MoveOrder) -> Iterator[MoveLine]:
    """Move or compare the rows of all shards."""
    engines = [shard.call(lambda engine: engine) for shard in shards]
    sources = [engine.move_source() for engine in engines if isinstance(engine, ClickHouseStore)]
    return move(sources, target, order, clock)


def _open_all(shards: Sequence[Shard], *, strict: bool) -> None:
    """Open the shards that can be reached. Raises UnavailableError for none, and if ``strict`` for any that cannot."""
    away: list[UnavailableError] = []
    # At the same time: each may have to wait for other servers.
    with ThreadPoolExecutor(len(shards), "jobmeter-opening") as threads:
        for opening in [threads.submit(shard.open) for shard in shards]:
            try:
                opening.result()
            except UnavailableError as error:
                away.append(error)
    if away and (strict or len(away) == len(shards)):
        raise away[0]


def _note(shards: Sequence[Shard], stored: ShardRecord | None, count: int) -> ShardRecord:
    """Write the record of the open shards that lack it, where this server leads. Return the record of the store.

    ``count``: number of shards that are to have the rows. Shards are written in their order: of servers that start
    together the one that leads the first of them names the store.
    """
    lacking: list[tuple[int, ClickHouseStore]] = []
    for number, shard in enumerate(shards, 1):
        engine = shard.engine
        if not isinstance(engine, ClickHouseStore):
            continue
        record = _read(engine)
        if record is None or (stored is not None and record.version < stored.version):
            lacking.append((number, engine))
        stored = stored or record
        if record is None and not _follows(engine) and _has_rows(engine):
            if stored is not None or number > 1:
                raise ConfigurationError(
                    f"{engine.target.name} has other data: name a database that does not exist on any host"
                )
            stored = ShardRecord(secrets.token_hex(8), 1, 0, 1)  # a store without shards becomes the first one
    for number, engine in lacking:
        if _follows(engine):
            stored = stored or _await_record(engine)
        else:
            stored = stored or ShardRecord(secrets.token_hex(8), 1, 0, count)
            _write(engine, stored._replace(number=number))
    assert stored is not None  # noqa: S101 - some shard is open
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


def _follows(engine: ClickHouseStore) -> bool:
    return engine.node_log is not None and engine.node_log.is_following


def _await_record(engine: ClickHouseStore) -> ShardRecord:
    """Return the record that the leader of a shard writes at its own start."""
    deadline = monotonic() + _RECORD_SECONDS
    while (record := _read(engine)) is None:
        if monotonic() > deadline:
            raise UnavailableError("the server that leads a new shard has not noted its number: start this one again")
        sleep(_RECORD_STEP_SECONDS)
    return record


def _read(engine: ClickHouseStore) -> ShardRecord | None:
    with translate_failures("read its shard"), engine.maintenance.pool.borrow_client() as client:
        return read_record(client, engine.target.database)


def _write(engine: ClickHouseStore, record: ShardRecord) -> None:
    with translate_failures("note its shard"), engine.maintenance.pool.borrow_client() as client:
        write_record(client, record)


def _has_rows(engine: ClickHouseStore) -> bool:
    return EngineTables(engine.maintenance.pool, engine.target).has_rows(list(NUMBERS))


def _require_count(shards: Sequence[Shard], stored: ShardRecord, count: int) -> None:
    """Raise ConfigurationError if hosts are missing, or if another server began the store with fewer shards."""
    if stored.shards < count:
        raise ConfigurationError(f"another server began this store with {stored.shards} shards: name as many")
    if stored.shards > len(shards):
        raise ConfigurationError(
            f"the telemetry store has {stored.shards} shards, and --store names {len(shards)}: name the hosts of all "
            "shards, in the order of their numbers. To remove the last ones, add the option keep with the number of "
            "shards that stay"
        )
