"""Creates a database's tables, or brings them up to date, once, however many servers start together.

Migrations change tables that exist. New tables come from the schema, after the migrations: a migration of a table that
was new in an earlier one first looks if the table exists.
"""

import sqlalchemy as sa

from jobmeter.errors import ConfigurationError
from jobmeter.registry.breaker import SLOW_SECONDS
from jobmeter.registry.database import POSTGRESQL, Database
from jobmeter.registry.schema import FIRST_ROWS, UNLOGGED, metadata

HEAD = "0021"
"""The newest migration."""
REVISIONS = frozenset({"0005", "0015", "0018", "0019", "0020", HEAD})
"""Every migration of this program: of recorded data folders, of release 0.1.0, and of this version."""
_VERSIONS = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))
"""Alembic's table."""
_LOCK = 0x6A6F626D
"""The number of PostgreSQL's advisory lock of migrations."""


def migrate(database: Database) -> None:
    """Create the tables of an empty database, or run the missing migrations, in one transaction.

    A second program that starts at the same time waits and finds them done. Raises ConfigurationError for a database
    of a newer version of the program, or of an older one that no release had.
    """
    with database.read() as connection:
        if _revision(connection) == HEAD:
            return
    with database.write(SLOW_SECONDS) as connection:
        if database.kind == POSTGRESQL:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        revision = _revision(connection)
        if revision is not None and revision not in REVISIONS:
            origin = "a newer version of jobmeter" if revision > HEAD else "a version of jobmeter before its release"
            raise ConfigurationError(f"the registry was migrated to {revision!r} by {origin}; this one needs {HEAD!r}")
        if revision is None:
            _VERSIONS.create(connection, checkfirst=True)
            connection.execute(sa.insert(_VERSIONS).values(version_num=HEAD))
        else:
            _upgrade(connection)
        _create_missing(connection)


def _create_missing(connection: sa.Connection) -> None:
    """Create the tables of the schema that the database lacks, with their first rows."""
    there = sa.inspect(connection).get_table_names()
    missing = [table for table in metadata.sorted_tables if table.name not in there]
    if connection.dialect.name == POSTGRESQL:
        for index in (index for table in missing for index in table.indexes):
            # The schema states it for SQLite alone, see there.
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    metadata.create_all(connection, missing)
    for table in missing:
        if connection.dialect.name == POSTGRESQL and table in UNLOGGED:
            connection.execute(sa.text(f"ALTER TABLE {table.name} SET UNLOGGED"))
        if table in FIRST_ROWS:
            connection.execute(sa.insert(table).values(FIRST_ROWS[table]))


def _upgrade(connection: sa.Connection) -> None:
    # Most starts find nothing to do: they skip loading Alembic, which takes a twentieth of the time of a start.
    from alembic import command  # noqa: PLC0415 - said above
    from alembic.config import Config  # noqa: PLC0415 - said above

    config = Config()
    config.set_main_option("script_location", "jobmeter.registry:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def _revision(connection: sa.Connection) -> str | None:
    """Return the revision in Alembic's table; None without the table or a row."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.scalar(sa.select(_VERSIONS.c.version_num))
