"""Pauses between attempts of failed work."""

from jobmeter.model.time import MINUTE, SECOND

LONGEST_MS = MINUTE


class Backoff:
    """Allows a retry at the next tick, then after 1, 2, 4, ... seconds, and at least once a minute.

    ``tick`` gets the time. Without a time, or with a clock that was set back, every tick may retry.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._failed_ms: int | None = None
        self._now_ms: int | None = None

    def tick(self, now_ms: int | None) -> None:
        """Begin a tick at that time (ms)."""
        self._now_ms = now_ms

    @property
    def due(self) -> bool:
        """True if this tick may retry."""
        if self._now_ms is None or self._failed_ms is None or self._failures < 2:
            return True
        wait = min(SECOND << min(self._failures - 2, 16), LONGEST_MS)
        return not 0 <= self._now_ms - self._failed_ms < wait

    def note_failure(self) -> None:
        """Note that the attempt of this tick failed."""
        self._failures += 1
        self._failed_ms = self._now_ms

    def note_success(self) -> None:
        """Reset the failures."""
        self._failures = 0
        self._failed_ms = None
