"""Tests of several servers with windows on one sharded store: each shard has a leader, and the others follow."""

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest
from tests.store_contract.logs import line_of, read_lines
from tests.store_contract.samples import FOREVER, batch_of, read_all
from tests.store_contract.slot import Slot
from tests.support.clickhouse import NodeProcess
from tests.support.server_group import MemoryServerGroup
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_shared_replicas import expel
from tests.unit.store.shards.support import CLOCK, address, new_database, slot_on

from jobmeter.errors import UnavailableError
from jobmeter.model.time import HOUR, TimeRange
from jobmeter.store.clickhouse import ClickHouseStore
from jobmeter.store.registry import open_store
from jobmeter.store.shards.store import ShardedStore
from jobmeter.store.window.store import WindowedStore

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(servers: Sequence[NodeProcess]) -> Sequence[NodeProcess]:
    """Yield two shards with one ClickHouse server each."""
    return servers[:2]


@pytest.fixture
def group() -> MemoryServerGroup:
    return MemoryServerGroup()


class Server(WindowedStore):
    """Store of a server, and the shards behind its window."""

    def __init__(self, dsn: str, journals: Path, group: MemoryServerGroup) -> None:
        engine = open_store(dsn, CLOCK, journals, peer_listen="127.0.0.1:0", open_group=lambda: group)
        assert isinstance(engine, ShardedStore)
        self.engine = engine
        super().__init__(engine, CLOCK, length_ms=2 * HOUR, bound=1 << 26)


@contextmanager
def opened(dsn: str, journals: Path, group: MemoryServerGroup) -> Iterator[Server]:
    with closing(Server(dsn, journals, group)) as store:
        yield store


def role(store: WindowedStore) -> str:
    return store.read_statistics().role


def live_slot(shard: int, count: int = 2) -> Slot:
    """Return a slot on a shard whose samples are in the window."""
    slot = slot_on(shard, count)
    slot.start = CLOCK.now_ms() - HOUR
    slot.span = TimeRange(slot.start, slot.start + HOUR)
    return slot


def write(store: WindowedStore, slots: Sequence[Slot], number: int) -> None:
    store.append_all((batch_of({(slot.gauge(), slot.start + number): float(number) for slot in slots}),), FOREVER)


def require(store: WindowedStore, slots: Sequence[Slot], count: int) -> None:
    for slot in slots:
        expected = {(slot.gauge(), slot.start + number): float(number) for number in range(count)}
        assert read_all(store, [slot.gauge()], slot.span) == expected


def test_each_server_answers_from_memory_what_the_other_acknowledged(pair, tmp_path, group):
    dsn, slots = address(pair, new_database(), 2), [live_slot(0), live_slot(1)]
    with opened(dsn, tmp_path / "a", group) as first, opened(dsn, tmp_path / "b", group) as second:
        assert (role(first), role(second)) == ("leads, followers: 1", "follows the leading server")
        for number, store in enumerate((first, second) * 3):
            write(store, slots, number)
            for one in (first, second):
                require(one, slots, number + 1)
                assert one.memory is not None
        second.logs.append([line_of(slot, 0, "line 0") for slot in slots], FOREVER)
        assert [line.text for line in read_lines(first, slots[1]).lines] == ["line 0"]
        second.delete_job(slots[0].key)
        for one in (first, second):
            require(one, slots[:1], 0)
            require(one, slots[1:], 6)
    with opened(dsn, tmp_path / "b", group) as again:
        require(again, slots[1:], 6)


@pytest.fixture
def crossed(pair, tmp_path, group, monkeypatch) -> Iterator[Sequence[WindowedStore]]:
    """Yield servers that lead one shard each."""
    # The lowest number leads: the server that joins again gets a higher one.
    numbers = count(2)
    monkeypatch.setattr(secrets, "randbits", lambda _: next(numbers))
    dsn = address(pair, new_database(), 2)
    with opened(dsn, tmp_path / "a", group) as first, opened(dsn, tmp_path / "b", group) as second:
        engine = first.engine.shards[1].engine
        assert isinstance(engine, ClickHouseStore)
        expel(engine, group)
        roles = [
            "shard 1: leads, followers: 1; shard 2: follows the leading server",
            "shard 1: follows the leading server; shard 2: leads, followers: 1",
        ]
        wait_until(lambda: [role(one) for one in (first, second)] == roles, "the succession", 30)
        yield first, second


def test_servers_that_lead_one_shard_each_do_not_wait_for_each_other(crossed):
    doomed = [live_slot(shard) for shard in (0, 1) for _ in range(8)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        own = [live_slot(0), live_slot(1)]
        mine, other = crossed[number % 2], crossed[1 - number % 2]
        try:
            for at in range(40):
                write(mine, own, at)
                require(other, own, at + 1)
                assert other.memory is not None
                if at % 10 == 9:
                    mine.delete_job(doomed.pop().key)
                if number < 2:  # one thread of each server fills its window
                    mine.fill(10)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for slot in doomed:
        write(crossed[0], [slot], 0)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not failures, str(failures[0])[:600]
    assert not any(thread.is_alive() for thread in threads)
    assert crossed[0].roll_up(CLOCK.now_ms() - 2 * HOUR) >= 0


def test_a_server_without_others_changes_the_number_of_shards(servers, tmp_path, group):
    database = new_database()
    two, three = (address(servers[:count], database, count) for count in (2, 3))
    slots = [live_slot(shard, 3) for shard in range(3)]
    with opened(two, tmp_path / "a", group) as first:
        write(first, slots, 0)
        with pytest.raises(UnavailableError, match="the number of shards is to change: stop all servers"):
            Server(three, tmp_path / "b", group)
    with opened(three, tmp_path / "b", group) as grown:
        wait_until(lambda: grown.engine.placement.count == 3, "the third shard", 60)
        require(grown, slots, 1)
    with opened(three, tmp_path / "a", group) as first, opened(three, tmp_path / "b", group) as second:
        write(second, slots, 1)
        require(first, slots, 2)
        with pytest.raises(UnavailableError, match="the number of shards is to change: stop all servers"):
            Server(two, tmp_path / "c", group)
