"""Memory budget of all running requests: bodies as sent, decoded, and parsed into objects.

Each request has an account. Its memory is released when the request is over and no thread works on it any more.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from jobmeter.errors import LimitExceededError, ThrottledError

T = TypeVar("T")

_RETRY_MS = 1_000


class MemoryBudget:
    """Bytes that all running requests share. Thread-safe."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._in_use = 0
        self._refusals = 0

    @property
    def in_use(self) -> int:
        """Bytes in use."""
        return self._in_use

    @property
    def refusals(self) -> int:
        """Number of requests refused for lack of memory."""
        return self._refusals

    def check(self, size: int) -> None:
        """Raise ThrottledError if fewer bytes are free, LimitExceededError if the whole budget is smaller."""
        if size > self.size - self._in_use:
            with self._lock:
                self._refusals += 1
            raise self._make_refusal(size)

    def take(self, size: int) -> None:
        """Reserve bytes. Raises as ``check``."""
        with self._lock:
            if size <= self.size - self._in_use:
                self._in_use += size
                return
            self._refusals += 1
        raise self._make_refusal(size)

    def give_back(self, size: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._in_use -= size

    def open_account(self) -> "MemoryAccount":
        """Open an empty account for one request."""
        return MemoryAccount(self)

    def _make_refusal(self, size: int) -> LimitExceededError | ThrottledError:
        if size > self.size:
            return LimitExceededError(
                f"reading the body needs {size} bytes; the limit for all requests together is {self.size}", "body"
            )
        return ThrottledError("the running requests use all available memory, try again", _RETRY_MS)


class MemoryAccount:
    """Memory reserved by one request. Thread-safe."""

    __slots__ = ("_budget", "_closed", "_lock", "_taken", "_workers")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._taken = 0
        self._workers = 0
        self._closed = False

    @property
    def taken(self) -> int:
        """Bytes reserved by the request."""
        return self._taken

    def check(self, size: int) -> None:
        """Raise ThrottledError or LimitExceededError if ``size`` bytes are not free."""
        self._budget.check(size)

    def take(self, size: int) -> None:
        """Reserve bytes for the rest of the request. Raises as ``MemoryBudget.check``."""
        self._budget.take(size)
        with self._lock:
            self._taken += size

    def give_back(self, size: int) -> None:
        """Release some bytes before the request ends."""
        with self._lock:
            self._taken -= size
        self._budget.give_back(size)

    def run(self, work: Callable[[], T]) -> T:
        """Call the function; the request's memory stays reserved until it returns, even after ``close``.

        A thread continues after the client has disconnected.
        """
        with self._lock:
            self._workers += 1
        try:
            return work()
        finally:
            with self._lock:
                self._workers -= 1
            self._release()

    def close(self) -> None:
        """End the request: release all its memory as soon as no thread works on it any more."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        with self._lock:
            if not self._closed or self._workers:
                return
            size, self._taken = self._taken, 0
        self._budget.give_back(size)


def drop_frames(error: BaseException) -> None:
    """Clear the tracebacks of an exception and of its causes.

    Frames reference their local objects, such as the body of a request. A frame that references its own exception (in a
    task or a future) is freed only by the cyclic garbage collector, which may not run for a long time.
    """
    waiting: list[BaseException] = [error]
    cleared: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) not in cleared:
            cleared.add(id(one))
            one.__traceback__ = None
            waiting += [behind for behind in (one.__cause__, one.__context__) if behind is not None]
