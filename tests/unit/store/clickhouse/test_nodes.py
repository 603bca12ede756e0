"""Tests of a connection to two real ClickHouse servers while one of them is killed or frozen."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError
from tests.support.clickhouse import NodeProcess
from tests.support.waiting import wait_until

from jobmeter.errors import UnavailableError
from jobmeter.store.clickhouse import nodes as nodes_module
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.nodes import Nodes
from jobmeter.store.clickhouse.pool import Pool

NUMBER = "SELECT getMacro('shard')"


@pytest.fixture
def pool(servers: Sequence[NodeProcess], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(nodes_module, "SILENCE_SECONDS", 2)
    monkeypatch.setattr(nodes_module, "_PING_SILENCE_SECONDS", 1)
    monkeypatch.setattr(nodes_module, "PING_SECONDS", 0.1)
    hosts = ",".join(f"127.0.0.1:{one.own.http}" for one in servers)
    target = parse_dsn(f"clickhousedb://{hosts}/default?cluster=main")
    nodes = Nodes(target)
    nodes.start()
    with closing(Pool(target, 4, opening=nodes.open)) as opened:
        yield opened
    nodes.stop()


def answered(pool: Pool, sql: str = NUMBER) -> str:
    with pool.borrow_client() as client:
        return str(client.query(sql).result_rows[0][0])


@pytest.mark.parametrize("fault", [NodeProcess.killed, NodeProcess.frozen])
def test_another_server_answers_until_the_first_is_back(servers, pool, fault):
    with pool.borrow_client() as client, pool.borrow_client() as second:
        assert {one.query(NUMBER).result_rows[0][0] for one in (client, second)} == {"01"}
        with fault(servers[0]):
            for one in (client, second):
                assert one.query(NUMBER).result_rows == [("02",)]
                assert str(one.command(NUMBER)) in {"2", "02"}
                with one.query_column_block_stream(NUMBER) as blocks:
                    assert [list(block[0]) for block in blocks] == [["02"]]
            assert answered(pool) == "02"
    wait_until(lambda: answered(pool) == "01")


def test_without_any_server_requests_are_refused_until_one_is_back(servers, pool):
    with servers[1].killed():
        with servers[0].killed(), pytest.raises((UnavailableError, ClickHouseError)):
            answered(pool)
        wait_until(lambda: answered(pool) == "01")


def test_a_server_that_refuses_a_statement_is_not_replaced(pool):
    with pytest.raises(ClickHouseError, match="nonsense"):
        answered(pool, "SELECT nonsense")
    assert answered(pool) == "01"
