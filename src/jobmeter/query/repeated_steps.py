"""Which time of a job repeats steps that it had made before a restart: those since its last checkpoint."""

from collections.abc import Sequence

import numpy as np

from jobmeter.query.course import Course, Interval

_BACK = 0.5
"""Numbers that fall below this share of the highest one within an attempt start again, with each epoch say."""


def repeated_steps(steps: Course | None, attempts: Sequence[Interval]) -> list[Interval] | None:
    """Return for each attempt but the first the interval from its start until it passes the highest step before it.

    ``steps`` are numbers of steps as the program reported them. None where they cannot say it: there are none of an
    attempt, or they start again within one. An attempt that repeats nothing has no interval.
    """
    found: list[Interval] = []
    highest = -np.inf
    for start, end in attempts:
        part = slice(*np.searchsorted(steps.time, (start, end)).tolist()) if steps is not None else slice(0, 0)
        if steps is None or not len(steps.time[part]):
            return None
        value = steps.value[part]
        if (value < _BACK * np.maximum.accumulate(value)).any():
            return None
        new = np.flatnonzero(value > highest)
        until = int(steps.time[part][new[0]]) if len(new) else end
        if np.isfinite(highest) and until > start and value[0] <= highest:
            found.append((start, until))
        highest = max(highest, float(value.max()))
    return found
