"""Budget of CPU time for work of unknown size."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class MeasuringBudget:
    """Allows one thread a share of a core over time.

    ``share``: CPU seconds per second; ``burst_seconds``: CPU seconds that may be spent at once after a pause. ``clock``
    returns elapsed seconds, ``cpu`` the CPU seconds of the thread.
    """

    share: float
    burst_seconds: float
    clock: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.thread_time
    _spent: float = 0.0
    """CPU seconds spent of the burst."""
    _at: float | None = None
    _began: float = 0.0

    def begin(self) -> None:
        """Start accounting. Call before the work, on its thread."""
        now = self.clock()
        if self._at is not None:
            self._spent = max(self._spent - (now - self._at) * self.share, 0.0)
        self._at = now
        self._began = self.cpu()

    @property
    def left(self) -> float:
        """CPU seconds left for the work; negative after an overrun."""
        return self.burst_seconds - self._spent - (self.cpu() - self._began)

    def end(self) -> float:
        """Stop accounting. Return the seconds until the budget is even again."""
        left = self.left
        self._spent = self.burst_seconds - left
        return max(-left, 0.0) / self.share
