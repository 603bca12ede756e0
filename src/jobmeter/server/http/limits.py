"""Limits on the number of open connections and on their idle time.

A process has a bounded number of file descriptors, and any client that reaches a port can open connections. So each
port has a bound. At the bound, a connection that waits for its client is closed: first those without a valid key, among
them the one that has waited longest. A connection whose request is being answered stays open. When all are busy, a few
more connections are accepted that may only request the server's health.
"""

import logging
import resource
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Protocol

_log = logging.getLogger("jobmeter.server")

MOST_HTTP, MOST_TELNET, MOST_GRPC = 16_384, 1_024, 4_096
"""Most connections of each port, if the system permits enough file descriptors."""
RESERVED = 16
"""Connections beyond the bound that may only request the server's health."""
IDLE_SECONDS, KEYED_IDLE_SECONDS = 60.0, 600.0
"""Longest idle time of a connection in seconds: without a valid key, and with one."""
HEAD_SECONDS = 15.0
"""Longest time in seconds for the headers of a request to arrive."""
STALL_SECONDS = 60.0
"""Longest time in seconds without progress while a client sends a body or reads an answer."""
BYTES_PER_SECOND = 16 * 1024
"""Least average rate of a client beyond ``STALL_SECONDS``. A slower trickle does not count as progress."""
_LOG_SECONDS = 60.0


class Reason(StrEnum):
    """Reason for closing a connection, as metrics and the log name it."""

    IDLE = "idle"
    SLOW = "slow"
    REPLACED = "replaced"
    REFUSED = "refused"


_TEXTS = {
    Reason.IDLE: "connections were closed because they were idle for too long",
    Reason.SLOW: "connections were closed because their clients sent or read too slowly",
    Reason.REPLACED: "idle connections were closed to make room for new ones",
    Reason.REFUSED: "connections were refused because the connection limit was reached",
}


def allow_descriptors() -> int:
    """Raise the process's limit of open files as far as useful and permitted. Returns the limit."""
    requested = 4 * MOST_HTTP
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return requested
    allowed = requested if hard == resource.RLIM_INFINITY else min(hard, requested)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(soft, allowed)


def compute_share(descriptors: int, most: int, processes: int = 1) -> int:
    """Return the bound on a port's connections in each process: a part of ``most``, or a share of its descriptors.

    ``descriptors`` is the limit of open files of one process. The ports together leave at least a quarter of them for
    the engine, the registry and files.
    """
    return max(8, min(most // processes, descriptors // (2 if most == MOST_HTTP else 8)))


def extend_deadline(deadline: float, size: int, now: float) -> float:
    """Return the deadline of a transfer of ``size`` more bytes, at most ``STALL_SECONDS`` from now."""
    return min(deadline + size / BYTES_PER_SECOND, now + STALL_SECONDS)


class Limited(Protocol):
    """Connection as seen by the limits."""

    @property
    def keyed(self) -> bool:
        """True once the client has shown a valid key."""
        ...

    def find_overdue_reason(self, now: float) -> Reason | None:
        """Return the reason to close the connection now; None if it may stay."""
        ...

    def cut(self) -> None:
        """Close the connection at once."""
        ...


class Connections:
    """Open connections of one port. Belongs to that port's event loop."""

    def __init__(
        self, port: str, bound: int, count: Callable[[str, str], None], clock: Callable[[], float], reserved: int = 0
    ) -> None:
        """``count`` gets the port and the reason of each closed connection; ``clock`` returns seconds."""
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
        """Accept a connection. True: fully. False: for health requests only. None: refused."""
        room = len(self._open) < self.bound or self._make_place()
        if not room and len(self._open) >= self.bound + self._reserved:
            self._count_closed(Reason.REFUSED)
            return None
        self._open.add(one)
        self._strangers[one] = None
        return room

    def forget(self, one: Limited) -> None:
        """Remove a closed connection."""
        self._open.discard(one)
        self._writing.discard(one)
        self.mark_working(one)

    def mark_waiting(self, one: Limited) -> None:
        """Mark the connection as waiting for its client."""
        self.mark_working(one)
        (self._keyed if one.keyed else self._strangers)[one] = None

    def mark_working(self, one: Limited) -> None:
        """Mark the connection as working: its client waits for the server."""
        self._strangers.pop(one, None)
        self._keyed.pop(one, None)

    def mark_writing(self, one: Limited, *, blocked: bool) -> None:
        """Mark the connection as ``blocked`` (its client reads too slowly) or not."""
        (self._writing.add if blocked else self._writing.discard)(one)

    def sweep(self) -> None:
        """Close connections that exceeded a time limit. Called once a second."""
        now = self.clock()
        for one in (*self._strangers, *self._keyed, *self._writing):
            reason = one.find_overdue_reason(now)
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
        self._count_closed(reason)

    def _count_closed(self, reason: Reason) -> None:
        self._count(self.port, reason)
        self._unsaid[reason] = self._unsaid.get(reason, 0) + 1

    def _say(self, now: float) -> None:
        """Log closed connections once a minute, so that a client cannot fill the log."""
        if now - self._said < _LOG_SECONDS:
            return
        for reason, count in self._unsaid.items():
            self._said = now
            if reason is Reason.IDLE:
                _log.info("%s: %d %s", self.port, count, _TEXTS[reason])
            else:
                _log.warning("%s: %d %s (%d may be open)", self.port, count, _TEXTS[reason], self.bound)
        self._unsaid.clear()
