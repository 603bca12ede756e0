"""Tests of a real ClickHouse server: it refuses inserts of an expelled server, and lists the running ones."""

import socket
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from tests.support.clickhouse import Node, node
from tests.support.fakes import SetClock
from tests.support.waiting import wait_until
from tests.unit.store.rows import rows_of

from jobmeter.errors import UnavailableError
from jobmeter.model.time import SystemClock
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.commit import Flusher
from jobmeter.store.clickhouse.migrations.m0003_samples import SAMPLES, SERIES
from jobmeter.store.clickhouse.migrations.m0007_servers import SERVERS
from jobmeter.store.clickhouse.migrations.m0008_peers import list_statements as add_peers
from jobmeter.store.clickhouse.native import encode
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.schema import create
from jobmeter.store.clickhouse.servers import EXPELLED, ServerRow, ServerTable
from jobmeter.store.clickhouse.write_fence import fence_server

pytestmark = pytest.mark.slow
FIRST, SECOND = 5, 6
NOW = SystemClock().now_ms()


@pytest.fixture(scope="module")
def own() -> Iterator[Node]:
    with node() as made:
        yield made


@pytest.fixture(scope="module")
def pool(own: Node) -> Iterator[Pool]:
    target = parse_dsn(f"{own.dsn}/jobmeter")
    pool = Pool(target, 2)
    client = pool.connect()
    client.command("CREATE DATABASE jobmeter")
    client.close()
    with pool.borrow_client() as client:
        for statement in [*(one for table in (SAMPLES, SERIES, SERVERS) for one in create(table, target))]:
            client.command(statement)
        for statement in add_peers(target):
            client.command(statement)
    yield pool
    pool.close()


def count(pool: Pool) -> int:
    with pool.borrow_client() as client:
        return int(client.query("SELECT count() FROM samples").result_rows[0][0])


def test_an_expelled_server_inserts_nothing(pool):
    table, insert = ServerTable(pool, SetClock()), Flusher(pool, encode)
    table.write(ServerRow(FIRST))
    insert([rows_of([(1, NOW, 1.0)])], fence_server(FIRST))
    assert count(pool) == 1
    table.write(ServerRow(FIRST, beat=1, state=EXPELLED))
    with pytest.raises(UnavailableError):
        insert([rows_of([(1, NOW, 2.0)])], fence_server(FIRST))
    assert count(pool) == 1
    insert([rows_of([(1, NOW + 1, 3.0)])], fence_server(SECOND))
    assert count(pool) == 2


def test_an_insert_whose_server_froze_in_the_middle_is_running(own, pool):
    table = ServerTable(pool, SetClock())
    assert not table.is_inserting(SECOND)
    fence = fence_server(SECOND)
    statement = f"INSERT INTO {fence.find_target('series', {'job': 'UInt64'})} FORMAT TSV"
    query = urlencode({"query": statement, "database": "jobmeter", **fence.settings})
    with socket.create_connection(("127.0.0.1", own.http)) as connection:
        connection.sendall(f"POST /?{query} HTTP/1.1\r\nHost: here\r\nContent-Length: {2**21}\r\n\r\n".encode())
        connection.sendall(b"12\n" * 2**18)  # a statement starts once the engine has the start of its body
        wait_until(lambda: table.is_inserting(SECOND))
        assert not table.is_inserting(FIRST)
    wait_until(lambda: not table.is_inserting(SECOND))
