"""Both databases: SQLite in a fresh folder, and PostgreSQL where its server is installed (or one is named)."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests import programs
from tests.programs import PROGRAMS

from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry

NEEDED = f"{PROGRAMS['pg_ctl'].reason} (or set JOBMETER_TEST_POSTGRESQL to a server's URL)"


def _as_postgres(home: Path) -> list[str]:
    # PostgreSQL refuses to run as root.
    if os.geteuid() != 0:
        return []
    shutil.chown(home, "postgres", "postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(binaries: Path, home: Path) -> int:
    run = _as_postgres(home)
    environment = {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"}
    data = home / "data"

    def call(*arguments: str) -> None:
        subprocess.run(
            [*run, *arguments], check=True, env=environment, cwd=home, stdout=subprocess.DEVNULL, timeout=120
        )

    call(
        str(binaries / "initdb"),
        "-D",
        str(data),
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "-N",
    )
    port = _free_port()
    options = (
        f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={home} -c fsync=off -c max_connections=200"
    )
    call(str(binaries / "pg_ctl"), "-D", str(data), "-w", "-t", "60", "-l", str(home / "log"), "-o", options, "start")
    return port


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server, without a database's name; one server for all workers of a test run."""
    named = os.environ.get("JOBMETER_TEST_POSTGRESQL")
    if named:
        yield named.rstrip("/")
        return
    binaries = programs.postgresql()
    if binaries is None:
        pytest.skip(NEEDED)
    if os.geteuid() == 0 and not _has_user("postgres"):
        pytest.skip(NEEDED)
    # A short path outside of the run's own folder: the socket's path is limited, and user postgres must reach it.
    home = Path(tempfile.mkdtemp(prefix="jobmeter-pg-"))
    try:
        port = _start(binaries, home)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}"
        finally:
            stop = [*_as_postgres(home), str(binaries / "pg_ctl"), "-D", str(home / "data"), "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, cwd=home, stdout=subprocess.DEVNULL, timeout=60)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@contextmanager
def _fresh(postgresql: str) -> Iterator[str]:
    name = f"jobmeter_{uuid.uuid4().hex}"
    admin = sa.create_engine(
        f"{postgresql}/postgres".replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield f"{postgresql}/{name}"
    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    admin.dispose()


@pytest.fixture
def postgresql_url(postgresql: str) -> Iterator[str]:
    """The URL of a fresh database, dropped afterwards."""
    with _fresh(postgresql) as url:
        yield url


@pytest.fixture
def other_postgresql_url(postgresql: str) -> Iterator[str]:
    """As ``postgresql_url``, a second one."""
    with _fresh(postgresql) as url:
        yield url


@pytest.fixture(scope="module")
def other_module_postgresql_url(postgresql: str) -> Iterator[str]:
    """As ``module_postgresql_url``, a second one."""
    with _fresh(postgresql) as url:
        yield url


@pytest.fixture(scope="module")
def module_postgresql_url(postgresql: str) -> Iterator[str]:
    """As ``postgresql_url``, one for all tests of a module."""
    with _fresh(postgresql) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    found: str = request.getfixturevalue("postgresql_url")
    return found


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    """An empty registry."""
    opened = open_registry(url, Retention())
    yield opened
    opened.close()
