"""Tests of servers that reach different shards: answers name the shards that they lack, and no row is lost."""

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial

import pytest
from tests.store_contract.samples import FOREVER, batch_of, read_all
from tests.store_contract.slot import Slot
from tests.support.clickhouse import NodeProcess
from tests.support.proxy import Proxy
from tests.support.server_group import MemoryServerGroup
from tests.support.waiting import wait_until
from tests.unit.store.shards.support import CLOCK, new_database, slot_on
from tests.unit.store.shards.test_faults import _short_waits  # noqa: F401

from jobmeter.errors import UnavailableError
from jobmeter.model.time import TimeRange
from jobmeter.store.registry import open_store
from jobmeter.store.shards.away import may_lack
from jobmeter.store.shards.store import ShardedStore

pytestmark = pytest.mark.slow


class Site:
    """Two stores, the connections of each to the two shards, and a slot on each shard."""

    def __init__(self, stores: Sequence[ShardedStore], ways: Sequence[Sequence[Proxy]]) -> None:
        self.stores, self.ways = stores, ways
        self.slots = [slot_on(0), slot_on(1)]
        self.sent = 0
        self.acknowledged: dict[Slot, set[int]] = {slot: set() for slot in self.slots}

    def write(self, store: ShardedStore, slots: Sequence[Slot]) -> None:
        """Send a sample of each slot to a store, which may refuse them."""
        self.sent += 1
        with suppress(UnavailableError):
            store.append_all((batch_of({(slot.gauge(), slot.start + self.sent): 1.0 for slot in slots}),), FOREVER)
            for slot in slots:
                self.acknowledged[slot].add(self.sent)

    def ask(self, store: ShardedStore) -> set[int]:
        """Query both slots at once. Return the shards that the answer reports as missing; it has all other samples."""
        span = TimeRange(min(slot.start for slot in self.slots), max(slot.span.end_ms for slot in self.slots))
        with may_lack(store.list_damaged()) as missing:
            found = read_all(store, [slot.gauge() for slot in self.slots], span)
        for shard, slot in enumerate(self.slots):
            times = {time - slot.start for series, time in found if series == slot.gauge()}
            assert times <= set(range(1, self.sent + 1))
            assert shard in missing.left_out or self.acknowledged[slot] <= times
        return set(missing.left_out)


@pytest.fixture
def site(servers: Sequence[NodeProcess], tmp_path) -> Iterator[Site]:
    ways = [[Proxy(one.own.http) for one in servers[:2]] for _ in range(2)]
    group, database = MemoryServerGroup(), new_database()
    with ExitStack() as stack:
        for way in [one for some in ways for one in some]:
            stack.callback(way.cut)
        stores: list[ShardedStore] = []
        for number, some in enumerate(ways):
            hosts = ",".join(f"127.0.0.1:{way.port}" for way in some)
            dsn = f"clickhousedb://{hosts}/{database}?shards=2"
            store = open_store(dsn, CLOCK, tmp_path / str(number), peer_listen="127.0.0.1:0", open_group=lambda: group)
            assert isinstance(store, ShardedStore)
            stores.append(stack.enter_context(closing(store)))
        yield Site(stores, ways)


def sees_cut(store: ShardedStore) -> bool:
    return bool(store.list_damaged())


def sees_all(store: ShardedStore) -> bool:
    return not store.list_damaged()


def test_answers_name_partitioned_shards_and_lose_no_sample(site):
    generator = random.Random(int(os.environ.get("PARTITION_SEED", "2")))
    site.write(site.stores[0], site.slots)
    for store in site.stores:
        assert not site.ask(store)
    for shard in (0, 1):  # each server reaches a shard that the other one does not reach
        site.ways[shard][1 - shard].cut()
    for shard, store in enumerate(site.stores):
        wait_until(partial(sees_cut, store), "the notice of the cut")
        assert site.ask(store) == {1 - shard}
        site.write(store, site.slots)
    ways = [way for some in site.ways for way in some]
    is_cut = {number: number in {1, 2} for number in range(len(ways))}
    for _ in range(int(os.environ.get("PARTITION_STEPS", "8"))):
        number = generator.randrange(len(ways))
        (ways[number].mend if is_cut[number] else ways[number].cut)()
        is_cut[number] = not is_cut[number]
        for _ in range(generator.randint(1, 4)):
            site.write(generator.choice(site.stores), generator.choice([site.slots, site.slots[:1], site.slots[1:]]))
            with suppress(UnavailableError):
                site.ask(generator.choice(site.stores))
    for number in range(len(ways)):
        if is_cut[number]:
            ways[number].mend()
    for store in site.stores:
        wait_until(partial(sees_all, store), "all shards", 60)
        assert not site.ask(store)
