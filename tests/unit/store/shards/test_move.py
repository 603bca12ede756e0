"""Tests of moves between a ClickHouse server, replicas and shards, with writes and stops between any steps."""

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import cast

import pytest
from tests.store_contract.samples import read_all
from tests.support.clickhouse import NodeProcess
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_move import Traffic, contents, series_of
from tests.unit.store.shards.support import CLOCK, address, new_database, slot_on

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.registry import cancel_move, move_store, open_store

pytestmark = pytest.mark.slow

Hosts = Callable[[Sequence[NodeProcess]], str]


def place(first: int, last: int, shards: int) -> Hosts:
    return lambda servers: address(servers[first:last], new_database(), shards)


@pytest.mark.parametrize(
    ("source", "destination"),
    [(place(0, 1, 1), place(0, 4, 2)), (place(0, 4, 2), place(0, 3, 3)), (place(0, 2, 1), place(2, 4, 1))],
    ids=["one-to-2x2", "2x2-to-3x1", "replicas-to-replicas"],
)
def test_a_move_beside_traffic_stores_each_sample_once(servers, tmp_path, source, destination):
    generator = random.Random(2)
    slots = [slot_on(0), slot_on(1), slot_on(1)]
    to, own = destination(servers), source(servers)
    with closing(open_store(own, CLOCK, tmp_path / "from")) as store:
        traffic = Traffic(store, slots, generator)
        for _ in range(20):
            traffic.act()
        report = None
        for steps in (generator.randint(1, 12), None):
            with closing(cast("Generator[MoveLine]", store.move(MoveOrder(to=to)))) as lines:
                for line in islice(lines, steps):
                    report = line.report
                    if line.step is not None and not line.step.refusing and generator.random() < 0.3:
                        traffic.act()
            if steps is not None:
                with pytest.raises(ConfigurationError, match="not all in"):
                    open_store(to, CLOCK, tmp_path / "to")
        assert report is not None
        assert report.moved
        with pytest.raises(UnavailableError, match="were moved"):
            traffic.samples(slots[0])
        before = repr(contents(store, slots))  # NaN is not equal to itself
        *_, line = store.move(MoveOrder(to=to, compare=True))
        assert line.report is not None
        assert not any(table.slices for table in line.report.tables)
    require_moved(to, tmp_path, traffic, before)
    with pytest.raises(ConfigurationError, match="were moved to"):
        open_store(own, CLOCK, tmp_path / "from")
    assert cancel_move(own, CLOCK) == parse_dsn(to).name
    open_store(own, CLOCK, tmp_path / "from").close()


def require_moved(to: str, tmp_path, traffic: Traffic, before: str) -> None:
    with closing(open_store(to, CLOCK, tmp_path / "to")) as store:
        assert repr(contents(store, traffic.slots)) == before
        for slot in traffic.slots:
            assert read_all(store, series_of(slot), slot.span) == traffic.stored[slot.job]
        wait_until(lambda: all(store.read_statistics().replicas.values()), "the repair", 60)
        traffic.store = store
        traffic.act()


def test_a_store_that_no_server_uses_is_moved_onto_shards(servers, tmp_path):
    slots = [slot_on(0), slot_on(1)]
    own, to = (address(some, new_database(), shards) for some, shards in ((servers[:1], 1), (servers, 2)))
    with closing(open_store(own, CLOCK, tmp_path)) as store:
        traffic = Traffic(store, slots, random.Random(3))
        for _ in range(15):
            traffic.act()
        before = repr(contents(store, slots))  # NaN is not equal to itself
    *_, line = move_store(own, MoveOrder(to=to), CLOCK)
    assert line.report is not None
    require_moved(to, tmp_path, traffic, before)
