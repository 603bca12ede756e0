"""Rows that all servers of a store share, whatever its engine: the servers, and the record of the store's replicas."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class StoredServer(NamedTuple):
    """State of a server. ``beat`` grows with each row of the server, ``state`` never falls."""

    number: int
    state: int
    beat: int
    content: bytes


class StoredReplicas(NamedTuple):
    """Record of the replicas of a store. ``number`` grows with each record. ``writer`` may write the next one."""

    number: int
    writer: str
    content: bytes


class ServerGroup(Protocol):
    """Table of the servers and replicas of stores. Each statement sees every earlier one of any server.

    Methods raise UnavailableError while the database of the table does not answer.
    """

    def read_servers(self, store: str, below: int) -> Sequence[StoredServer]:
        """Return the servers of a store whose state is less than ``below``."""
        ...

    def read_state(self, store: str, number: int) -> int:
        """Return the state of a server; 0 for an unknown one."""
        ...

    def write_server(self, store: str, row: StoredServer, at_ms: int) -> None:
        """Store a row: the highest state, and the content with the highest beat."""
        ...

    def forget_servers(self, store: str, state: int, before_ms: int) -> None:
        """Delete the servers of a store that are in a state and were last written before ``before_ms`` (epoch ms)."""
        ...

    def read_replicas(self, store: str) -> StoredReplicas | None:
        """Return the record of the replicas of a store; None without one."""
        ...

    def create_replicas(self, store: str, record: StoredReplicas) -> bool:
        """Store the first record. Return False if a record exists."""
        ...

    def replace_replicas(self, store: str, record: StoredReplicas, writer: str) -> bool:
        """Replace a record with a lower number that names ``writer``. Return False if there is no such record."""
        ...

    def lock(self, store: str) -> AbstractContextManager[None]:
        """Exclude other servers from such a block for the same store."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


OpenGroup = Callable[[], ServerGroup | None]
"""Function that opens the table. It returns None for a server that shares no registry."""


def open_no_group() -> None:
    """Return None: this server shares no registry."""
