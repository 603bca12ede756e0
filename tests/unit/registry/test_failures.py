"""Tests of an unusable database: a clear error, no partial write, and later recovery."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from jobmeter.errors import UnavailableError
from jobmeter.model.job import JobFilter
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry import database
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry

NOW = 1_790_000_000_000


def records(count: int) -> Records:
    return Records(jobs=[JobRecord(job_id=f"j{number}", command="x" * 5000) for number in range(count)])


def test_a_full_disk(tmp_path: Path) -> None:
    opened = database.Database(f"sqlite:///{tmp_path / 'registry.db'}")
    registry = Registry(opened, Retention())
    pages = 0

    def limit(connection: sqlite3.Connection, *_: object) -> None:
        # The page limit fails like a full disk: SQLITE_FULL.
        connection.execute(f"PRAGMA max_page_count = {pages or 4_000_000_000}")

    sa.event.listen(opened.engine, "checkout", limit)
    pages = 1
    with pytest.raises(UnavailableError, match="full"):
        registry.record("default", records(100), NOW)
    assert registry.list_jobs(JobFilter(), NOW).total == 0
    pages = 0
    assert registry.record("default", records(100), NOW) == 100
    assert registry.list_jobs(JobFilter(), NOW).total == 100
    registry.close()


def test_another_process_that_holds_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 50)
    path = tmp_path / "registry.db"
    registry = open_registry(f"sqlite:///{path}", Retention())
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="locked"):
        registry.record("default", records(1), NOW)
    assert registry.list_jobs(JobFilter(), NOW).total == 0
    holder.execute("ROLLBACK")
    holder.close()
    assert registry.record("default", records(1), NOW) == 1
    registry.close()


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"this is not a database, but it is long enough to look like one" * 100)
    with pytest.raises(UnavailableError, match="not a database"):
        open_registry(f"sqlite:///{path}", Retention())


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError):
        open_registry(f"sqlite:///{tmp_path / 'file' / 'registry.db'}", Retention())


def test_a_read_only_database(registry: Registry, url: str) -> None:
    registry.record("default", records(1), NOW)
    if url.startswith("sqlite"):
        # File permissions do not restrict root, so make the connection read-only.
        @sa.event.listens_for(registry.database.engine, "checkout")
        def forbid(connection: sqlite3.Connection, *_: object) -> None:
            connection.execute("PRAGMA query_only = ON")
    else:
        admin = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            name = sa.make_url(url).database
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        admin.dispose()
        registry.database.engine.dispose()
    with pytest.raises(UnavailableError, match=r"read-?only"):
        registry.record("default", records(2), NOW)
    assert registry.list_jobs(JobFilter(), NOW).total == 1


def test_a_lost_connection_is_mended(postgresql_url: str) -> None:
    registry = open_registry(postgresql_url, Retention())
    admin = sa.create_engine(postgresql_url.replace("postgresql://", "postgresql+psycopg://"))
    for _ in range(2):
        registry.record("default", records(1), NOW)
        with admin.connect() as connection:
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobmeter'")
            )
    assert registry.list_jobs(JobFilter(), NOW).total == 1
    admin.dispose()
    registry.close()


KILLED = """
import os, sys
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry.open import open_registry
registry = open_registry(sys.argv[1], Retention())
for number in range(int(sys.argv[2])):
    registry.record("default", Records(jobs=[JobRecord(job_id=f"j{number}", replicas=["a", "b"])]), 1)
    os.write(1, b".")
os.kill(os.getpid(), 9)
"""


def test_what_was_acknowledged_survives_a_kill(url: str) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, url, "25"], stdout=subprocess.PIPE, check=False, timeout=120)
    assert killed.stdout == b"." * 25
    registry = open_registry(url, Retention())
    assert registry.list_jobs(JobFilter(), NOW).total == 25
    assert [len(registry.find_job(None, f"j{number}", NOW)[0].replicas) for number in range(25)] == [2] * 25
    registry.close()
