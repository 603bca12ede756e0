"""Leases: work that only one server does at a time. A row names the owner and the end of its lease."""

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from jobmeter.errors import JobmeterError
from jobmeter.model.time import MINUTE, SECOND, Clock
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import POSTGRESQL, Database
from jobmeter.registry.schema import leases
from jobmeter.registry.statements import insert

_log = logging.getLogger(__name__)
LEASE_MS = 10 * SECOND
"""Length of a lease in milliseconds."""
RETRY_SECONDS = 4.0
"""Longest interval in seconds at which others try to acquire a lease: a dead holder is replaced within 15 seconds."""
_LATER_MS = 10 * MINUTE
"""Time in milliseconds that is longer than any lease of this version or an earlier version."""
_NOW = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


class LeaseTable:
    """The leases of servers. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read_now_ms(self, clock: Clock) -> int:
        """Return the time that all servers share: the time of PostgreSQL, or of this process with SQLite."""
        if self._database.kind != POSTGRESQL:
            return clock.now_ms()
        with self._database.read(SHORT_SECONDS) as connection:
            return int(connection.scalar(_NOW) or 0)

    def take(self, name: str, owner: str, now_ms: int, until_ms: int) -> bool:
        """Acquire or extend a lease. A single statement, so that a second caller sees the write of the first caller.

        A lease that ends ``_LATER_MS`` after the new lease comes from a clock that was set back since. That lease is
        free.
        """
        with self._database.write(SHORT_SECONDS) as connection:
            statement = insert(connection, leases).values(name=name, owner=owner, until=until_ms)
            taken = statement.on_conflict_do_update(
                index_elements=[leases.c.name],
                set_={"owner": owner, "until": until_ms},
                where=sa.or_(leases.c.owner == owner, leases.c.until <= now_ms, leases.c.until > until_ms + _LATER_MS),
            )
            return connection.execute(taken.returning(leases.c.name)).first() is not None

    def release(self, name: str, owner: str) -> None:
        """Release a lease; a no-op if another owner has it."""
        with self._database.write() as connection:
            connection.execute(sa.delete(leases).where(leases.c.name == name, leases.c.owner == owner))

    def prepare(self, name: str, clock: Clock, length_ms: int = LEASE_MS) -> "OwnedLease":
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
        now_ms = self._leases.read_now_ms(self._clock)
        return self._leases.take(self._name, self._owner, now_ms, now_ms + self._length_ms)

    def release(self) -> None:
        """Release the lease; a no-op if another process holds it."""
        self._leases.release(self._name, self._owner)

    @contextmanager
    def keep_renewed(self) -> Iterator[None]:
        """Extend the lease, which this process has, until the block is over."""
        over = threading.Event()
        name = f"jobmeter-{self._name}-lease"
        renewing = threading.Thread(target=self._renew, args=(over,), name=name, daemon=True)
        renewing.start()
        try:
            yield
        finally:
            over.set()
            renewing.join()

    def _renew(self, over: threading.Event) -> None:
        while not over.wait(self._length_ms / SECOND / 4):
            try:
                leased = self.take()
            except JobmeterError as error:
                _log.warning("the lease for %s was not renewed: %s", self._name, error.message)
                continue
            except Exception:  # noqa: BLE001 - what goes wrong once may go right before the lease is over
                _log.exception("the lease for %s was not renewed", self._name)
                continue
            if not leased:
                _log.error("another server started %s while this server was still working on it", self._name)
