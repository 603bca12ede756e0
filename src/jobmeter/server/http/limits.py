"""How many connections may be open at one time, and how long one may stay still.

A process has a bounded number of descriptors, and every client that reaches a port can open connections. So each port
has a bound; at the bound a connection that waits for its client is closed to make place, those without a valid key
first, the one that has waited longest first. A connection whose request is being answered is never closed for it.
Where all are busy, a few further ones are let in that may ask for the server's health alone.
"""

import logging
import resource
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Protocol

_log = logging.getLogger("jobmeter.server")

MOST_HTTP, MOST_TELNET, MOST_GRPC = 16_384, 1_024, 4_096
"""Most connections of each port, where the system permits so many descriptors."""
RESERVED = 16
"""Connections beyond the bound that may ask for the server's health."""
IDLE_SECONDS, KEYED_IDLE_SECONDS = 60.0, 600.0
"""How long a connection may be open without a request: one that never showed a valid key, and one that did."""
HEAD_SECONDS = 15.0
"""How long the headers of a request may take to come."""
STALL_SECONDS = 60.0
"""How long a client that sends a body or reads an answer may make no progress."""
BYTES_PER_SECOND = 16 * 1024
"""What a client has to send or read on average, beyond ``STALL_SECONDS``: a slow trickle is no progress."""
_LOG_SECONDS = 60.0


class Reason(StrEnum):
    """Why the server closed a connection, as its metrics and its log say."""

    IDLE = "idle"
    SLOW = "slow"
    REPLACED = "replaced"
    REFUSED = "refused"


_TEXTS = {
    Reason.IDLE: "connections were closed that were still for too long",
    Reason.SLOW: "connections were closed whose clients sent or read too slowly",
    Reason.REPLACED: "waiting connections were closed to make place for new ones",
    Reason.REFUSED: "connections were refused: as many as there may be were busy",
}


def allow_descriptors() -> int:
    """Raise the process's limit of open files as far as the system permits and it is of use; gives the limit."""
    requested = 4 * MOST_HTTP
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return requested
    allowed = requested if hard == resource.RLIM_INFINITY else min(hard, requested)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(soft, allowed)


def share(descriptors: int, most: int) -> int:
    """The bound of a port that may have ``most`` connections, of a process that may have so many descriptors.

    All ports together leave a quarter and more to the engine, the registry and files.
    """
    return max(8, min(most, descriptors // (2 if most == MOST_HTTP else 8)))


def extended(deadline: float, size: int, now: float) -> float:
    """The deadline of a transfer after ``size`` more bytes: ``STALL_SECONDS`` for what is faster than that rate."""
    return min(deadline + size / BYTES_PER_SECOND, now + STALL_SECONDS)


class Limited(Protocol):
    """A connection, as its limits see it."""

    @property
    def keyed(self) -> bool:
        """True once it showed a valid key."""
        ...

    def overdue(self, now: float) -> Reason | None:
        """Why it is to be closed now, if it is."""
        ...

    def cut(self) -> None:
        """Close it now, whatever it is doing."""
        ...


class Connections:
    """The open connections of one port. Belongs to that port's event loop."""

    def __init__(
        self, port: str, bound: int, count: Callable[[str, str], None], clock: Callable[[], float], reserved: int = 0
    ) -> None:
        """``count`` gets the port and the reason of each connection that is closed; ``clock`` gives seconds."""
        self.bound = bound
        self.clock = clock
        self.port = port
        self._reserved = reserved
        self._count = count
        self._open: set[Limited] = set()
        self._writing: set[Limited] = set()
        # In the order in which they began to wait.
        self._strangers: dict[Limited, None] = {}
        self._keyed: dict[Limited, None] = {}
        self._unsaid: dict[Reason, int] = {}
        self._said = -_LOG_SECONDS

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Limited]:
        return iter(tuple(self._open))

    def admit(self, one: Limited) -> bool | None:
        """Take in a new connection: True; False where it may ask for the server's health alone; None: it is refused."""
        room = len(self._open) < self.bound or self._make_place()
        if not room and len(self._open) >= self.bound + self._reserved:
            self._closed(Reason.REFUSED)
            return None
        self._open.add(one)
        self._strangers[one] = None
        return room

    def forget(self, one: Limited) -> None:
        """It is closed."""
        self._open.discard(one)
        self._writing.discard(one)
        self.working(one)

    def waiting(self, one: Limited) -> None:
        """From now on it waits for its client."""
        self.working(one)
        (self._keyed if one.keyed else self._strangers)[one] = None

    def working(self, one: Limited) -> None:
        """Its client waits for the server."""
        self._strangers.pop(one, None)
        self._keyed.pop(one, None)

    def writing(self, one: Limited, *, blocked: bool) -> None:
        """Whether it has more to send than its client takes."""
        (self._writing.add if blocked else self._writing.discard)(one)

    def sweep(self) -> None:
        """Close what was still for too long; once a second."""
        now = self.clock()
        for one in (*self._strangers, *self._keyed, *self._writing):
            reason = one.overdue(now)
            if reason is not None:
                self._cut(one, reason)
        self._say(now)

    def _make_place(self) -> bool:
        for group in (self._strangers, self._keyed):
            if group:
                self._cut(next(iter(group)), Reason.REPLACED)
                return True
        return False

    def _cut(self, one: Limited, reason: Reason) -> None:
        self.forget(one)
        one.cut()
        self._closed(reason)

    def _closed(self, reason: Reason) -> None:
        self._count(self.port, reason)
        self._unsaid[reason] = self._unsaid.get(reason, 0) + 1

    def _say(self, now: float) -> None:
        """Once a minute: a client that opens connections must not fill the log."""
        if now - self._said < _LOG_SECONDS:
            return
        for reason, count in self._unsaid.items():
            self._said = now
            if reason is Reason.IDLE:
                _log.info("%s: %d %s", self.port, count, _TEXTS[reason])
            else:
                _log.warning("%s: %d %s (%d may be open)", self.port, count, _TEXTS[reason], self.bound)
        self._unsaid.clear()
