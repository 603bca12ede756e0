"""Stretches of time in which a condition was met, from points that stand for the interval behind them."""

import msgspec
import numpy as np

from jobmeter.model.batch import Bools, Int64s

GAP_INTERVALS = 3
"""A pause of more intervals than this ends a stretch (Omnistat: gap > 3 steps)."""


class Stretch(msgspec.Struct, frozen=True):
    """A time in which a condition was met: positions ``first`` to ``last``, inclusive, and ``[start, end)`` in ms."""

    first: int
    last: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """How long, in ms."""
        return self.end - self.start


def usual_interval(time: Int64s) -> int:
    """The median distance of ascending times, in ms; 0 for fewer than two."""
    distance = time[1:] - time[:-1]
    if not len(distance):
        return 0
    # A tenth of what NumPy's own median takes of so few; that one is floored here, too.
    middle = len(distance) // 2
    ordered = np.partition(distance, (middle - 1 + len(distance) % 2, middle))
    return int(ordered[middle - 1 + len(distance) % 2] + ordered[middle]) // 2


def sustained(time: Int64s, true: Bools, sustain_ms: float) -> list[Stretch]:
    """The stretches in which a condition was true without a pause for at least ``sustain_ms``.

    A point stands for the interval that follows it; a gap of more than three intervals is a pause.
    """
    if len(time) < 2 or not true.any():
        return []
    interval = usual_interval(time)
    broken = ~true[1:] | ~true[:-1] | (np.diff(time) > GAP_INTERVALS * interval)
    firsts = np.flatnonzero(true & np.append(True, broken))
    lasts = np.flatnonzero(true & np.append(broken, True))
    long_enough = time[lasts] + interval - time[firsts] >= sustain_ms
    return [
        Stretch(first, last, int(time[first]), int(time[last]) + interval)
        for first, last in zip(firsts[long_enough].tolist(), lasts[long_enough].tolist(), strict=True)
    ]
