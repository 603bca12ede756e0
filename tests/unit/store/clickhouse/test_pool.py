"""Tests of connections to the engine: broken ones are not reused, and loading the engine disturbs no other thread."""

import subprocess
import sys

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError

from jobmeter.errors import UnavailableError
from jobmeter.store.clickhouse.pool import Pool

LOADING = """
import sys, threading
from jobmeter.store.clickhouse import pool

def load(name):
    assert name == "chdb.state"
    try:
        import pyarrow
    except ImportError as error:
        print("here:", error)
    found = []
    def other():
        import pyarrow
        found.append(pyarrow.__name__)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    print("elsewhere:", found)

pool.import_module = load
pool._load_engine()
assert sys.modules["pyarrow"] is not None
import pyarrow
print("afterwards:", pyarrow.array([1]).to_pylist(), threading.active_count())
"""


@pytest.fixture
def pool(chdb_store):
    opened = Pool(chdb_store.target, 1, wait_seconds=10)
    yield opened
    opened.close()


def use(pool, work):
    with pool.borrow_client() as client:
        return work(client)


def answer(client):
    return client.query("SELECT 1").result_rows


def ended(client):
    """Close the connection while it is in use."""
    client.close()
    return answer(client)


def torn(client):
    raise ConnectionResetError("the connection was reset")


@pytest.mark.parametrize("broken", [ended, torn])
def test_a_connection_that_broke_is_not_used_again(pool, broken):
    before = use(pool, lambda client: client)
    with pytest.raises((ClickHouseError, OSError)):
        use(pool, broken)
    assert use(pool, answer) == [(1,)]
    assert use(pool, lambda client: client) is not before


@pytest.mark.parametrize("sql", ["SELECT nonsense", "SELECT throwIf(1)", "SELECT"])
def test_a_connection_outlives_a_statement_that_failed(pool, sql):
    clients = [use(pool, lambda client: client)]
    with pytest.raises(ClickHouseError):
        use(pool, lambda client: client.query(sql))
    clients.append(use(pool, lambda client: client))
    assert clients[0] is clients[1]
    assert use(pool, answer) == [(1,)]


def test_a_connection_outlives_an_early_end(pool):
    def some():
        with (
            pool.borrow_client() as client,
            client.query_column_block_stream("SELECT number FROM numbers(10000000)") as blocks,
        ):
            yield from blocks

    stream = some()
    next(stream)
    stream.close()

    def refuse(_):
        raise UnavailableError("too much")

    before = use(pool, lambda client: client)
    with pytest.raises(UnavailableError):
        use(pool, refuse)
    assert use(pool, lambda client: client) is before
    assert use(pool, answer) == [(1,)]


def test_other_threads_may_load_arrow_while_the_engine_is_loaded_without_it():
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "here: No module named 'pyarrow'",
        "elsewhere: ['pyarrow']",
        "afterwards: [1] 1",
    ]
