"""Bring a database's tables up to date, once, however many servers start together."""

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

from jobmeter.errors import ConfigurationError
from jobmeter.registry.database import POSTGRESQL, Database

HEAD = "0004"
"""The newest migration."""
KNOWN = frozenset({"0001", "0002", "0003", HEAD})
"""Every migration of this program."""
_LOCK = 0x6A6F626D
"""The number of PostgreSQL's advisory lock that migrations hold."""


def migrate(database: Database) -> None:
    """Run the migrations that are missing, in one transaction.

    A second program that starts at the same time waits and finds them done. Raises ConfigurationError for a database
    that a newer version of the program has migrated.
    """
    with database.read() as connection:
        if _revision(connection) == HEAD:
            return
    with database.write() as connection:
        if database.kind == POSTGRESQL:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        revision = _revision(connection)
        if revision is not None and revision not in KNOWN:
            raise ConfigurationError(
                f"the registry was migrated to {revision!r} by a newer version of jobmeter; this one knows {HEAD!r}"
            )
        config = Config()
        config.set_main_option("script_location", "jobmeter.registry:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)


def _revision(connection: sa.Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
