"""A lock for statements that change data: many inserts at once, or one statement that nothing may overtake."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobmeter.errors import UnavailableError


class StatementLock:
    """Lock that many inserts share, and that any other statement holds alone. New inserts wait for one that waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._exclusive = threading.Lock()  # locked while an exclusive use waits or runs

    @contextmanager
    def lock_shared(self) -> Iterator[None]:
        """Run an insert inside the block."""
        with self._exclusive, self._changed:
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def lock_exclusive(self, seconds: float | None = None) -> Iterator[None]:
        """Run no other statement during the block.

        Raises UnavailableError if the running ones take longer than some seconds; None waits for ever.
        """
        with self._exclusive:
            with self._changed:
                if not self._changed.wait_for(lambda: not self._sharing, seconds):
                    raise UnavailableError("questions that run now take too long")
            yield
