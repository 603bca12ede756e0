"""Starts, freezes and kills PostgreSQL servers for tests."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests import programs
from tests.support.clusters import free_port
from tests.support.waiting import wait_until

NEEDED = f"{programs.PROGRAMS['pg_ctl'].reason} (or set JOBMETER_TEST_POSTGRESQL to a server's URL)"
_OPTIONS = "-c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"


class PostgreSQL:
    """Server in a folder. Its data survives ``kill`` and returns with ``start``."""

    def __init__(self, binaries: Path, home: Path) -> None:
        self._binaries = binaries
        self._home = home
        self._port = free_port()
        self._call("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        self.start()

    @property
    def url(self) -> str:
        """Connection URL without a database."""
        return f"postgresql://postgres@127.0.0.1:{self._port}"

    def start(self) -> None:
        options = f"-p {self._port} -c unix_socket_directories={self._home} {_OPTIONS}"
        self._call("pg_ctl", "-w", "-t", "60", "-l", str(self._home / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-m", "immediate", "stop")

    def kill(self) -> None:
        """Send SIGKILL to all processes of the server. Return when they have ended, so that the server can restart."""
        for pid in self._signal(signal.SIGKILL):
            wait_until(partial(_ended, pid), f"the end of process {pid}")
        # A zombie keeps its process id, and would pass for a running server.
        for lock in ((self._home / "data" / "postmaster.pid"), *self._home.glob(".s.PGSQL.*")):
            lock.unlink(missing_ok=True)

    def freeze(self) -> None:
        """Freeze the server: it accepts connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> list[int]:
        postmaster = int((self._home / "data" / "postmaster.pid").read_text().split("\n")[0])
        processes = [postmaster, *_children(postmaster)]
        for pid in processes:
            with suppress(ProcessLookupError):  # ended meanwhile
                os.kill(pid, number)
        return processes

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*_as_postgres(self._home), str(self._binaries / program), "-D", str(self._home / "data"), *arguments],
            check=True,
            env={**os.environ, "HOME": str(self._home), "LC_ALL": "C.UTF-8"},
            cwd=self._home,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )


@contextmanager
def own_server() -> Iterator[PostgreSQL]:
    """Run a server for the block. Skip the test if PostgreSQL is not installed."""
    binaries = programs.postgresql()
    if binaries is None or (os.geteuid() == 0 and not _has_user("postgres")):
        pytest.skip(NEEDED)
    # Use a short path outside the run's own folder: socket paths are limited, and the user postgres must enter it.
    home = Path(tempfile.mkdtemp(prefix="jobmeter-pg-"))
    try:
        server = PostgreSQL(binaries, home)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Yield the URL of a new database, and drop the database afterwards."""
    name = f"jobmeter_{uuid.uuid4().hex}"
    admin = sa.create_engine(
        f"{server}/postgres".replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield f"{server}/{name}"
    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    admin.dispose()


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def _ended(pid: int) -> bool:
    """Return True for a process that has ended, including a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _as_postgres(home: Path) -> list[str]:
    # PostgreSQL refuses to run as root.
    if os.geteuid() != 0:
        return []
    shutil.chown(home, "postgres", "postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
