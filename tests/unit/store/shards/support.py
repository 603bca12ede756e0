"""Helpers that open stores on shards, and find jobs of a shard."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.store_contract.slot import Slot
from tests.support.clickhouse import NodeProcess
from tests.support.waiting import wait_until

from jobmeter.model.time import SystemClock
from jobmeter.store.registry import open_store
from jobmeter.store.shards.placement import find_shard
from jobmeter.store.shards.store import ShardedStore

CLOCK = SystemClock()


def new_database() -> str:
    return f"jobmeter_{secrets.token_hex(4)}"


def address(servers: Sequence[NodeProcess], database: str, shards: int) -> str:
    hosts = ",".join(f"127.0.0.1:{one.own.http}" for one in servers)
    return f"clickhousedb://{hosts}/{database}?shards={shards}"


@contextmanager
def opened(dsn: str, journals: Path | None) -> Iterator[ShardedStore]:
    with closing(open_store(dsn, CLOCK, journals)) as store:
        assert isinstance(store, ShardedStore)
        yield store


def await_complete(store: ShardedStore) -> None:
    """Wait until every replica of every shard has all data."""
    wait_until(lambda: all(store.read_statistics().replicas.values()) and not store.list_damaged(), "the repair", 120)


def slot_on(shard: int, count: int = 2) -> Slot:
    """Return a slot whose job is on the shard with that number, from 0."""
    while True:
        slot = Slot()
        if find_shard(slot.key, count) == shard:
            return slot
