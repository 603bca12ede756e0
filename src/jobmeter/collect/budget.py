"""Budget of CPU time for work of unknown size."""

import time
from collections.abc import Callable


class MeasuringBudget:
    """Allows one thread a share of a core over time."""

    def __init__(
        self,
        share: float,
        burst_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """``share``: CPU seconds per second; ``burst_seconds``: CPU seconds that may be spent at once after a pause.

        ``clock`` returns elapsed seconds, ``cpu`` the CPU seconds of the thread.
        """
        self._share = share
        self._burst = burst_seconds
        self._clock = clock
        self._cpu = cpu
        self._left = burst_seconds
        self._at: float | None = None
        self._began = 0.0

    def begin(self) -> None:
        """Start accounting. Call before the work, on its thread."""
        now = self._clock()
        if self._at is not None:
            self._left = min(self._left + (now - self._at) * self._share, self._burst)
        self._at = now
        self._began = self._cpu()

    @property
    def left(self) -> float:
        """CPU seconds left for the work; negative after an overrun."""
        return self._left - (self._cpu() - self._began)

    def end(self) -> float:
        """Stop accounting. Return the seconds until the budget is even again."""
        self._left = self.left
        return max(-self._left, 0.0) / self._share
