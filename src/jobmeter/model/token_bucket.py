"""The token bucket of every rate limit."""

import math


class TokenBucket:
    """A level that rises by ``per_second`` up to ``burst``, from which callers take. For one thread.

    The level may be negative: an overdraft. Times are monotonic seconds.
    """

    __slots__ = ("_moment", "burst", "level", "per_second")

    def __init__(self, per_second: float, burst: float, now: float) -> None:
        """Begin with a full bucket."""
        self.per_second = per_second
        self.burst = self.level = burst
        self._moment = now

    def fill(self, now: float) -> float:
        """Raise the level by the time since the last call. Return the level."""
        self.level = min(self.burst, self.level + max(0.0, now - self._moment) * self.per_second)
        self._moment = now
        return self.level

    def take(self, wanted: int, now: float) -> int:
        """Take up to ``wanted`` from the level, a whole number. Return the number taken."""
        taken = max(0, min(wanted, int(self.fill(now))))
        self.level -= taken
        return taken

    def wait_ms(self) -> int:
        """Return the time until the level is 1, in milliseconds; at least 1."""
        return wait_ms(self.level, self.per_second)


def wait_ms(level: float, per_second: float) -> int:
    """Return the time until a level is 1, in milliseconds; at least 1."""
    return max(1, math.ceil((1 - level) * 1000 / per_second))
