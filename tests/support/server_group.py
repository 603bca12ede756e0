"""Server table of a store, in memory instead of PostgreSQL."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jobmeter.errors import UnavailableError
from jobmeter.model.server_group import StoredReplicas, StoredServer


class MemoryServerGroup:
    """``ServerGroup`` in memory. Every method fails while ``away`` is set."""

    def __init__(self) -> None:
        self.away = False
        self._lock = threading.RLock()
        self._servers: dict[tuple[str, int], StoredServer] = {}
        self._replicas: dict[str, StoredReplicas] = {}

    @contextmanager
    def _answering(self) -> Iterator[None]:
        if self.away:
            raise UnavailableError("the registry does not answer")
        with self._lock:
            yield

    def read_servers(self, store: str, below: int) -> Sequence[StoredServer]:
        with self._answering():
            return [row for (name, _), row in self._servers.items() if name == store and row.state < below]

    def read_state(self, store: str, number: int) -> int:
        with self._answering():
            row = self._servers.get((store, number))
            return 0 if row is None else row.state

    def write_server(self, store: str, row: StoredServer, at_ms: int) -> None:
        with self._answering():
            old = self._servers.get((store, row.number), row)
            newer = row if row.beat >= old.beat else old
            self._servers[store, row.number] = newer._replace(state=max(row.state, old.state))

    def forget_servers(self, store: str, state: int, before_ms: int) -> None:
        """Do nothing: all rows stay."""

    def read_replicas(self, store: str) -> StoredReplicas | None:
        with self._answering():
            return self._replicas.get(store)

    def create_replicas(self, store: str, record: StoredReplicas) -> bool:
        with self._answering():
            return self._replicas.setdefault(store, record) is record

    def replace_replicas(self, store: str, record: StoredReplicas, writer: str) -> bool:
        with self._answering():
            old = self._replicas[store]
            if old.writer != writer or old.number >= record.number:
                return False
            self._replicas[store] = record
            return True

    @contextmanager
    def lock(self, store: str) -> Iterator[None]:
        with self._answering():
            yield

    def close(self) -> None:
        """Do nothing."""
