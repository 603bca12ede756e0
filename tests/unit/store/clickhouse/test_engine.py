"""Tests of the specifics of ClickHouse: parts and merges, expiry, connections, the cluster's schema."""

import threading
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store_contract.samples import FOREVER, batch_of, brute_buckets, read_all, stored_buckets
from tests.store_contract.slot import Slot

from jobmeter.errors import ConfigurationError, QueryTimeoutError, UnavailableError
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.log import LogLine
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY, HOUR, MINUTE, SystemClock, TimeRange, floor_to
from jobmeter.store.base import LogSelector, ReadBudget, SeriesSelector, Tier
from jobmeter.store.clickhouse import parse_dsn, rollup_sql
from jobmeter.store.clickhouse import pool as pools
from jobmeter.store.clickhouse import reader as readers
from jobmeter.store.clickhouse import rollup as rollups
from jobmeter.store.clickhouse.journal import JournalLimits
from jobmeter.store.clickhouse.logs import _order
from jobmeter.store.clickhouse.migrations import MIGRATIONS, OLDEST
from jobmeter.store.clickhouse.native import encode


def ask(store, sql):
    with store.maintenance.pool.borrow_client() as client:
        return client.query(sql).result_rows


def do(store, sql):
    with store.maintenance.pool.borrow_client() as client:
        client.command(sql)


def test_the_last_write_wins_before_and_after_merges(empty_store):
    slot = Slot()
    one, two = slot.gauge("worker-0"), slot.gauge("worker-1")
    written = {}
    generator = np.random.default_rng(1)
    do(empty_store, "SYSTEM STOP MERGES samples")
    try:
        for round_ in range(12):
            at = generator.choice(200, int(generator.integers(1, 150)), replace=False)
            part = {((one, two)[x % 2], slot.start + int(x) * 1000): float(round_) for x in at}
            empty_store.append_all((batch_of(part),), FOREVER)
            empty_store.commit_log.flush()
            written.update(part)
        assert ask(empty_store, "SELECT count() FROM system.parts WHERE active AND rows > 0 AND table = 'samples'") == [
            (12,)
        ]
        assert read_all(empty_store, [one, two], slot.span) == written
    finally:
        do(empty_store, "SYSTEM START MERGES samples")
    newer = dict.fromkeys(list(written)[::3], 99.0)
    do(empty_store, "OPTIMIZE TABLE samples FINAL")
    empty_store.append_all((batch_of(newer),), FOREVER)
    written.update(newer)
    assert read_all(empty_store, [one, two], slot.span) == written
    empty_store.commit_log.flush()
    do(empty_store, "OPTIMIZE TABLE samples FINAL")
    assert read_all(empty_store, [one, two], slot.span) == written
    assert ask(empty_store, "SELECT count() FROM samples") == [(len(written),)]


def test_a_large_batch_keeps_its_order_across_blocks(chdb_store):
    slot = Slot()
    one = slot.gauge()
    rows = 2_300_000
    times = slot.start + (np.arange(rows, dtype=np.int64) % 1000) * 1000
    chdb_store.append_all(
        (SampleBatch([one], np.zeros(rows, np.uint32), times, np.arange(rows, dtype=np.float64)),), FOREVER
    )
    chdb_store.commit_log.flush()
    read = read_all(chdb_store, [one], slot.span)
    assert list(read.values()) == [float(rows - 1000 + at) for at in range(1000)]


def test_a_read_in_another_order_than_the_engine_s_stays_bounded(chdb_store, monkeypatch):
    slot = Slot()
    series = [slot.gauge(f"worker-{number}") for number in range(30)]
    rows = {(one, slot.start + at * 1000): float(at) for one in series for at in range(100)}
    chdb_store.append_all((batch_of(rows),), FOREVER)
    monkeypatch.setattr(readers, "_BUFFER", 450)
    blocks = list(chdb_store.read(SeriesKeys.from_series(series), slot.span, ReadBudget()))
    assert max(map(len, blocks)) <= 450
    assert read_all(chdb_store, series, slot.span) == rows


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_samples_are_the_same_wherever_they_lie(chdb_store, data):
    """Every reader finds the last write in the journal, in the engine, or in both."""
    slot = Slot()
    series = [slot.counter(), slot.gauge(), slot.counter("worker-1")]
    written = {}
    samples = st.dictionaries(
        st.tuples(st.sampled_from(series), st.integers(0, 40).map(lambda at: slot.start + at * HOUR // 8)),
        st.integers(0, 40).map(float),
        min_size=1,
    )
    for _ in range(data.draw(st.integers(1, 6))):
        part = data.draw(samples)
        chdb_store.append_all((batch_of(part),), FOREVER)
        written.update(part)
        for step in data.draw(st.lists(st.sampled_from(["flush", "roll up"]), max_size=2)):
            if step == "flush":
                chdb_store.commit_log.flush()
            else:
                chdb_store.roll_up(slot.start + data.draw(st.integers(0, 6)) * HOUR)
        low, high = sorted(slot.start + data.draw(st.integers(0, 41)) * HOUR // 8 for _ in range(2))
        order = data.draw(st.permutations(series))
        span = TimeRange(low, high)
        assert read_all(chdb_store, order, span) == {key: written[key] for key in written if low <= key[1] < high}
        before = {
            index: max((t for one, t in written if one == who and t < high), default=-1)
            for index, who in enumerate(order)
        }
        found = chdb_store.read_previous(SeriesKeys.from_series(order), high, ReadBudget())
        expected = [(index, at, written[order[index], at]) for index, at in before.items() if at >= 0]
        assert list(zip(found.index.tolist(), found.time.tolist(), found.value.tolist(), strict=True)) == expected
        times = [time for _, time in written]
        assert chdb_store.read_last_times([slot.key]) == {slot.key: (min(times), max(times))}
        for trusted in chdb_store.find_rolled_up_ranges([slot.key], slot.span):
            for tier in Tier:
                assert stored_buckets(chdb_store, series, trusted, tier) == brute_buckets(
                    written, series, trusted, tier
                )


def test_hours_that_are_marked_themselves_are_refused_without_a_search_for_those_that_follow(chdb_store, monkeypatch):
    slot = Slot()
    one = slot.gauge("worker-0")
    hours = range(6)
    chdb_store.roll_up(slot.start + 6 * HOUR)
    chdb_store.append_all((batch_of({(one, slot.start + hour * HOUR): 1.0 for hour in hours}),), FOREVER)
    monkeypatch.setattr(rollup_sql, "FOLLOWING", "a search would fail")
    assert chdb_store.find_rolled_up_ranges([slot.key], TimeRange(slot.start + 4 * HOUR, slot.start + 6 * HOUR)) == []
    # Later marks do not affect earlier times.
    before = TimeRange(slot.start - 2 * HOUR, slot.start)
    assert chdb_store.find_rolled_up_ranges([slot.key], before) == [before]


def test_while_the_engine_fails_no_hour_is_trusted_that_may_follow_a_late_one(chdb_store, monkeypatch):
    slot = Slot()
    one = slot.counter()
    chdb_store.append_all((batch_of({(one, slot.start + hour * HOUR): 1.0 for hour in (0, 1, 5)}),), FOREVER)
    chdb_store.roll_up(slot.start + 6 * HOUR)
    chdb_store.append_all((batch_of({(one, slot.start + HOUR + 1): 2.0}),), FOREVER)

    def refuse(group):
        raise UnavailableError("the disk is full")

    monkeypatch.setattr(chdb_store.commit_log, "_insert", refuse)
    assert chdb_store.find_rolled_up_ranges([slot.key], slot.span) == [TimeRange(slot.start, slot.start + HOUR)]
    assert read_all(chdb_store, [one], slot.span)[one, slot.start + HOUR + 1] == 2.0
    assert chdb_store.read_statistics().journal["rows"] == 1
    with pytest.raises(UnavailableError):
        chdb_store.roll_up(slot.start + 6 * HOUR)
    monkeypatch.undo()
    chdb_store.roll_up(slot.start + 6 * HOUR)
    assert chdb_store.find_rolled_up_ranges([slot.key], slot.span) == [TimeRange(slot.start, slot.start + 6 * HOUR)]
    assert chdb_store.read_statistics().journal["failures"] >= 1


def test_sizes_are_counted_without_a_flush(chdb_store, monkeypatch):
    monkeypatch.setattr(chdb_store.commit_log, "_limits", JournalLimits(flush_seconds=10**6))
    chdb_store.commit_log.flush()
    before, slot = chdb_store.read_statistics(), Slot()
    rows = {(slot.gauge(f"worker-{number}"), slot.start + at): 1.0 for number in range(3) for at in range(10)}
    chdb_store.append_all((batch_of(rows),), FOREVER)
    for journal in (30, 0):
        found = chdb_store.read_statistics()
        assert found.journal["rows"] == journal
        assert found.journal["flushes"] - before.journal["flushes"] == (0 if journal else 1)
        assert (found.journal["disk"] > 0) == (journal > 0)
        assert found.rows["samples"] - before.rows["samples"] == 30
        assert found.rows["series"] - before.rows["series"] == 3
        assert found.bytes["samples"] > before.bytes["samples"]
        chdb_store.commit_log.flush()


def test_parts_are_counted_by_table(chdb_store):
    slot = Slot()
    chdb_store.append_all((batch_of({(slot.counter(), slot.start): 1.0}),), FOREVER)
    chdb_store.commit_log.flush()
    found = chdb_store.read_statistics()
    assert found.parts["samples"] > 0
    # A part whose rows were all deleted still counts as a part.
    assert {table for table, count in found.parts.items() if count} >= {table for table, n in found.rows.items() if n}
    assert found.merges.keys() == found.parts.keys()


def test_roll_ups_made_in_shares_are_the_same(chdb_store, monkeypatch):
    monkeypatch.setattr(rollups, "_ROWS", 700)
    slot = Slot()
    series = [slot.counter(f"worker-{number}") for number in range(20)]
    generator = np.random.default_rng(3)
    rows = {
        (one, slot.start + at * 60_000 + 7): int(generator.integers(0, 400)) / 4 for one in series for at in range(100)
    }
    chdb_store.append_all((batch_of(rows),), FOREVER)
    chdb_store.roll_up(slot.start + 2 * HOUR)
    late = {(one, slot.start + 8): 1.0 for one in series[::2]}
    chdb_store.append_all((batch_of(late),), FOREVER)
    chdb_store.roll_up(slot.start + 2 * HOUR)
    for tier in Tier:
        expected = brute_buckets({**rows, **late}, series, slot.span, tier)
        assert stored_buckets(chdb_store, series, slot.span, tier) == expected


def test_raw_samples_expire_and_their_roll_ups_stay(empty_store):
    slot = Slot()
    one = slot.counter()
    start = floor_to(SystemClock().now_ms(), HOUR) - 30 * DAY
    span = TimeRange(start, start + 2 * HOUR)
    short = Retention(raw_days=1, minute_days=400, hour_days=800)
    do(empty_store, "SYSTEM STOP TTL MERGES samples")
    rows = {(one, start + minute * MINUTE): minute * 1.0 for minute in range(120)}
    empty_store.append_all((batch_of(rows),), short)
    empty_store.roll_up(start + 2 * HOUR)
    before = {tier: stored_buckets(empty_store, [one], span, tier) for tier in Tier}
    assert before == {tier: brute_buckets(rows, [one], span, tier) for tier in Tier}
    do(empty_store, "SYSTEM START TTL MERGES samples")
    do(empty_store, "ALTER TABLE samples MATERIALIZE TTL SETTINGS mutations_sync = 2")
    assert read_all(empty_store, [one], span) == {}
    # A sample that arrives after its neighbours have expired does not change the roll-ups.
    do(empty_store, "SYSTEM STOP TTL MERGES samples")
    empty_store.append_all((batch_of({(one, start + 5): 7.0}),), short)
    assert empty_store.roll_up(start + 2 * HOUR) == 1
    do(empty_store, "SYSTEM START TTL MERGES samples")
    assert {tier: stored_buckets(empty_store, [one], span, tier) for tier in Tier} == before
    found = empty_store.read_previous(SeriesKeys.from_series([one]), start + 3 * HOUR, ReadBudget())
    assert (found.time.tolist(), found.value.tolist()) == ([start + 119 * MINUTE], [119.0])
    assert empty_store.read_last_times([slot.key]) == {slot.key: (start, start + 119 * MINUTE)}


def test_log_lines_expire_by_the_retention_they_came_with(empty_store):
    slot = Slot()
    start_ns = (floor_to(SystemClock().now_ms(), HOUR) - 30 * DAY) * 1_000_000
    do(empty_store, "SYSTEM STOP TTL MERGES logs")
    for days in (1, 29, 40):
        line = LogLine(time_ns=start_ns + days, text=f"{days} days", job=slot.job)
        empty_store.logs.append([line], Retention(raw_days=days))
    do(empty_store, "SYSTEM START TTL MERGES logs")
    do(empty_store, "ALTER TABLE logs MATERIALIZE TTL SETTINGS mutations_sync = 2")
    page = empty_store.logs.read(LogSelector(project="default", job=slot.job), ReadBudget())
    assert [line.text for line in page.lines] == ["29 days", "40 days"][-len(page.lines) :]
    assert "1 days" not in [line.text for line in page.lines]


def test_a_page_of_lines_is_read_from_few_of_them(empty_store):
    """The page reads few lines in either direction, whatever else is stored."""
    slot, others = Slot(), [Slot() for _ in range(4)]
    for part in range(5):  # parts that overlap in time
        lines = [
            LogLine(time_ns=one.start * 1_000_000 + 5 * at + part, text=f"step {at} of many", job=one.job)
            for one in (slot, *others)
            for at in range(12_000)
        ]
        empty_store.logs.append(lines, FOREVER)
    for descending in (False, True):
        question = LogSelector(project="default", job=slot.job, limit=100, descending=descending)
        assert len(empty_store.logs.read(question, ReadBudget()).lines) == 100
        where = f"job = {slot.key} ORDER BY {_order(descending=descending)} LIMIT 116"
        plan = ask(empty_store, f"EXPLAIN actions = 1 SELECT time_ns, text FROM logs WHERE {where}")
        assert any("InReverseOrder" in row[0] if descending else "InOrder" in row[0] for row in plan)


def test_a_question_past_its_time_is_stopped(chdb_store):
    slot = Slot()
    one = slot.gauge()
    chdb_store.append_all((batch_of({(one, slot.start): 1.0}),), FOREVER)
    with pytest.raises(QueryTimeoutError):
        list(chdb_store.read(SeriesKeys.from_series([one]), slot.span, ReadBudget(seconds=0)))
    sql = "SELECT sleepEachRow(0.05) FROM numbers(1000) SETTINGS max_block_size = 1"
    with pytest.raises(QueryTimeoutError):
        list(chdb_store.reader.read_blocks(sql, {}, readers.ReadMeter.start(ReadBudget(seconds=0.3))))


def test_a_slow_question_does_not_hold_up_the_others(chdb_store):
    slot = Slot()
    one = slot.gauge()
    sql = "SELECT sleepEachRow(0.1) FROM numbers(100) SETTINGS max_block_size = 1"
    stream = chdb_store.reader.read_blocks(sql, {}, readers.ReadMeter.start(ReadBudget(seconds=60)))
    began = threading.Event()

    def read_slowly():
        for _ in stream:
            began.set()

    slow = threading.Thread(target=read_slowly)
    slow.start()
    assert began.wait(60)
    chdb_store.append_all((batch_of({(one, slot.start): 1.0}),), FOREVER)
    assert len(read_all(chdb_store, [one], slot.span)) == 1
    assert chdb_store.find(SeriesSelector(jobs=(slot.key,))) == [one]
    assert slow.is_alive()
    slow.join()


def test_more_questions_than_connections_wait_and_then_are_reported(chdb_store):
    pool = pools.Pool(chdb_store.target, 1, wait_seconds=0.05)
    with pool.borrow_client(), pytest.raises(UnavailableError, match="busy"), pool.borrow_client():
        pass
    with pool.borrow_client() as client:
        assert client.command("SELECT 1") == 1
    pool.close()
    with pytest.raises(UnavailableError, match="closed"), pool.borrow_client():
        pass


def test_migrating_again_changes_nothing(chdb_store):
    from jobmeter.store.clickhouse.migrate import migrate

    with chdb_store.maintenance.pool.borrow_client() as client:
        assert migrate(client, chdb_store.target, SystemClock()) == 0
    assert ask(chdb_store, "SELECT number, name FROM migrations ORDER BY number") == [
        (number, name) for number, name, _ in MIGRATIONS
    ]


@pytest.mark.parametrize(("number", "message"), [(1, "no release"), (OLDEST - 1, "no release"), (999, "upgrade")])
def test_a_schema_that_cannot_be_upgraded_is_left_alone(number, message):
    from jobmeter.store.clickhouse.migrate import migrate

    client = Mock()
    client.query.return_value.result_rows = [(number,)]
    with pytest.raises(ConfigurationError, match=message):
        migrate(client, parse_dsn("chdb:///nowhere"), SystemClock())
    [journal] = client.command.call_args_list
    assert "CREATE TABLE IF NOT EXISTS migrations" in journal.args[0]


def test_migrations_are_numbered_without_a_gap():
    assert [number for number, _, _ in MIGRATIONS] == list(range(2, len(MIGRATIONS) + 2))


@pytest.mark.parametrize("dsn", ["clickhousedb://host/telemetry", "clickhousedb://host/telemetry?cluster=main"])
def test_every_statement_of_the_schema_is_understood_by_the_engine(chdb_store, dsn):
    target = parse_dsn(dsn)
    statements = [statement for _, _, make in MIGRATIONS for statement in make(target)]
    for statement in statements:
        assert ask(chdb_store, f"EXPLAIN AST {statement}")
    if target.cluster:
        text = "\n".join(statements)
        assert text.count("ON CLUSTER 'main'") == len(statements)
        assert "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/telemetry/samples', '{replica}')" in text
        assert "Distributed('main', 'telemetry', 'samples_local', job)" in text
        # The local table names the codec; the distributed table has only the column.
        assert (
            "ALTER TABLE logs_local ON CLUSTER 'main' ADD COLUMN IF NOT EXISTS severity UInt8 DEFAULT 255 CODEC" in text
        )
        assert "ALTER TABLE logs ON CLUSTER 'main' ADD COLUMN IF NOT EXISTS severity UInt8 DEFAULT 255\n" in text


def test_a_block_is_laid_out_as_documented():
    block = encode([("a", np.array([1, 2], np.uint16)), ("time", np.array([-1, 5], np.int64))])
    assert block == (b"\x02\x02\x01a\x06UInt16\x01\x00\x02\x00\x04time\x05Int64" + b"\xff" * 8 + b"\x05" + b"\x00" * 7)
