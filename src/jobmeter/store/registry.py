"""Opens telemetry engines by DSN: the only file that names them."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jobmeter.errors import ConfigurationError
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.server_group import OpenGroup, open_no_group
from jobmeter.model.time import Clock
from jobmeter.store.base import Store

if TYPE_CHECKING:
    from jobmeter.store.clickhouse import ClickHouseStore
    from jobmeter.store.shards.store import ShardedStore


def open_store(
    dsn: str,
    clock: Clock,
    journals: Path | None = None,
    *,
    discard: bool = False,
    peer_listen: str = "off",
    open_group: OpenGroup = open_no_group,
) -> Store:
    """Open the engine of a DSN, and update its schema to this program.

    ``chdb://PATH`` is embedded, ``clickhousedb://USER:PASSWORD@HOST:PORT/DATABASE[?cluster=NAME]`` a server or cluster,
    ``clickhousedb://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE[?shards=NUMBER]`` shards and replicas without Keeper.
    ``journals`` is the folder for the journal of a server; ``discard`` gives up unreachable journals of others.
    ``peer_listen`` is the address for the other servers of a ClickHouse server (``Settings.peer_listen``).
    ``open_group`` opens the table of the servers that share a registry.
    Raises ConfigurationError for anything else, UnavailableError if the engine cannot be opened.
    """
    return find_opener(dsn, clock, journals, discard=discard, peer_listen=peer_listen, open_group=open_group)()


def find_opener(
    dsn: str,
    clock: Clock,
    journals: Path | None = None,
    *,
    discard: bool = False,
    peer_listen: str = "off",
    open_group: OpenGroup = open_no_group,
) -> Callable[[], Store]:
    """Return the function that opens the engine of a DSN, after loading the engine's modules; see ``open_store``.

    So a thread may open the engine while another one loads modules: loading modules in two threads can deadlock. Raises
    ConfigurationError for an invalid DSN.
    """
    scheme = dsn.partition("://")[0]
    if scheme in {"chdb", "clickhousedb"}:
        return _clickhouse(dsn, clock, journals, discard=discard, peer_listen=peer_listen, open_group=open_group)
    raise ConfigurationError(
        f"there is no store {scheme!r}: use chdb://PATH or clickhousedb://USER:PASSWORD@HOST:PORT/DATABASE"
    )


def move_store(dsn: str, order: MoveOrder, clock: Clock) -> Iterator[MoveLine]:
    """Move the data of an engine that no server uses. See ``StoreAdministration.move``."""
    with closing(_clickhouse(dsn, clock, None, discard=False, for_move=True)()) as store:
        yield from store.move(order)


def cancel_move(dsn: str, clock: Clock) -> str:
    """Let servers use an engine again after a move. Return the name of the other engine; empty without a move."""
    with closing(_clickhouse(dsn, clock, None, discard=False, for_move=True)()) as store:
        return store.cancel_move()


def is_shared(dsn: str) -> bool:
    """Return True if other servers may use the same engine at the same time."""
    return dsn.partition("://")[0] == "clickhousedb"


def _clickhouse(
    dsn: str,
    clock: Clock,
    journals: Path | None,
    *,
    discard: bool,
    for_move: bool = False,
    peer_listen: str = "off",
    open_group: OpenGroup = open_no_group,
) -> "Callable[[], ClickHouseStore | ShardedStore]":
    from jobmeter.store.clickhouse import ClickHouseStore, open_shards, parse_dsn

    target = parse_dsn(dsn)
    if target.shards > 1:
        begin: Callable[..., ClickHouseStore | ShardedStore] = open_shards
    else:
        begin = ClickHouseStore
    return partial(
        begin,
        target,
        clock,
        journals,
        discard=discard,
        for_move=for_move,
        peer_listen=peer_listen,
        open_group=open_group,
    )
