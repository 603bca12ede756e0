"""Tests of servers that reach different replicas: no answer lacks an acknowledged row, and none is lost."""

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest
from tests.store_contract.logs import line_of, read_lines
from tests.store_contract.samples import FOREVER, batch_of, read_all
from tests.store_contract.slot import Slot
from tests.support.clickhouse import NodeProcess
from tests.support.proxy import Proxy
from tests.support.server_group import MemoryServerGroup
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_replicas import _short_waits  # noqa: F401
from tests.unit.store.clickhouse.test_shared_replicas import database, group, is_complete, opened  # noqa: F401

from jobmeter.errors import UnavailableError
from jobmeter.store.clickhouse import ClickHouseStore

pytestmark = pytest.mark.slow


@dataclass
class Site:
    """Two stores, and for each of them the connections to the two replicas."""

    stores: Sequence[ClickHouseStore]
    ways: Sequence[Sequence[Proxy]]
    slot: Slot = field(default_factory=Slot)
    sent: int = 0
    samples: set[int] = field(default_factory=set)
    """Numbers of the samples that were acknowledged."""
    lines: set[int] = field(default_factory=set)

    def write(self, store: ClickHouseStore) -> None:
        """Send a sample and a line to a store, which may refuse them."""
        self.sent += 1
        with suppress(UnavailableError):
            store.append_all((batch_of({(self.slot.gauge(), self.slot.start + self.sent): 1.0}),), FOREVER)
            self.samples.add(self.sent)
        with suppress(UnavailableError):
            store.logs.append([line_of(self.slot, self.sent, f"{self.sent}")], FOREVER)
            self.lines.add(self.sent)

    def require_all(self, store: ClickHouseStore) -> None:
        """Fail if an answer lacks any acknowledged row."""
        found = {time - self.slot.start for _, time in read_all(store, [self.slot.gauge()], self.slot.span)}
        assert self.samples <= found <= set(range(1, self.sent + 1))
        lines = [int(line.text) for line in read_lines(store, self.slot).lines]
        assert len(lines) == len(set(lines))
        assert self.lines <= set(lines) <= set(range(1, self.sent + 1))


@pytest.fixture
def site(servers: Sequence[NodeProcess], database: str, tmp_path, group: MemoryServerGroup) -> Iterator[Site]:  # noqa: F811
    ways = [[Proxy(one.own.http) for one in servers] for _ in range(2)]
    with ExitStack() as stack:
        for way in [one for some in ways for one in some]:
            stack.callback(way.cut)
        stores = [
            stack.enter_context(
                opened(
                    f"clickhousedb://{','.join(f'127.0.0.1:{way.port}' for way in some)}/{database}",
                    tmp_path / str(number),
                    group,
                )
            )
            for number, some in enumerate(ways)
        ]
        wait_until(lambda: all(map(is_complete, stores)), "the repair", 60)
        yield Site(stores, ways)


def test_a_follower_refuses_what_it_cannot_read_where_the_leader_writes(site):
    leader, follower = site.stores
    site.ways[0][1].cut()
    site.ways[1][0].cut()
    for store in (leader, follower) * 2:
        site.write(store)
    assert (len(site.samples), len(site.lines)) == (4, 4)
    site.require_all(leader)
    with pytest.raises(UnavailableError):
        site.require_all(follower)
    for way in (site.ways[0][1], site.ways[1][0]):
        way.mend()
    wait_until(lambda: all(map(is_complete, site.stores)), "the repair", 60)
    for store in site.stores:
        site.require_all(store)


def test_random_partitions_hide_and_lose_no_sample(site, servers):
    generator = random.Random(int(os.environ.get("PARTITION_SEED", "1")))
    ways = [way for some in site.ways for way in some]
    is_cut = dict.fromkeys(range(len(ways)), False)
    for _ in range(int(os.environ.get("PARTITION_STEPS", "8"))):
        number = generator.randrange(len(ways))
        (ways[number].mend if is_cut[number] else ways[number].cut)()
        is_cut[number] = not is_cut[number]
        for _ in range(generator.randint(1, 4)):
            site.write(generator.choice(site.stores))
            with suppress(UnavailableError):
                site.require_all(generator.choice(site.stores))
    for number, way in enumerate(ways):
        if is_cut[number]:
            way.mend()
    wait_until(lambda: all(map(is_complete, site.stores)), "the repair", 60)
    assert site.samples
    assert site.lines
    for store in site.stores:
        site.require_all(store)
    for server in servers:
        with server.killed():
            for store in site.stores:
                site.require_all(store)
