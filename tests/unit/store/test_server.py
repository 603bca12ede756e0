"""The store contract through ClickHouse's HTTP interface: a server for tests, or the one that a variable names."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from jobmeter.errors import UnavailableError
from jobmeter.model.time import SystemClock
from jobmeter.store.base import Store
from jobmeter.store.registry import open_store
from jobmeter.testing.store import StoreTests

REAL = os.environ.get("JOBMETER_TEST_CLICKHOUSE", "")
"""``clickhousedb://user:password@host:port`` of a ClickHouse that tests may make a database on."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The base of a DSN."""
    if REAL:
        yield REAL
        return
    folder = tmp_path_factory.mktemp("server") / "data"
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("http_engine.py")), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"clickhousedb://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


@pytest.fixture(scope="module")
def server_store(engine):
    store = open_store(f"{engine}/jobmeter_{secrets.token_hex(4)}", SystemClock())
    yield store
    store.close()


class TestServer(StoreTests):
    @pytest.fixture
    def store(self, server_store: Store) -> Store:
        return server_store


def test_a_server_that_cannot_be_reached_is_unavailable():
    with pytest.raises(UnavailableError, match="cannot be reached"):
        open_store("clickhousedb://127.0.0.1:1/jobmeter", SystemClock())
