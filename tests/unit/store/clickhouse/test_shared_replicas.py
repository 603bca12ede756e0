"""Tests of several servers on replicas without Keeper: one leads and writes, the others follow and read."""

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from tests.store_contract.logs import line_of, read_lines
from tests.store_contract.samples import FOREVER, batch_of, brute_buckets, read_all, stored_buckets
from tests.store_contract.slot import Slot
from tests.support.clickhouse import NodeProcess
from tests.support.server_group import MemoryServerGroup
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_replicas import CLOCK, _short_waits, address, complete  # noqa: F401

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.span import Span
from jobmeter.model.time import HOUR
from jobmeter.model.trace_filter import SpanFilter
from jobmeter.store.base import ReadBudget, Tier
from jobmeter.store.clickhouse import ClickHouseStore, parse_dsn, rollup_sql
from jobmeter.store.clickhouse.pool import connect
from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED
from jobmeter.store.registry import open_store


@pytest.fixture
def database() -> str:
    return f"jobmeter_{secrets.token_hex(4)}"


@pytest.fixture
def group() -> MemoryServerGroup:
    return MemoryServerGroup()


@contextmanager
def opened(dsn: str, journals: Path, group: MemoryServerGroup) -> Iterator[ClickHouseStore]:
    with closing(open_store(dsn, CLOCK, journals, peer_listen="127.0.0.1:0", open_group=lambda: group)) as store:
        assert isinstance(store, ClickHouseStore)
        yield store


@pytest.fixture
def pair(servers, database, tmp_path, group) -> Iterator[Sequence[ClickHouseStore]]:
    with ExitStack() as stack:
        dsn = address(servers, database)
        yield [stack.enter_context(opened(dsn, tmp_path / name, group)) for name in ("first", "second")]


def expel(store: ClickHouseStore, group: MemoryServerGroup) -> None:
    """Make a follower treat the leader as dead."""
    assert store.replicas is not None
    assert store.membership is not None
    name, number = store.replicas.identity, store.membership.number
    (row,) = (one for one in group.read_servers(name, DEPARTED) if one.number == number)
    group.write_server(name, row._replace(state=EXPELLED), 0)


def role(store: ClickHouseStore) -> str:
    return store.read_statistics().role


def test_followers_write_by_the_leader_and_read_what_it_wrote(pair):
    first, second = pair
    assert (role(first), role(second)) == ("leads, followers: 1", "follows the leading server")
    slot = Slot()
    for number, store in enumerate((first, second)):
        store.append_all((batch_of({(slot.gauge(), slot.start + number): float(number)}),), FOREVER)
        store.logs.append([line_of(slot, number, f"line {number}")], FOREVER)
    for store in pair:
        assert len(read_all(store, [slot.gauge()], slot.span)) == 2
        assert [line.text for line in read_lines(store, slot).lines] == ["line 0", "line 1"]
    second.delete_job(slot.key)
    for store in pair:
        assert not read_all(store, [slot.gauge()], slot.span)
        assert not read_lines(store, slot).lines


def write(store: ClickHouseStore, slot: Slot, number: int) -> None:
    store.append_all((batch_of({(slot.gauge(), slot.start + number): float(number)}),), FOREVER)
    store.logs.append([line_of(slot, number, f"line {number}")], FOREVER)


def require_written(store: ClickHouseStore, slot: Slot, count: int) -> None:
    expected = {(slot.gauge(), slot.start + number): float(number) for number in range(count)}
    assert read_all(store, [slot.gauge()], slot.span) == expected
    assert [line.text for line in read_lines(store, slot).lines] == [f"line {number}" for number in range(count)]


def is_complete(store: ClickHouseStore) -> bool:
    return all(complete(store))


@pytest.mark.parametrize("fault", [NodeProcess.killed, NodeProcess.frozen])
def test_no_server_reads_a_replica_that_lacks_what_another_server_wrote(servers, pair, fault):
    slot = Slot()
    wait_until(lambda: all(map(is_complete, pair)), "the repair", 60)
    written = 0
    for faulty in servers:
        with fault(faulty):
            for store in pair:
                write(store, slot, written)
                written += 1
                pair[0].maintenance.flush()
                for one in pair:
                    require_written(one, slot, written)
        for one in pair:  # the replica is back, and lacks rows
            require_written(one, slot, written)
        wait_until(lambda: all(map(is_complete, pair)), "the repair", 60)
        for one in pair:
            require_written(one, slot, written)


def test_a_follower_succeeds_and_the_former_leader_writes_no_more(servers, database, tmp_path, group):
    dsn, slot = address(servers, database), Slot()
    with opened(dsn, tmp_path / "second", group) as second, opened(dsn, tmp_path / "first", group) as first:
        assert role(first) == "follows the leading server"
        write(first, slot, 0)
        wait_until(lambda: is_complete(second), "the repair", 60)
        former = second
        assert former.replicas is not None
        before = former.replicas.record.number
        former.close()
        wait_until(lambda: role(first).startswith("alone"), "the succession", 60)
        write(first, slot, 1)
        require_written(first, slot, 2)
        assert first.replicas is not None
        assert first.replicas.record.number > before
        with opened(dsn, tmp_path / "second", group) as again:
            assert role(again) == "follows the leading server"
            write(again, slot, 2)
            require_written(again, slot, 3)


def test_a_group_that_works_goes_on_without_its_table_of_servers(servers, pair, group):
    slot = Slot()
    wait_until(lambda: all(map(is_complete, pair)), "the repair", 60)
    group.away = True
    for number, store in enumerate(pair):
        write(store, slot, number)
        for one in pair:
            require_written(one, slot, number + 1)
    with servers[1].killed():
        with pytest.raises(UnavailableError, match="does not answer"):  # no server may exclude the replica now
            pair[1].logs.append([line_of(slot, 2, "line 2")], FOREVER)
        pair[1].append_all((batch_of({(slot.gauge(), slot.start + 2): 2.0}),), FOREVER)  # into the journal
        assert len(read_all(pair[0], [slot.gauge()], slot.span)) == 3
        group.away = False
        pair[1].logs.append([line_of(slot, 2, "line 2")], FOREVER)
        for one in pair:
            require_written(one, slot, 3)


def test_a_server_without_the_registry_of_the_group_does_not_start(servers, database, tmp_path, group):
    dsn, slot = address(servers, database), Slot()
    with opened(dsn, tmp_path / "first", group) as store:
        write(store, slot, 0)
        for journals in (None, tmp_path / "other"):
            with pytest.raises(ConfigurationError, match="servers of a registry in PostgreSQL"):
                open_store(dsn, CLOCK, journals)
    with closing(open_store(dsn, CLOCK, tmp_path / "other", discard=True)) as alone:
        assert len(read_all(alone, [slot.gauge()], slot.span)) == 1
    with opened(dsn, tmp_path / "first", group) as store:  # the group again, with a newer record
        require_written(store, slot, 1)


def test_the_only_server_of_replicas_becomes_one_of_several(servers, database, tmp_path, group):
    dsn, slot = address(servers, database), Slot()
    with closing(open_store(dsn, CLOCK, tmp_path / "first")) as store:
        store.append_all((batch_of({(slot.gauge(), slot.start): 0.0}),), FOREVER)
        with (
            pytest.raises(UnavailableError, match="another server uses these replicas"),
            opened(dsn, tmp_path / "second", group),
        ):
            pass
    with opened(dsn, tmp_path / "first", group) as first, opened(dsn, tmp_path / "second", group) as second:
        assert [role(one) for one in (first, second)] == ["leads, followers: 1", "follows the leading server"]
        for one in (first, second):
            assert len(read_all(one, [slot.gauge()], slot.span)) == 1


def test_a_follower_stores_spans_and_outbox_rows_by_the_leader(pair):
    slot, (first, second) = Slot(), pair
    span = Span(trace="a" * 32, span="b" * 16, start_ns=10**18, end_ns=10**18 + 1, project="p", job=slot.job)
    second.spans.append([span], FOREVER)
    found = first.spans.read(SpanFilter(traces=frozenset({span.trace})), ReadBudget())
    assert [one.span for one in found] == [span.span]
    shipper = 2**64 - 5
    rows = [OutboxRow(number, CLOCK.now_ms(), 9, b"{}") for number in (1, 2)]
    second.outbox.append(shipper, rows)
    assert first.outbox.read(shipper, 0, 9, 2**20) == rows
    second.outbox.trim(shipper, 1)
    assert first.outbox.read(shipper, 0, 9, 2**20) == rows[1:]
    assert second.outbox.read(shipper, 0, 9, 2**20) == rows[1:]


class Freeze:
    """Stop a leader's writes at its last check before a statement, until they are thawed."""

    def __init__(self, store: ClickHouseStore) -> None:
        self._frozen, self._thawed = threading.Event(), threading.Event()
        assert store.node_log is not None
        assert store.membership is not None
        self._store, self._membership = store, store.membership
        store.node_log.check = self._wait

    def _wait(self) -> None:
        self._frozen.set()
        self._thawed.wait()

    def await_succession(self, second: ClickHouseStore, group: MemoryServerGroup) -> None:
        """Wait until the follower leads."""
        self._membership.stop()
        assert self._frozen.wait(30)
        expel(self._store, group)
        wait_until(lambda: role(second).startswith(("leads", "alone")), "the succession", 60)

    def thaw(self) -> None:
        """Let the writes continue."""
        self._thawed.set()


def test_replicas_refuse_the_insert_of_a_leader_that_froze_before_it(servers, pair, group):
    slot, (first, second) = Slot(), pair
    wait_until(lambda: all(map(is_complete, pair)), "the repair", 60)
    log = first.node_log
    assert log is not None
    first.append_all((batch_of({(slot.gauge(), slot.start): 0.0}),), FOREVER)
    first.maintenance.flush()  # so that the next insert has only samples
    freeze = Freeze(first)
    first.append_all((batch_of({(slot.gauge(), slot.start): 1.0}),), FOREVER)
    freeze.await_succession(second, group)
    second.append_all((batch_of({(slot.gauge(), slot.start): 2.0}),), FOREVER)
    second.maintenance.flush()
    freeze.thaw()
    wait_until(lambda: log.read_statistics()["failures"])
    wait_until(lambda: is_complete(second), "the repair", 60)
    for server in servers:
        with server.killed():
            assert read_all(second, [slot.gauge()], slot.span) == {(slot.gauge(), slot.start): 2.0}


TRACE, SHIPPER = "c" * 32, 2**64 - 6
LATE_WRITES: dict[str, Callable[[ClickHouseStore, Slot], object]] = {
    "lines": lambda store, slot: store.logs.append([line_of(slot, 1, "late")], FOREVER),
    "spans": lambda store, slot: store.spans.append(
        [Span(trace=TRACE, span="d" * 16, start_ns=10**18, end_ns=10**18 + 1, project="p", job=slot.job)], FOREVER
    ),
    "outbox": lambda store, _: store.outbox.append(SHIPPER, [OutboxRow(1, CLOCK.now_ms(), 9, b"{}")]),
    "deletion": lambda store, slot: store.delete_job(slot.key),
    "roll-up": lambda store, slot: store.roll_up(slot.start),
}


@pytest.mark.parametrize("write_late", LATE_WRITES.values(), ids=LATE_WRITES)
def test_replicas_refuse_another_write_of_a_leader_that_froze_before_it(servers, pair, group, write_late):
    slot, (first, second) = Slot(), pair
    wait_until(lambda: all(map(is_complete, pair)), "the repair", 60)
    write(first, slot, 0)
    first.maintenance.flush()
    freeze = Freeze(first)
    with ThreadPoolExecutor(1) as aside:
        late = aside.submit(write_late, first, slot)
        freeze.await_succession(second, group)
        freeze.thaw()
        with pytest.raises(UnavailableError):
            late.result()
    wait_until(lambda: is_complete(second), "the repair", 60)
    for server in servers:
        with server.killed():
            require_written(second, slot, 1)
            assert not second.spans.read(SpanFilter(traces=frozenset({TRACE})), ReadBudget())
            assert not second.outbox.read(SHIPPER, 0, 9, 2**20)
            assert second.rollup_state.select_progress()["intent"] < slot.start


@contextmanager
def slow_roll_ups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make statements of roll-ups that start inside the block take seconds for each row."""
    make = rollup_sql.make_minutes_statement

    def make_slow(scope: str, *, again: bool) -> str:
        return make(scope, again=again).replace("WHERE 1\n", "WHERE sleepEachRow(8) = 0\n")

    with monkeypatch.context() as patch:
        patch.setitem(rollup_sql.LIMITS, "function_sleep_max_microseconds_per_block", 60_000_000)
        patch.setattr(rollup_sql, "make_minutes_statement", make_slow)
        yield


def is_rolling_up(server: NodeProcess) -> bool:
    sql = "SELECT count() FROM system.processes WHERE query LIKE '%INTO minutes%' AND query_kind = 'Insert'"
    with closing(connect(parse_dsn(f"{server.own.dsn}/default"), None)) as client:
        return bool(client.query(sql).result_rows[0][0])


def rolls_up(store: ClickHouseStore, until_ms: int) -> bool:
    try:
        store.roll_up(until_ms)
    except UnavailableError:
        return False
    return True


def test_a_roll_up_of_a_former_leader_that_ends_late_replaces_no_newer_one(servers, pair, group, monkeypatch):
    slot, (first, second) = Slot(), pair
    wait_until(lambda: all(map(is_complete, pair)), "the repair", 60)
    stored = {(slot.gauge(), slot.start): 1.0}
    first.append_all((batch_of(stored),), FOREVER)
    with ThreadPoolExecutor(1) as aside:
        with slow_roll_ups(monkeypatch):
            late = aside.submit(first.roll_up, slot.start + HOUR)
            wait_until(lambda: late.done() or is_rolling_up(servers[0]))
        first.membership.stop()  # otherwise it may lead again before its follower does
        expel(first, group)
        wait_until(lambda: role(second).startswith(("leads", "alone")), "the succession", 60)
        stored[slot.gauge(), slot.start + 1] = 2.0
        second.append_all((batch_of({(slot.gauge(), slot.start + 1): 2.0}),), FOREVER)
        wait_until(lambda: rolls_up(second, slot.start + HOUR), "the roll-up", 60)
        assert late.exception()
    wait_until(lambda: is_complete(second), "the repair", 60)
    for tier in (Tier.MINUTE, Tier.HOUR):
        expected = brute_buckets(stored, [slot.gauge()], slot.span, tier)
        for server in servers:
            with server.killed():
                assert stored_buckets(second, [slot.gauge()], slot.span, tier) == expected


def test_a_leader_that_ends_after_its_follower_leaves_no_row_in_its_journal(servers, database, tmp_path, group):
    dsn, slot = address(servers, database), Slot()
    with opened(dsn, tmp_path / "first", group) as first, opened(dsn, tmp_path / "second", group):
        first.append_all((batch_of({(slot.gauge(), slot.start): 0.0}),), FOREVER)
    assert first.node_log is not None
    assert not first.node_log.read_statistics()["rows"]
