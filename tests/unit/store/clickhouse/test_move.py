"""Tests of moves between databases of a real ClickHouse server, with writes, deletions and stops between steps."""

import random
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store_contract.logs import line_of, read_lines
from tests.store_contract.samples import FOREVER, Samples, batch_of, read_all, stored_buckets
from tests.store_contract.slot import Slot
from tests.store_contract.spans import read_spans, span_of, trace_id
from tests.support.clickhouse import CLUSTER, Node, each_node, node, shards

from jobmeter.errors import ConfigurationError, ConflictError, InvalidRequestError, UnavailableError
from jobmeter.model.move import MoveLine, MoveOrder, MoveReport
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.time import DAY, HOUR, SystemClock
from jobmeter.store.base import SeriesSelector, Store, Tier
from jobmeter.store.clickhouse import ClickHouseStore, move, move_marks, moved_tables, parse_dsn
from jobmeter.store.clickhouse.pool import connect
from jobmeter.store.registry import cancel_move, move_store, open_store

CLOCK = SystemClock()
SHIPPER = 7
TABLE_NAMES = [table.table for table in moved_tables.TABLES]


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with node() as one:
        yield one


@pytest.fixture
def dsn(server: Node) -> str:
    return address(server)


@pytest.fixture
def slot() -> Slot:
    return Slot()


@pytest.fixture
def source(server: Node) -> Iterator[ClickHouseStore]:
    with opened(address(server)) as store:
        yield store


def address(server: Node) -> str:
    """Return the address of a database that does not exist."""
    return f"{server.dsn}/jobmeter_{secrets.token_hex(4)}"


@contextmanager
def opened(dsn: str, journals: Path | None = None) -> Iterator[ClickHouseStore]:
    with closing(open_store(dsn, CLOCK, journals)) as store:
        assert isinstance(store, ClickHouseStore)
        yield store


def moved(store: Store, to: str, **more: bool) -> MoveReport:
    """Complete the move and return its report."""
    *_, last = store.move(MoveOrder(to=to, **more))
    assert last.report is not None
    return last.report


def series_of(slot: Slot) -> list[Series]:
    return [slot.gauge(), slot.counter(), slot.gauge("worker-1")]


def contents(store: Store, slots: list[Slot]) -> dict[str, object]:
    """Return all data that queries find for some slots."""
    found: dict[str, object] = {}
    for slot in slots:
        series = series_of(slot)
        keys = [one.job_key for one in series[:1]]
        ranges = store.find_rolled_up_ranges(keys, slot.span)
        found[slot.job] = (
            read_all(store, series, slot.span),
            ranges,
            [stored_buckets(store, series, part, tier) for part in ranges for tier in Tier],
            sorted(map(repr, store.find(SeriesSelector(jobs=tuple(keys))))),
            store.read_last_times(keys),
            read_lines(store, slot),
            read_spans(store, trace_id(slot)),
        )
    found["outbox"] = store.outbox.read(SHIPPER, 0, 1_000, 1_000_000)
    return found


class Traffic:
    """Random writes to a store, and the samples that it acknowledged."""

    def __init__(self, store: Store, slots: list[Slot], generator: random.Random) -> None:
        self.store, self.slots, self.generator = store, slots, generator
        self.stored: dict[str, Samples] = {slot.job: {} for slot in slots}
        self.numbers = 0

    def act(self) -> None:
        slot = self.generator.choice(self.slots)
        actions: list[Callable[[Slot], None]] = [*3 * [self.samples], self.lines, self.spans, self.outbox, self.roll_up]
        self.generator.choice([*actions, self.forget])(slot)

    def samples(self, slot: Slot) -> None:
        one = self.generator.choice(series_of(slot))
        times = [slot.start + HOUR // 4 * self.generator.randrange(32) for _ in range(self.generator.randint(1, 40))]
        some: Samples = {(one, time): self.generator.choice([0.5, 1.25, 7.0, 1e300, float("inf")]) for time in times}
        self.store.append_all((batch_of(some),), FOREVER)
        self.stored[slot.job] |= some

    def lines(self, slot: Slot) -> None:
        at = self.generator.randrange(8 * 3_600) * 1_000_000_000
        self.store.logs.append([line_of(slot, at, text) for text in ("one", "two é")], FOREVER)

    def spans(self, slot: Slot) -> None:
        self.numbers += 1
        self.store.spans.append([span_of(slot, self.numbers, attributes={"a": 1, "b": "é"})], FOREVER)

    def outbox(self, _: Slot) -> None:
        self.numbers += 1
        self.store.outbox.append(SHIPPER, [OutboxRow(self.numbers, CLOCK.now_ms(), 30, b'{"text":"x"}')])
        if self.generator.random() < 0.3:
            self.store.outbox.trim(SHIPPER, self.numbers - 2)

    def roll_up(self, slot: Slot) -> None:
        self.store.roll_up(slot.start + self.generator.randint(1, 8) * HOUR)

    def forget(self, slot: Slot) -> None:
        self.store.delete_job(slot.key)
        self.stored[slot.job] = {}


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_an_interrupted_move_beside_writes_copies_each_row_once(server: Node, tmp_path: Path, seed: int):
    generator, to = random.Random(seed), address(server)
    with opened(address(server), tmp_path / secrets.token_hex(4)) as store:
        traffic = Traffic(store, [Slot(), Slot()], generator)
        for _ in range(10):
            traffic.act()
        stops = [generator.randint(1, 12), generator.randint(1, 24)]
        while not (report := stopped_move(traffic, to, stops.pop() if stops else None)):
            with pytest.raises(ConfigurationError, match="not all in"):
                open_store(to, CLOCK)
            traffic.act()
        assert {one.table: one.slices for one in report.tables} == dict.fromkeys(TABLE_NAMES, 0)
        with pytest.raises(UnavailableError, match="were moved"):
            traffic.act()
        before = contents(store, traffic.slots)
        for slot in traffic.slots:
            assert read_all(store, series_of(slot), slot.span) == traffic.stored[slot.job]
    with opened(to) as store:
        assert contents(store, traffic.slots) == before
        traffic.store = store
        traffic.act()


def stopped_move(traffic: Traffic, to: str, steps: int | None) -> MoveReport | None:
    """Run some steps of a move, with writes between them. Return the report if the move is complete."""
    with closing(cast("Generator[MoveLine]", traffic.store.move(MoveOrder(to=to)))) as lines:
        for line in islice(lines, steps):
            if line.report is not None:
                return line.report
            assert line.step is not None
            if traffic.generator.random() < 0.3:
                if line.step.refusing:
                    with pytest.raises(UnavailableError, match="being moved"):
                        traffic.act()
                else:
                    traffic.act()
    return None


def test_a_comparison_counts_differing_rows_and_writes_nothing(source: ClickHouseStore, dsn: str, slot: Slot):
    source.append_all((batch_of({(slot.gauge(), slot.start + at * HOUR): 1.0 for at in range(5)}),), FOREVER)
    tables, again = ({one.table: one for one in moved(source, dsn, compare=True).tables} for _ in range(2))
    assert tables == again
    assert (tables["samples"].rows, tables["samples"].slices, tables["samples"].differing_rows) == (5, 5, 5)
    report = moved(source, dsn)
    assert (report.moved, report.copied >= 5) == (True, True)
    after = {one.table: one for one in moved(source, dsn, compare=True).tables}
    assert {one.slices for one in after.values()} == {0}
    assert {name: one.checksum for name, one in after.items()} == {name: one.checksum for name, one in tables.items()}
    assert moved(source, dsn) == MoveReport(moved=True)


def test_rows_that_have_expired_are_neither_copied_nor_compared(source: ClickHouseStore, dsn: str, slot: Slot):
    now_ms, short = CLOCK.now_ms(), Retention(raw_days=2, minute_days=2, hour_days=2)
    source.append_all(
        (batch_of({(slot.gauge(), now_ms - 2 * DAY): 1.0, (slot.gauge(), now_ms - 4 * DAY): 2.0}),), short
    )
    assert {one.table: one.rows for one in moved(source, dsn).tables}["samples"] == 1


def test_data_of_others_are_not_touched(source: ClickHouseStore, server: Node, dsn: str, slot: Slot):
    source.append_all((batch_of({(slot.gauge(), slot.start): 1.0}),), FOREVER)
    with opened(dsn) as other:
        other.append_all((batch_of({(slot.gauge(), slot.start): 2.0}),), FOREVER)
        with pytest.raises(ConflictError, match="has data already"):
            moved(source, dsn)
    unfinished = address(server)
    next(source.move(MoveOrder(to=unfinished)))
    with opened(address(server)) as other, pytest.raises(ConflictError, match="of another move"):
        moved(other, unfinished)
    with pytest.raises(InvalidRequestError, match="no option"):
        moved(source, f"{dsn}?a=b")
    source.append_all((batch_of({(slot.gauge(), slot.start): 3.0}),), FOREVER)


def test_a_store_that_was_moved_is_not_used_again_unless_the_move_is_cancelled(server: Node, dsn: str, slot: Slot):
    own = address(server)
    with opened(own) as store:
        store.append_all((batch_of({(slot.gauge(), slot.start): 1.0}),), FOREVER)
        moved(store, dsn)
        with pytest.raises(ConflictError, match="were moved to"):
            moved(store, address(server))
    with pytest.raises(ConfigurationError, match="were moved to") as refused:
        open_store(own, CLOCK)
    assert dsn in refused.value.message
    assert cancel_move(own, CLOCK) == dsn
    assert cancel_move(own, CLOCK) == ""
    with opened(own) as store:
        store.append_all((batch_of({(slot.gauge(), slot.start): 2.0}),), FOREVER)
        with pytest.raises(ConflictError, match="of another move"):
            moved(store, dsn)
        moved(store, address(server))


def test_a_move_ends_while_another_server_uses_the_engine(server: Node, dsn: str):
    own = address(server)
    with opened(own) as store:
        with opened(own), pytest.raises(ConflictError, match="other servers use"):
            moved(store, dsn)
        assert moved(store, dsn).moved


def test_one_move_runs_at_a_time(source: ClickHouseStore, dsn: str):
    with closing(cast("Generator[MoveLine]", source.move(MoveOrder(to=dsn)))) as lines:
        next(lines)
        with pytest.raises(ConflictError, match="already"):
            moved(source, dsn)
    assert moved(source, dsn).moved


@pytest.mark.parametrize("method", ["insert", "sum_slices", "erase"])
def test_after_a_failure_of_the_target_the_same_order_goes_on(
    source: ClickHouseStore, dsn: str, slot: Slot, monkeypatch: pytest.MonkeyPatch, method: str
):
    source.append_all((batch_of({(slot.gauge(), slot.start + at * HOUR): 1.0 for at in range(5)}),), FOREVER)
    next(source.move(MoveOrder(to=dsn)))
    work: Callable[..., object] = getattr(moved_tables.EngineTables, method)
    failing = {"on": True}

    def fail(tables: moved_tables.EngineTables, *arguments: object) -> object:
        if failing["on"] and tables.target.name == dsn:
            raise UnavailableError("it cannot be reached")
        return work(tables, *arguments)

    monkeypatch.setattr(moved_tables.EngineTables, method, fail)
    client = connect(parse_dsn(dsn), parse_dsn(dsn).database)
    client.command(
        "INSERT INTO samples (job, series, time, raw_days) SELECT 1, 1, number * 1000, 60000 FROM numbers(9)"
    )
    client.close()
    with pytest.raises(UnavailableError, match="cannot be reached"):
        moved(source, dsn)
    source.append_all((batch_of({(slot.gauge(), slot.start): 2.0}),), FOREVER)
    failing["on"] = False
    assert {one.table: one.rows for one in moved(source, dsn).tables}["samples"] == 5


def test_an_end_between_the_two_last_marks_leaves_no_engine_in_use(
    server: Node, dsn: str, slot: Slot, monkeypatch: pytest.MonkeyPatch
):
    def fail(*arguments: object) -> None:
        if arguments[-1] == move_marks.COMPLETE:
            raise UnavailableError("it cannot be reached")
        move_marks.mark_arrival(*arguments)  # type: ignore[arg-type]

    own = address(server)
    with opened(own) as store:
        store.append_all((batch_of({(slot.gauge(), slot.start): 1.0}),), FOREVER)
        with monkeypatch.context() as patch:
            patch.setattr(move, "mark_arrival", fail)
            with pytest.raises(UnavailableError, match="cannot be reached"):
                moved(store, dsn)
        with pytest.raises(UnavailableError, match="were moved"):
            store.append_all((batch_of({(slot.gauge(), slot.start): 2.0}),), FOREVER)
        for place in (own, dsn):
            with pytest.raises(ConfigurationError):
                open_store(place, CLOCK)
    *_, last = move_store(own, MoveOrder(to=dsn), CLOCK)
    assert last.report is not None
    assert last.report.moved
    with opened(dsn) as store:
        assert read_all(store, [slot.gauge()], slot.span) == {(slot.gauge(), slot.start): 1.0}


def test_a_partition_has_another_state_after_each_write_and_deletion(source: ClickHouseStore, slot: Slot):
    tables = moved_tables.EngineTables(source.maintenance.pool, source.target)
    (samples,) = (table for table in moved_tables.TABLES if table.table == "samples")
    source.append_all((batch_of({(slot.gauge(), slot.start): 1.0}),), FOREVER)
    first = tables.list_partitions(samples)
    assert tables.list_partitions(samples) == first
    source.append_all((batch_of({(slot.gauge(), slot.start): 2.0}),), FOREVER)
    second = tables.list_partitions(samples)
    source.delete_job(slot.key + 1)
    third = tables.list_partitions(samples)
    assert first.keys() == second.keys() == third.keys()
    assert len({*first.values(), *second.values(), *third.values()}) == 3


def test_engines_with_other_columns_are_refused(source: ClickHouseStore, dsn: str):
    next(source.move(MoveOrder(to=dsn)))
    client = connect(parse_dsn(dsn), parse_dsn(dsn).database)
    client.command("ALTER TABLE logs ADD COLUMN later UInt8")
    client.close()
    with pytest.raises(ConfigurationError, match="table logs differs"):
        moved(source, dsn)


def test_a_cluster_is_a_target(tmp_path: Path, slot: Slot):
    with shards(2) as nodes, each_node(nodes):
        to = f"{nodes[0].dsn}/telemetry?cluster={CLUSTER}"
        with opened(f"{nodes[0].dsn}/alone", tmp_path) as store:
            traffic = Traffic(store, [slot, Slot()], random.Random(1))
            for one in traffic.slots:
                for write in (traffic.samples, traffic.lines, traffic.spans, traffic.roll_up):
                    write(one)
            for _ in zip(range(5), store.move(MoveOrder(to=to)), strict=False):
                pass
            traffic.forget(slot)
            assert {one.slices for one in moved(store, to).tables} == {0}
            before = contents(store, traffic.slots)
        with opened(to) as store:
            assert contents(store, traffic.slots) == before
            with pytest.raises(InvalidRequestError, match="out of a cluster with ClickHouse Keeper"):
                moved(store, f"{nodes[0].dsn}/elsewhere")
