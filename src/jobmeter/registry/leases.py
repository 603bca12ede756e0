"""Leases: work that only one server does at a time. A row names the owner and the end of its lease."""

import secrets

import sqlalchemy as sa

from jobmeter.model.time import Clock
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

    def prepare(self, name: str, clock: Clock, length_ms: int) -> "OwnedLease":
        """Return the lease of one kind of work for this process. It is not acquired yet."""
        return OwnedLease(self, name, clock, length_ms)


class OwnedLease:
    """The lease of one kind of work, as this process takes it. A lease that nobody extends ends after ``length_ms``."""

    def __init__(self, leases: LeaseTable, name: str, clock: Clock, length_ms: int) -> None:
        self._leases = leases
        self._name = name
        self._clock = clock
        self._length_ms = length_ms
        self._owner = secrets.token_hex(8)

    def take(self) -> bool:
        """Acquire or extend the lease. False if another process holds it."""
        now_ms = self._clock.now_ms()
        return self._leases.take(self._name, self._owner, now_ms, now_ms + self._length_ms)

    def release(self) -> None:
        """Release the lease; a no-op if another process holds it."""
        self._leases.release(self._name, self._owner)
