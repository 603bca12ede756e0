"""Shards added beside traffic: the rows move to them, none is lost or doubled, whenever the server is stopped."""

import random
from contextlib import closing
from typing import cast

import pytest
from tests.store_contract.logs import line_of
from tests.store_contract.samples import FOREVER, batch_of, read_all
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_move import Traffic, contents, series_of
from tests.unit.store.shards.support import CLOCK, address, await_complete, new_database, opened, slot_on

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.series import Series
from jobmeter.store.base import SeriesSelector, Store
from jobmeter.store.clickhouse import shard_growth
from jobmeter.store.registry import open_store
from jobmeter.store.shards.placement import find_shard
from jobmeter.store.shards.store import ShardedStore

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_growth, "AGAIN_SECONDS", 0.2)


def act(traffic: Traffic) -> None:
    """Do something. Writes are refused for the last moment of the growth."""
    state = traffic.generator.getstate()
    try:
        traffic.act()
    except UnavailableError as error:
        if "placed on more shards" not in error.message:
            raise
        traffic.generator.setstate(state)


def is_grown(traffic: Traffic, store: ShardedStore, count: int) -> bool:
    act(traffic)
    return store.count == count


@pytest.mark.parametrize(("before", "after"), [((0, 1, 1), (0, 3, 3)), ((0, 2, 1), (0, 4, 2))])
def test_rows_move_to_new_shards_beside_traffic(servers, tmp_path, before, after):
    database = new_database()
    old, new = (address(servers[first:last], database, shards) for first, last, shards in (before, after))
    count = after[2]
    slots = [slot_on(number, count) for number in range(count)]
    traffic = Traffic(cast("Store", None), slots, random.Random(5))
    with closing(open_store(old, CLOCK, tmp_path)) as store:
        traffic.store = store
        for _ in range(15):
            traffic.act()
        nodes = [Series(f"host.m{number}", node="n", cluster="main") for number in range(9)]
        store.append(batch_of({(one, slots[0].start): 1.0 for one in nodes}), FOREVER)
        store.logs.append([line_of(slots[-1], 1, "moved")], FOREVER)
    with opened(new, tmp_path) as store:
        traffic.store = store
        for _ in range(5):
            act(traffic)
    with opened(new, tmp_path) as store:
        traffic.store = store
        wait_until(lambda: is_grown(traffic, store, count), "the growth", 120)
        for _ in range(5):
            act(traffic)
        await_complete(store)
        for slot in slots:
            assert read_all(store, series_of(slot), slot.span) == traffic.stored[slot.job]
        found = repr(contents(store, slots))
        for number, shard in enumerate(store.shards):
            series = shard.call(lambda engine: engine.find(SeriesSelector()))
            assert {find_shard(one.job_key or one.id, count) for one in series} <= {number}
        assert sorted(one.metric for one in store.find(SeriesSelector(nodes=(("main", "n"),)))) == [
            one.metric for one in nodes
        ]
    with pytest.raises(ConfigurationError):
        open_store(old, CLOCK, tmp_path)
    with opened(new, tmp_path) as store:
        assert repr(contents(store, slots)) == found
        assert store.count == count


def refuse(*_: object) -> None:
    raise UnavailableError("its servers do not answer")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_placement_that_fails_in_the_middle_is_finished(servers, tmp_path, monkeypatch, restarts):
    database, slots = new_database(), [slot_on(0, 2), slot_on(1, 2)]
    stored = {(slot.gauge(), slot.start): 1.0 for slot in slots}
    with closing(open_store(address(servers[:1], database, 1), CLOCK, tmp_path)) as store:
        store.append(batch_of(stored), FOREVER)
    with monkeypatch.context() as patch:
        patch.setattr(shard_growth, "drop_moved", refuse)
        with opened(address(servers[:2], database, 2), tmp_path) as store:
            wait_until(lambda: store.count == 2, "the growth", 60)
            with pytest.raises(UnavailableError, match="placed on more shards"):
                store.append(batch_of({(slots[0].gauge(), slots[0].start + 1): 2.0}), FOREVER)
            if not restarts:
                patch.undo()
                wait_until(lambda: is_writable(store), "the end of the placement", 60)
            require_placed(store, slots, stored)
    with opened(address(servers[:2], database, 2), tmp_path) as store:
        require_placed(store, slots, stored)
        assert len(store.find(SeriesSelector())) == 2


def is_writable(store: Store) -> bool:
    try:
        store.check_writable()
    except UnavailableError:
        return False
    return True


def require_placed(store, slots, stored) -> None:
    for slot in slots:
        assert read_all(store, [slot.gauge()], slot.span) == {key: 1.0 for key in stored if key[0] == slot.gauge()}
