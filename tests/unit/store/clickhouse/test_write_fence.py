"""Tests of fences: the statements that they restrict, and the statements that they leave alone."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from tests.support.clickhouse import NodeProcess
from tests.support.waiting import wait_until

from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.migrations import MIGRATIONS
from jobmeter.store.clickhouse.pool import connect
from jobmeter.store.clickhouse.write_fence import fence_roll_up, fence_writer

FENCE = fence_writer("store", 3)


def test_no_statement_that_makes_the_tables_is_restricted() -> None:
    target = parse_dsn("clickhousedb://one:8123,two:8123/jobmeter")
    statements = [statement for _, _, make in MIGRATIONS for statement in make(target)]
    assert any(" DELETE WHERE " in statement for statement in statements)
    assert [FENCE.restrict(statement) for statement in statements] == statements


@pytest.mark.parametrize("table", ["samples", "outbox_local", "`samples`"])
def test_a_deletion_is_restricted_once(table: str) -> None:
    restricted = FENCE.restrict(f"ALTER TABLE {table} DELETE WHERE job = 1 AND id IN (2) SETTINGS a = 0")
    assert restricted.startswith(f"ALTER TABLE {table} DELETE WHERE (SELECT throwIf(")
    assert restricted.count("throwIf") == 1
    assert restricted.endswith(") = 0 AND job = 1 AND id IN (2) SETTINGS a = 0")


def test_a_roll_up_is_refused_beside_one_of_another_series_alone(servers: Sequence[NodeProcess]) -> None:
    target = parse_dsn(f"{servers[0].own.dsn}/default")
    own, other = fence_roll_up("own"), fence_roll_up("other")
    sql = "INSERT INTO fenced SELECT 1"
    slow = "SELECT sleepEachRow(1) FROM numbers(60) SETTINGS max_block_size = 1"
    with (
        closing(connect(target, None)) as client,
        closing(connect(target, None)) as busy,
        ThreadPoolExecutor(1) as pool,
    ):
        client.command("CREATE TABLE fenced (value UInt8) ENGINE = MergeTree ORDER BY value")
        earlier = pool.submit(busy.command, slow, settings=own.settings)
        listed = "SELECT count() FROM system.processes WHERE query LIKE 'SELECT sleepEachRow(1)%'"
        wait_until(lambda: client.query(listed).result_rows[0][0])
        with pytest.raises(DatabaseError, match="an earlier roll-up still runs"):
            client.command(other.restrict(sql), settings=other.settings)
        client.command(own.restrict(sql), settings=own.settings)
        assert not earlier.done()
        client.command("KILL QUERY WHERE query LIKE 'SELECT sleepEachRow(1)%' SYNC")
        assert earlier.exception()
        client.command(other.restrict(sql), settings=other.settings)
        assert client.query("SELECT count() FROM fenced").result_rows == [(2,)]
        client.command("DROP TABLE fenced")
