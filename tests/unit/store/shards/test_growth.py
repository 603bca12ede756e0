"""Tests of adding or removing shards during traffic: rows move, none is lost or doubled, at any stop of the server."""

import random
from contextlib import closing
from typing import cast

import pytest
from tests.store_contract.logs import line_of
from tests.store_contract.samples import FOREVER, batch_of, read_all
from tests.store_contract.slot import Slot
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_move import Traffic, contents, series_of
from tests.unit.store.shards.support import CLOCK, address, await_complete, new_database, opened, slot_on

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.series import Series
from jobmeter.model.span import Span
from jobmeter.model.trace_filter import TraceFilter
from jobmeter.store.base import ReadBudget, SeriesSelector, Store
from jobmeter.store.clickhouse import placement_change
from jobmeter.store.registry import open_store
from jobmeter.store.shards.placement import find_shard
from jobmeter.store.shards.store import ShardedStore

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_change, "AGAIN_SECONDS", 0.2)


def act(traffic: Traffic) -> None:
    """Run a random action of the traffic. Writes are refused at the last moment of the growth."""
    state = traffic.generator.getstate()
    try:
        traffic.act()
    except UnavailableError as error:
        if "placed on other shards" not in error.message:
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
        store.append_all((batch_of({(one, slots[0].start): 1.0 for one in nodes}),), FOREVER)
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


@pytest.mark.parametrize(("before", "after", "restarts"), [(1, 2, False), (1, 2, True), (2, 1, False), (2, 1, True)])
def test_a_placement_that_fails_in_the_middle_is_finished(servers, tmp_path, monkeypatch, before, after, restarts):
    database, slots = new_database(), [slot_on(0, 2), slot_on(1, 2)]
    stored = {(slot.gauge(), slot.start): 1.0 for slot in slots}
    changed = f"{address(servers[:2], database, 2)}&keep={after}"
    with closing(open_store(address(servers[:before], database, before), CLOCK, tmp_path)) as store:
        store.append_all((batch_of(stored),), FOREVER)
    with monkeypatch.context() as patch:
        patch.setattr(placement_change, "drop_moved", refuse)
        with opened(changed, tmp_path) as store:
            wait_until(lambda: store.count == after, "the change", 60)
            with pytest.raises(UnavailableError, match="placed on other shards"):
                store.append_all((batch_of({(slots[0].gauge(), slots[0].start + 1): 2.0}),), FOREVER)
            if not restarts:
                patch.undo()
                wait_until(lambda: is_writable(store), "the end of the placement", 60)
            require_placed(store, slots, stored)
    with opened(changed, tmp_path) as store:
        assert store.count == after
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


def require_same(store: ShardedStore, traffic: Traffic, nodes: list[Series]) -> None:
    """Require that all reads are correct, including queries to all shards, which would find copies twice."""
    for slot in traffic.slots:
        assert read_all(store, series_of(slot), slot.span) == traffic.stored[slot.job]
    found = store.find(SeriesSelector(nodes=(("main", "n"),)))
    assert sorted(one.metric for one in found) == [one.metric for one in nodes]
    every = store.find(SeriesSelector())
    assert len({one.id for one in every}) == len(every)
    page = store.list_live_series(0, 10_000)
    assert len(set(page.keys.series.tolist())) == len(page.keys)
    traces = store.spans.list_traces(TraceFilter(projects=frozenset({"removal"}), limit=100, count=True), ReadBudget())
    assert (len(traces.traces), traces.total) == (SPANS, SPANS)


SPANS = 12


def span(number: int) -> Span:
    return Span(
        trace=f"{number * 7919:032x}", span=f"{number:016x}", start_ns=10**18, end_ns=10**18 + 1, project="removal"
    )


@pytest.mark.parametrize(("per_shard", "count", "keep"), [(1, 3, 2), (2, 2, 1)])
def test_rows_move_from_removed_shards_beside_traffic(servers, tmp_path, monkeypatch, per_shard, count, keep):
    database = new_database()
    whole = address(servers[: per_shard * count], database, count)
    slots = [slot_on(number, count) for number in range(count)]
    traffic = Traffic(cast("Store", None), slots, random.Random(7))
    nodes = [Series(f"host.m{number}", node="n", cluster="main") for number in range(9)]
    with opened(whole, tmp_path) as store:
        traffic.store = store
        for _ in range(15):
            traffic.act()
        store.append_all((batch_of({(one, slots[0].start): 1.0 for one in nodes}),), FOREVER)
        store.spans.append([span(number) for number in range(SPANS)], FOREVER)
        await_complete(store)
    with monkeypatch.context() as patch:
        patch.setattr(placement_change.PlacementChange, "_place", refuse)  # all rows are copied, and stay there
        with opened(f"{whole}&keep={keep}", tmp_path) as store:
            traffic.store = store
            wait_until(lambda: has_copies(store, slots[-1]), "the copies", 60)
            for _ in range(5):
                act(traffic)
            require_same(store, traffic, nodes)
    with opened(whole, tmp_path) as store:  # the operator cancels the growth: the copies are dropped
        require_same(store, traffic, nodes)
        assert not has_copies(store, slots[-1])
    with opened(f"{whole}&keep={keep}", tmp_path) as store:
        traffic.store = store
        wait_until(lambda: is_grown(traffic, store, keep), "the removal", 120)
        for _ in range(5):
            act(traffic)
        require_same(store, traffic, nodes)
        await_complete(store)
    with pytest.raises(ConfigurationError, match="shards"):
        open_store(address(servers[per_shard : per_shard * count], database, count - 1), CLOCK, tmp_path)
    kept = open_store(address(servers[: per_shard * keep], database, keep), CLOCK, tmp_path)
    with closing(kept) as store:
        traffic.store = store
        for slot in slots:
            assert read_all(store, series_of(slot), slot.span) == traffic.stored[slot.job]


def has_copies(store: ShardedStore, slot: Slot) -> bool:
    """Return True if the first shard has samples of a job of another one."""
    return bool(store.shards[0].call(lambda engine: read_all(engine, series_of(slot), slot.span)))
