"""The servers and the record of replicas that several servers share, in the registry that these have in common."""

import secrets
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from jobmeter.errors import UnavailableError
from jobmeter.model.server_group import ServerGroup, StoredReplicas, StoredServer
from jobmeter.model.time import DAY, Clock
from jobmeter.store.clickhouse.replica_state import ReplicaSetState
from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED, LIVE, ServerRow

GROUP_OWNER = "the servers of one registry"
"""Owner of replicas that several servers use."""
_RETRY_AFTER_MS = 1_000


class GroupServerTable:
    """Table of the servers of one store in their registry. See ``ServerTable``."""

    def __init__(self, group: ServerGroup, store: str, clock: Clock) -> None:
        self._group = group
        self._store = store
        self._clock = clock

    def read(self) -> Sequence[ServerRow]:
        """Return the servers that have not departed, each with its newest description."""
        return [_decode(row) for row in self._group.read_servers(self._store, DEPARTED)]

    def get_state(self, number: int) -> int:
        """Return the state of a server; ``LIVE`` for an unknown one."""
        return self._group.read_state(self._store, number)

    def expel(self, row: ServerRow) -> bool:
        """Expel a server. Return True: the server that takes the record of the replicas next ends its writes."""
        if row.state == LIVE:
            self.write(replace(row, beat=row.beat + 1, state=EXPELLED))
        return True

    def is_inserting(self, number: int) -> bool:  # noqa: ARG002 - the protocol's
        """Return False. See ``expel``."""
        return False

    def write(self, row: ServerRow) -> None:
        """Store a row. On return it is durable and visible."""
        stored = StoredServer(row.id, row.state, row.beat, msgspec.json.encode(row))
        self._group.write_server(self._store, stored, self._clock.now_ms())

    def forget_old(self) -> None:
        """Delete the rows of servers that departed more than a day ago."""
        self._group.forget_servers(self._store, DEPARTED, self._clock.now_ms() - DAY)


def _decode(row: StoredServer) -> ServerRow:
    return replace(msgspec.json.decode(row.content, type=ServerRow), state=row.state)


class GroupRecord:
    """Record of the replicas of one store in the registry. Only the server that last took it may write."""

    def __init__(self, group: ServerGroup, store: str) -> None:
        self._group = group
        self._store = store
        self._own = secrets.token_hex(8)

    def read(self) -> ReplicaSetState | None:
        """Return the record; None before the first one."""
        stored = self._group.read_replicas(self._store)
        return None if stored is None else msgspec.json.decode(stored.content, type=ReplicaSetState)

    def create(self, record: ReplicaSetState) -> ReplicaSetState:
        """Store a first record, instead of one from before a time without this group. Return it with its number."""
        if not self._group.create_replicas(self._store, self._encode(record, self._own)):
            record = replace(record, number=max(record.number, self.take().number + 1))
            self.write(record)
        return record

    def is_own(self, number: int) -> bool:
        """Return True if this server took the record, and wrote it last with that number."""
        stored = self._group.read_replicas(self._store)
        return stored is not None and (stored.number, stored.writer) == (number, self._own)

    def take(self) -> ReplicaSetState:
        """Take the record: no other server can write it from now on. Return it."""
        stored = self._group.read_replicas(self._store)
        if stored is None:
            raise UnavailableError("the registry has no record of the replicas: start the servers again")
        record = msgspec.json.decode(stored.content, type=ReplicaSetState)
        record = replace(record, number=stored.number + 1)
        self._replace(record, stored.writer)
        return record

    def write(self, record: ReplicaSetState) -> None:
        """Replace the record. It is durable on return. Raises UnavailableError if another server took it."""
        self._replace(record, self._own)

    def _replace(self, record: ReplicaSetState, writer: str) -> None:
        if not self._group.replace_replicas(self._store, self._encode(record, self._own), writer):
            raise UnavailableError("another server leads now, and writes the replicas: try again", _RETRY_AFTER_MS)

    @staticmethod
    def _encode(record: ReplicaSetState, writer: str) -> StoredReplicas:
        return StoredReplicas(record.number, writer, msgspec.json.encode(record))
