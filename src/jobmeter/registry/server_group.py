"""Rows that all servers of a store share, whatever its engine: the servers, and the record of the store's replicas.

PostgreSQL shows each committed row to every later statement. So all servers agree on these rows. While it does not
answer, the rows do not change.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import sqlalchemy as sa

from jobmeter.model.server_group import StoredReplicas, StoredServer
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import POSTGRESQL, Database
from jobmeter.registry.migrate import migrate
from jobmeter.registry.schema import store_replicas, store_servers
from jobmeter.registry.statements import insert

_LOCK_BYTES = 7


class ServerGroupTable:
    """Implements ``ServerGroup`` in PostgreSQL: each method but ``locked`` is one transaction."""

    def __init__(self, database: Database) -> None:
        """Use a database, and bring its tables up to date."""
        self._database = database
        migrate(database)

    def read_servers(self, store: str, below: int) -> list[StoredServer]:
        """Return the servers of a store whose state is less than ``below``."""
        columns = [store_servers.c[name] for name in StoredServer._fields]
        query = sa.select(*columns).where(store_servers.c.store == store, store_servers.c.state < below)
        with self._database.read(SHORT_SECONDS) as connection:
            return [StoredServer(*row) for row in connection.execute(query)]

    def read_state(self, store: str, number: int) -> int:
        """Return the state of a server; 0 for an unknown one."""
        query = sa.select(store_servers.c.state).where(store_servers.c.store == store, store_servers.c.number == number)
        with self._database.read(SHORT_SECONDS) as connection:
            return int(connection.scalar(query) or 0)

    def write_server(self, store: str, row: StoredServer, at_ms: int) -> None:
        """Store a row: the highest state, and the content with the highest beat."""
        with self._database.write(SHORT_SECONDS) as connection:
            statement = insert(connection, store_servers).values(store=store, at=at_ms, **row._asdict())
            new, old = statement.excluded, store_servers.c
            is_newer = new["beat"] >= old.beat
            changes = {name: sa.case((is_newer, new[name]), else_=old[name]) for name in ("beat", "at", "content")}
            highest = sa.case((new["state"] > old.state, new["state"]), else_=old.state)
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=[old.store, old.number], set_={"state": highest, **changes}
                )
            )

    def forget_servers(self, store: str, state: int, before_ms: int) -> None:
        """Delete the servers of a store that are in a state and were last written before ``before_ms`` (epoch ms)."""
        old = store_servers.c
        condition = sa.and_(old.store == store, old.state == state, old.at < before_ms)
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(sa.delete(store_servers).where(condition))

    def read_replicas(self, store: str) -> StoredReplicas | None:
        """Return the record of the replicas of a store; None without one."""
        columns = [store_replicas.c[name] for name in StoredReplicas._fields]
        with self._database.read(SHORT_SECONDS) as connection:
            row = connection.execute(sa.select(*columns).where(store_replicas.c.store == store)).first()
        return None if row is None else StoredReplicas(*row)

    def create_replicas(self, store: str, record: StoredReplicas) -> bool:
        """Store the first record. Return False if a record exists."""
        with self._database.write(SHORT_SECONDS) as connection:
            statement = insert(connection, store_replicas).values(store=store, **record._asdict())
            found = statement.on_conflict_do_nothing().returning(store_replicas.c.store)
            return connection.execute(found).first() is not None

    def replace_replicas(self, store: str, record: StoredReplicas, writer: str) -> bool:
        """Replace a record with a lower number that names ``writer``. Return False if there is no such record."""
        old = store_replicas.c
        condition = sa.and_(old.store == store, old.writer == writer, old.number < record.number)
        with self._database.write(SHORT_SECONDS) as connection:
            changed = sa.update(store_replicas).where(condition).values(**record._asdict()).returning(old.store)
            return connection.execute(changed).first() is not None

    @contextmanager
    def lock(self, store: str) -> Iterator[None]:
        """Exclude other servers from such a block for the same store."""
        key = int.from_bytes(sha256(store.encode()).digest()[:_LOCK_BYTES])
        with self._database.write() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
            yield

    def close(self) -> None:
        """Close every connection."""
        self._database.close()


def open_server_group(url: str) -> ServerGroupTable | None:
    """Open the group of the servers that share a registry; None for a registry of a single server.

    Raises UnavailableError if the database does not answer.
    """
    if not url.startswith(("postgres:", f"{POSTGRESQL}:", f"{POSTGRESQL}+")):
        return None
    database = Database(url)
    try:
        return ServerGroupTable(database)
    except BaseException:
        database.close()
        raise
