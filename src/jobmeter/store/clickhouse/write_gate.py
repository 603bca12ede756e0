"""A gate for writes: while it is closed, the stored data do not change."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobmeter.errors import UnavailableError

_RETRY_AFTER_MS = 2_000


class WriteGate:
    """Open from construction on. Safe for any number of threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writers = 0
        self._reason = ""

    @contextmanager
    def admit_write(self) -> Iterator[None]:
        """Run a write inside the block. Raises UnavailableError while the gate is closed."""
        with self._changed:
            self.check()
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    def check(self) -> None:
        """Raise UnavailableError while the gate is closed."""
        if self._reason:
            raise UnavailableError(self._reason, _RETRY_AFTER_MS)

    def close(self, reason: str) -> str:
        """Refuse new writes with a reason, and wait for the running ones. Return the reason before; empty for none."""
        with self._changed:
            before, self._reason = self._reason, reason
            self._changed.wait_for(lambda: not self._writers)
        return before

    def reset(self, reason: str) -> None:
        """Accept writes, or refuse them with another reason that is not empty."""
        with self._changed:
            self._reason = reason
