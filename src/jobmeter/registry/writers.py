"""Whose turn it is to write where only one may: keys take turns, whatever each of them has waiting."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager


class WriterQueue:
    """A lock that is handed from key to key: of each the writer that came first. Safe for any threads.

    A writer that has let go and comes again is behind every other key that waits.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._taken = False
        self._waiting: OrderedDict[str, deque[threading.Lock]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many writers wait."""
        with self._mutex:
            return sum(map(len, self._waiting.values()))

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Wait for a turn of that key; it ends with the block."""
        self._acquire(key)
        try:
            yield
        finally:
            self._release()

    def _acquire(self, key: str) -> None:
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            ticket = threading.Lock()
            ticket.acquire()
            self._waiting.setdefault(key, deque()).append(ticket)
        # Handed over by the current owner; the lock stays taken meanwhile.
        ticket.acquire()

    def _release(self) -> None:
        with self._mutex:
            if not self._waiting:
                self._taken = False
                return
            key, tickets = self._waiting.popitem(last=False)
            ticket = tickets.popleft()
            if tickets:
                self._waiting[key] = tickets
        ticket.release()
