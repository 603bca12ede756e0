"""Stretches of time in which a condition held, from points that represent the interval after them."""

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Bools, Int64s

GAP_INTERVALS = 3
"""Intervals without points after which a stretch ends (Omnistat: gap > 3 steps)."""

_ROUNDING = 1e-3
"""Tolerance in milliseconds for rounding in sums of times."""


class Stretch(msgspec.Struct, frozen=True):
    """Time in which a condition held: positions ``first`` to ``last``, inclusive, and ``[start, end)`` in ms."""

    first: int
    last: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """Length in ms."""
        return self.end - self.start

    @property
    def span(self) -> tuple[int, int]:
        """Start and end, in ms."""
        return self.start, self.end

    @property
    def points(self) -> slice:
        """Slice of its points."""
        return slice(self.first, self.last + 1)


def find_usual_interval(time: Int64s) -> int:
    """Return the median distance of ascending times in ms; 0 for fewer than two."""
    distance = time[1:] - time[:-1]
    if not len(distance):
        return 0
    # A tenth of the time of NumPy's median for few values; the result is floored.
    middle = len(distance) // 2
    ordered = np.partition(distance, (middle - 1 + len(distance) % 2, middle))
    return int(ordered[middle - 1 + len(distance) % 2] + ordered[middle]) // 2


def find_sustained(time: Int64s, true: Bools, sustain_ms: float) -> list[Stretch]:
    """Find the stretches in which a condition held without a pause for at least ``sustain_ms``.

    A point represents the interval that follows it; a gap of more than three intervals is a pause.
    """
    if len(time) < 2 or not true.any():
        return []
    interval = find_usual_interval(time)
    broken = ~true[1:] | ~true[:-1] | (np.diff(time) > GAP_INTERVALS * interval)
    firsts = np.flatnonzero(true & np.append(True, broken))
    lasts = np.flatnonzero(true & np.append(broken, True))
    long_enough = time[lasts] + interval - time[firsts] >= sustain_ms
    return [
        Stretch(first, last, int(time[first]), int(time[last]) + interval)
        for first, last in zip(firsts[long_enough].tolist(), lasts[long_enough].tolist(), strict=True)
    ]


def find_steady_stretches(time: Int64s, until: Int64s, true: Bools, hold_ms: float, share: float) -> list[Stretch]:
    """Find the stretches of at least ``hold_ms`` in which a condition was observed for ``share`` of the time.

    A point represents the time from ``time`` to ``until``, int64[n] each; the time between two points is unobserved. A
    stretch begins and ends with points at which the condition holds. It bridges exceptions and unobserved time of at
    most the rest of the hold time (``1 - share`` of it), single points, and unobserved time of up to three intervals.
    The stretches do not overlap and are in order of time.
    """
    if not true.any():
        return []
    width = until - time
    if int(width[true].sum()) < share * hold_ms:
        return []
    places = np.flatnonzero(true)
    rest = (1 - share) * hold_ms
    # Between two points at which it holds: the observed time, and the time observed not to hold.
    between = time[places[1:]] - until[places[:-1]]
    seen = np.cumsum(width)[places[1:] - 1] - np.cumsum(width)[places[:-1]]
    unseen = between - seen
    allowed = ((seen <= rest) | (np.diff(places) <= 2)) & (
        unseen <= max(rest, GAP_INTERVALS * find_usual_interval(time))
    )
    firsts = np.flatnonzero(np.append(True, ~allowed))
    lasts = np.append(firsts[1:] - 1, len(places) - 1)
    found: list[Stretch] = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        own = places[first : last + 1]
        if until[own[-1]] - time[own[0]] >= hold_ms:
            found += _find_densest(time, until, width, own, hold_ms, share)
    return sorted(found, key=lambda stretch: stretch.first)


def _find_densest(
    time: Int64s, until: Int64s, width: Int64s, places: NDArray[np.intp], hold_ms: float, share: float
) -> Iterator[Stretch]:
    """Yield the longest part of some true points that fills ``share`` of its time; then repeat on the rest."""
    pending = [places]
    while pending:
        own = pending.pop()
        if not len(own) or until[own[-1]] - time[own[0]] < hold_ms:
            continue
        # A part from i to j fills its share if its prefix sum is not below the sum before it.
        before = np.concatenate(([0.0], np.cumsum(width[own], dtype=np.float64)))
        start = before[:-1] - share * (time[own] - time[own[0]])
        end = before[1:] - share * (until[own] - time[own[0]])
        lowest = np.minimum.accumulate(start)
        first = np.searchsorted(-lowest, -end - _ROUNDING)
        length = until[own] - time[own[first]]
        last = int(np.argmax(length))
        if length[last] < hold_ms:
            continue
        at = int(first[last])
        yield Stretch(int(own[at]), int(own[last]), int(time[own[at]]), int(until[own[last]]))
        pending += [own[last + 1 :], own[:at]]
