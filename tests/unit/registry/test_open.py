"""Tests of opening registries: URLs, migrations, several programs at once."""

import multiprocessing
import stat
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy.engine.interfaces import ReflectedIndex
from tests.unit.registry.first_tables import REVISION, make_first_tables

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.job import Condition, JobFilter, Operator
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.database import POSTGRESQL, Database
from jobmeter.registry.migrate import HEAD, REVISIONS
from jobmeter.registry.open import open_registry
from jobmeter.registry.schema import metadata


def _open_and_close(url: str) -> int:
    registry = open_registry(url, Retention())
    total = registry.list_jobs(JobFilter(), 0).total
    registry.close()
    return total


def make_database(url: str, revision: str) -> Database:
    """Make a database in the state of an earlier program."""
    database = Database(url)
    config = Config()
    config.set_main_option("script_location", "jobmeter.registry:migrations")
    with database.write() as connection:
        config.attributes["connection"] = connection
        context = MigrationContext.configure(connection)
        with Operations.context(context):
            make_first_tables()
        context.stamp(ScriptDirectory.from_config(config), REVISION)
        command.upgrade(config, revision)
    return database


def described(url: str) -> dict[str, list[Any]]:
    """Return the definition of each table, with columns and indexes by name, and its rows."""
    persistence = "SELECT relpersistence FROM pg_class WHERE oid = CAST(:table AS regclass)"
    database = Database(url)
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": False})
        assert compare_metadata(context, metadata) == []
        inspector = sa.inspect(connection)
        found = {
            table: [
                {column["name"]: str(column) for column in inspector.get_columns(table)},
                {index["name"]: _index(index) for index in inspector.get_indexes(table)},
                *(inspector.get_pk_constraint(table), inspector.get_foreign_keys(table)),
                inspector.get_check_constraints(table),
                *(tuple(row) for row in connection.execute(sa.select(metadata.tables[table]))),
                connection.scalar(sa.text(persistence), {"table": table}) if database.kind == POSTGRESQL else None,
            ]
            for table in metadata.tables
        }
    database.close()
    return found


def _index(index: ReflectedIndex) -> str:
    options = {name: str(value).replace("<>", "!=") for name, value in index.get("dialect_options", {}).items()}
    return str({**index, "dialect_options": options})


def test_an_old_database_gets_the_tables_of_an_empty_one(url: str) -> None:
    _open_and_close(url)
    tables = described(url)
    for name, (_, indexes, *_) in tables.items():
        assert set(indexes) == {str(index.name) for index in metadata.tables[name].indexes}
    assert "'Finding'" in tables["events"][1]["events_findings"], "partial"
    database = Database(url)
    with database.write() as connection:
        metadata.drop_all(connection)
        connection.execute(sa.text("DROP TABLE alembic_version"))
    database.close()
    make_database(url, REVISION).close()
    _open_and_close(url)
    assert described(url) == tables


def test_the_newest_migration_is_the_head() -> None:
    config = Config()
    config.set_main_option("script_location", "jobmeter.registry:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [HEAD]
    assert {script.revision for script in scripts.walk_revisions()} == REVISIONS


def test_several_programs_may_start_at_once(url: str) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.map(_open_and_close, [url] * 8) == [0] * 8


def test_a_database_of_a_newer_version_is_left_alone(url: str) -> None:
    _open_and_close(url)
    database = Database(url)
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(ConfigurationError, match="newer version"):
        _open_and_close(url)


def test_a_database_between_two_releases_is_left_alone(url: str) -> None:
    _open_and_close(url)
    database = Database(url)
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0007'"))
    database.close()
    with pytest.raises(ConfigurationError, match="before its release"):
        _open_and_close(url)


@pytest.mark.parametrize("revision", sorted(REVISIONS - {HEAD}))
def test_an_older_database_is_brought_up_to_date(url: str, revision: str) -> None:
    database = make_database(url, revision)
    with database.write() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO jobs (project, id, recorded, noticed, labels) "
                "VALUES ('p', 'old', true, 5, '{\"a\":\"b\"}')"
            )
        )
        connection.execute(
            sa.text("INSERT INTO replicas (project, job, name, attempt, node) VALUES ('p', 'old', 'w', 0, 'n')")
        )
        connection.execute(sa.text("INSERT INTO nodes (project, cluster, name) VALUES ('p', '', 'n')"))
    database.close()
    registry = open_registry(url, Retention())
    [job] = registry.find_job_head(None, "old", 7)
    assert (job.extra, job.checkpoints, job.updated) == ({}, [], None)
    assert [node.resource_group for node in registry.list_nodes(None)] == [""]
    registry.record("p", Records(jobs=[JobRecord(job_id="new", labels={"a": "c"}, extra={"foas": {"a": 1}})]), 7)
    assert registry.find_job_head(None, "new", 7)[0].extra == {"foas": {"a": 1}}
    for field, value, expected in (("labels.a", "b", ["old"]), ("labels.a", "c", ["new"]), ("node", "n", ["old"])):
        question = JobFilter(conditions=(Condition(field, Operator.IN, (value,)),))
        assert [job.id for job in registry.list_jobs(question, 7).jobs] == expected
    registry.close()


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "nonsense", ""])
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_registry(url, Retention())


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(UnavailableError):
        open_registry("postgresql://nobody@127.0.0.1:1/none", Retention())


def test_a_password_is_never_in_a_message() -> None:
    with pytest.raises(UnavailableError) as failed:
        open_registry("postgresql://nobody:hunter2@127.0.0.1:1/none", Retention())
    assert "hunter2" not in failed.value.message


def test_parameters_of_the_url_reach_the_server(postgresql_url: str) -> None:
    database = Database(f"{postgresql_url}?sslmode=prefer&options=-c%20work_mem%3D5MB&application_name=mine")
    with database.read() as connection:
        settings = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("work_mem", "application_name", "lock_timeout")
        }
    assert settings == {"work_mem": "5MB", "application_name": "mine", "lock_timeout": "15s"}
    database.close()


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "registry.db"
    registry = open_registry(f"sqlite:///{path}", Retention())
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    registry.close()


def test_sqlite_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    with database.read() as connection:
        values = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    database.close()


def test_retention_is_a_projects_own_or_the_servers(registry: Registry) -> None:
    assert registry.get_retention("p") == Retention()
    own = Retention(raw_days=1, minute_days=2, hour_days=3)
    registry.set_retention("p", own)
    assert (registry.get_retention("p"), registry.get_retention("q")) == (own, Retention())
    registry.set_retention("p", None)
    assert registry.get_retention("p") == Retention()
