"""Tests of the placement of rows on shards, against ClickHouse's own functions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store_contract.slot import Slot
from tests.store_contract.spans import span_of
from tests.unit.store.shards.support import address

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.log import LogLine
from jobmeter.model.series import NO_JOB
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.pool import connect
from jobmeter.store.shards.placement import (
    NUMBERS,
    find_shard,
    find_shards,
    is_on,
    number_keys,
    number_line,
    number_node,
    number_trace,
)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), st.integers(1, 40))
def test_more_shards_move_rows_to_the_new_ones_only(numbers, count):
    before, after = (find_shards(np.array(numbers, np.uint64), some) for some in (count, count + 1))
    assert all(there in (here, count) for here, there in zip(before, after, strict=True))
    assert all(0 <= shard < count for shard in before)
    assert find_shard(numbers[0], count) == before[0]


def test_shards_get_equal_shares():
    numbers = np.random.default_rng(1).integers(0, 2**64, 30_000, np.uint64)
    assert all(9_500 < share < 10_500 for share in np.bincount(find_shards(numbers, 3)))


@pytest.fixture(scope="module")
def client(servers):
    connected = connect(parse_dsn(address(servers[:1], "default", 1)), None)
    yield connected
    connected.close()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), st.integers(1, 16))
def test_clickhouse_finds_the_same_shards(client, numbers, count):
    sql = "SELECT jumpConsistentHash(arrayJoin({numbers:Array(UInt64)}), {count:UInt32})"
    rows = client.query(sql, parameters={"numbers": numbers, "count": count}).result_rows
    assert [row[0] for row in rows] == find_shards(np.array(numbers, np.uint64), count).tolist()


def compute(client, table, **columns):
    given_columns = ", ".join(f"{{{name}:{kind}}} AS {name}" for name, (kind, _) in columns.items())
    values = {name: value for name, (_, value) in columns.items()}
    ((number, shard),) = client.query(
        f"SELECT toUInt64({NUMBERS[table]}), {is_on(table, 2, 5)} FROM (SELECT {given_columns})", parameters=values
    ).result_rows
    return number, shard


@pytest.mark.parametrize("job", [NO_JOB, 5])
def test_rows_have_the_same_number_in_clickhouse(client, job):
    keys = SeriesKeys(np.array([job], np.uint64), np.array([77], np.uint64))
    (number,) = number_keys(keys).tolist()
    for table in ("series", "samples", "minutes", "hours"):
        found = compute(client, table, job=("UInt64", job), series=("UInt64", 77))
        assert found == (number, find_shard(number, 5) == 2)
    line = LogLine(time_ns=1, text="a", node="node-7", facility="" if job else "kernel", job="j" if job else "")
    found = compute(
        client, "logs", job=("UInt64", line.key), facility=("String", line.facility), node=("String", line.node)
    )
    assert found[0] == number_line(line)
    assert (found[0] == number_node("node-7")) is (not job)
    span = span_of(Slot(), 3)
    assert compute(client, "spans", trace=("String", span.trace))[0] == number_trace(span.trace)
