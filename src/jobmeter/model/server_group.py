"""Rows that all servers of a store see, wherever its engine is: the servers themselves, and the record of replicas."""

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
        """Return the servers of a store with a state below that one."""
        ...

    def read_state(self, store: str, number: int) -> int:
        """Return the state of a server; 0 for an unknown one."""
        ...

    def write_server(self, store: str, row: StoredServer, at_ms: int) -> None:
        """Store a row: the highest state, and the content with the highest beat."""
        ...

    def forget_servers(self, store: str, state: int, before_ms: int) -> None:
        """Delete the servers of a store that have had a state since before a time."""
        ...

    def read_replicas(self, store: str) -> StoredReplicas | None:
        """Return the record of the replicas of a store."""
        ...

    def create_replicas(self, store: str, record: StoredReplicas) -> bool:
        """Store the first record. Return False if there is one."""
        ...

    def replace_replicas(self, store: str, record: StoredReplicas, writer: str) -> bool:
        """Replace an older record. Return False if that is not of a writer, or not older."""
        ...

    def lock(self, store: str) -> AbstractContextManager[None]:
        """Let no other server run such a block for the same store meanwhile."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


OpenGroup = Callable[[], ServerGroup | None]
"""Opens the table; None for servers that share no registry."""


def open_no_group() -> None:
    """Return None: this server shares no registry."""
