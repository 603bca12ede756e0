"""Leases: work that only one server does at a time. A row names the owner and the end of its lease."""

import sqlalchemy as sa

from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import leases
from jobmeter.registry.statements import insert


class LeaseTable:
    """The leases of servers. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, name: str, owner: str, now_ms: int, until_ms: int) -> bool:
        """Acquire or extend a lease. A single statement, so that a second caller sees the first one's write."""
        with self._database.write(SHORT_SECONDS) as connection:
            statement = insert(connection, leases).values(name=name, owner=owner, until=until_ms)
            taken = statement.on_conflict_do_update(
                index_elements=[leases.c.name],
                set_={"owner": owner, "until": until_ms},
                where=sa.or_(leases.c.owner == owner, leases.c.until <= now_ms),
            )
            return connection.execute(taken.returning(leases.c.name)).first() is not None

    def release(self, name: str, owner: str) -> None:
        """Release a lease; a no-op if another owner has it."""
        with self._database.write() as connection:
            connection.execute(sa.delete(leases).where(leases.c.name == name, leases.c.owner == owner))
