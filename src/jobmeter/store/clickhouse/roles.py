"""Roles of the servers of a ClickHouse node, and the parts of a server that ``membership`` directs."""

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from jobmeter.store.clickhouse.servers import ServerRow


class ServerRole(Enum):
    """Role of one of the servers of a ClickHouse node; ``membership`` defines them."""

    IDLE = "idle"
    DIRECT = "direct"
    FOLLOWER = "follower"
    LEADER = "leader"


def describe_role(role: ServerRole, followers: int) -> str:
    """Describe a role for operators."""
    match role:
        case ServerRole.LEADER:
            return f"leads, followers: {followers}" if followers else "alone"
        case ServerRole.FOLLOWER:
            return "follows the leading server"
        case ServerRole.DIRECT:
            return "direct: ClickHouse commits each request, as the servers do not reach each other's --peer-listen"
        case ServerRole.IDLE:
            return "waits for another server"


class Duties(Protocol):
    """The parts of a store that depend on the role of its server."""

    @property
    def role(self) -> ServerRole:
        """Current role."""
        ...

    def lead(self) -> None:
        """Acknowledge from the journal and trust the memory from now on."""
        ...

    def note_alone(self, *, alone: bool) -> None:
        """Note that there is no other server, or that others may work from now on."""
        ...

    def follow(self) -> None:
        """Send samples to the leader and trust the memory from now on."""
        ...

    def be_among_others(self) -> None:
        """Insert the journal into the engine. From now on use neither the journal nor the memory.

        Raises UnavailableError if the engine does not accept the samples; the server then still leads.
        """
        ...

    def be_idle(self) -> None:
        """Acknowledge and answer nothing from now on. Copies and journal stay."""
        ...

    def insert_copies(self) -> None:
        """Insert the copies that this server had as a follower. Raises UnavailableError if some are left."""
        ...

    def drop_copies(self) -> None:
        """Drop these copies: the engine has them, or the leader lives."""
        ...

    def recover(self, folder: Path) -> None:
        """Insert the samples of a journal whose process has ended. Raises UnavailableError if some are left."""
        ...

    def void(self) -> None:
        """Delete the rows of this server's journal: another server has inserted them."""
        ...


class ServerLink(Protocol):
    """Connection with a leader or a follower. Times are of the clock of ``NodeMembership``."""

    server: int
    is_closed: bool
    confirmed: float
    """Time of the last question for a sign of life that the other server answered."""
    answered: float
    """Time of the last sign of life that was sent to the other server."""
    since: float
    """Time since which the follower follows."""
    is_expelled: bool
    """True once the leader has expelled the follower, so that the follower cannot succeed it."""
    has_worked: bool
    """True once the table has shown that the follower works."""


class Joining(Enum):
    """Result of an attempt to follow a leader."""

    FOLLOWS = "follows"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class ServerPeers(Protocol):
    """Connections with the other servers."""

    @property
    def place(self) -> str:
        """Text by which others reach this server; empty if they cannot."""
        ...

    def welcome(self, servers: frozenset[int]) -> None:
        """Let these servers follow this one, and no others."""
        ...

    def list_followers(self) -> Sequence[ServerLink]:
        """Return the followers without which nothing is acknowledged."""
        ...

    def drop(self, server: int) -> None:
        """Acknowledge without this follower from now on."""
        ...

    def refuse(self) -> None:
        """Close the connections of all followers, and let none follow. They still count until they are dropped."""
        ...

    def follow(self, leader: ServerRow, number: int, resign: Callable[[], None]) -> Joining:
        """Follow a leader. On success this server has a copy of every sample that the engine may lack.

        ``resign`` is called once the leader has answered.
        """
        ...

    @property
    def leader(self) -> ServerLink | None:
        """Connection with the leader; None for none."""
        ...

    def leave(self) -> None:
        """Close the connection with the leader."""
        ...
