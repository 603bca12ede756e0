"""Databases of registry tests: SQLite in a new folder, and PostgreSQL if it is installed or named."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgresql import fresh_database, own_server

from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Yield the URL of a PostgreSQL server without a database, one server for each worker of a test run."""
    named = os.environ.get("JOBMETER_TEST_POSTGRESQL")
    if named:
        yield named.rstrip("/")
        return
    with own_server() as server:
        yield server.url


@pytest.fixture
def postgresql_url(postgresql: str) -> Iterator[str]:
    """Yield the URL of a new database, and drop it afterwards."""
    with fresh_database(postgresql) as url:
        yield url


@pytest.fixture
def other_postgresql_url(postgresql: str) -> Iterator[str]:
    """Yield the URL of a second new database."""
    with fresh_database(postgresql) as url:
        yield url


@pytest.fixture(scope="module")
def other_module_postgresql_url(postgresql: str) -> Iterator[str]:
    """Yield the URL of a second database for all tests of a module."""
    with fresh_database(postgresql) as url:
        yield url


@pytest.fixture(scope="module")
def module_postgresql_url(postgresql: str) -> Iterator[str]:
    """Yield the URL of a database for all tests of a module."""
    with fresh_database(postgresql) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    found: str = request.getfixturevalue("postgresql_url")
    return found


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    """Yield an empty registry."""
    opened = open_registry(url, Retention())
    yield opened
    opened.close()
