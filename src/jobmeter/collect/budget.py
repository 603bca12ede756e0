"""A budget of CPU time for work that could take any amount of it."""

import time
from collections.abc import Callable


class Budget:
    """Allows a thread a share of one core over time. For that thread alone."""

    def __init__(
        self,
        share: float,
        burst_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """``share``: CPU seconds a second; ``burst_seconds`` of them may be spent at once after a pause.

        ``clock`` gives seconds that pass, ``cpu`` those that the thread has computed.
        """
        self._share = share
        self._burst = burst_seconds
        self._clock = clock
        self._cpu = cpu
        self._left = burst_seconds
        self._at: float | None = None
        self._began = 0.0

    def begin(self) -> None:
        """Call this before the work, in the thread that does it."""
        now = self._clock()
        if self._at is not None:
            self._left = min(self._left + (now - self._at) * self._share, self._burst)
        self._at = now
        self._began = self._cpu()

    @property
    def left(self) -> float:
        """CPU seconds that the work may still take; negative where it has taken more."""
        return self._left - (self._cpu() - self._began)

    def end(self) -> float:
        """Call this after the work; gives the seconds until the budget is even again."""
        self._left = self.left
        return max(-self._left, 0.0) / self._share
