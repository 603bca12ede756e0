"""Gives turns to writers of a database with a single writer: the keys of waiting writers take turns."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager


class WriterQueue:
    """A lock that passes from key to key, to the first waiting writer of each. Safe for any number of threads.

    A writer that returns is queued behind every other waiting key.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._taken = False
        self._waiting: OrderedDict[str, deque[threading.Lock]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Number of waiting writers."""
        with self._mutex:
            return sum(map(len, self._waiting.values()))

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Wait for a turn of that key, which ends with the block."""
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
        # The previous owner hands the lock over, and it stays taken meanwhile.
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
