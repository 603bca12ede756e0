"""Tests of fences: the statements that they restrict, and the statements that they leave alone."""

import pytest

from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.migrations import MIGRATIONS
from jobmeter.store.clickhouse.write_fence import fence_writer

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
