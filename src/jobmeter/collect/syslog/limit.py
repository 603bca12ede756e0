"""A rate limit on the lines of a source."""

from collections.abc import Callable


class LineRate:
    """A bucket of lines that fills at ``rate`` a second up to ten seconds' lines. For one thread."""

    def __init__(self, rate: float, monotonic: Callable[[], float]) -> None:
        self.rate = rate
        self._monotonic = monotonic
        self._lines = 10 * rate
        self._at = monotonic()

    def take(self, wanted: int) -> int:
        """How many of ``wanted`` lines may pass now."""
        now = self._monotonic()
        self._lines = min(self._lines + (now - self._at) * self.rate, 10 * self.rate)
        self._at = now
        taken = min(wanted, int(self._lines))
        self._lines -= taken
        return taken
