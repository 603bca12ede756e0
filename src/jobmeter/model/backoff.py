"""Waits between attempts."""

import random
from collections.abc import Callable

_RANDOM = random.Random()  # noqa: S311 - of its own: the shared one belongs to the program


def compute_backoff(
    failures: int, first: float, longest: float, fraction: Callable[[], float] = _RANDOM.random
) -> float:
    """Seconds until the next attempt after ``failures`` failures in a row, 1 or more.

    The wait doubles with each failure, from ``first`` up to ``longest``. Half of it is random, so that clients that
    failed together do not retry together. ``fraction`` returns numbers from 0 to 1.
    """
    whole = min(first * 2.0 ** min(failures - 1, 64), longest)
    return whole * (0.5 + fraction() / 2)
