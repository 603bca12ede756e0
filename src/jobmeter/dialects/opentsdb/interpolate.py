"""Interpolation of missing points.

https://opentsdb.net/docs/build/html/user_guide/query/aggregators.html#interpolation
"""

import numpy as np

from jobmeter.dialects.opentsdb.functions import Missing
from jobmeter.model.batch import Float64s, Int64s


def fill_in(time: Int64s, value: Float64s, times: Int64s, missing: Missing) -> Float64s:
    """The values of one series, whose points are (``time``, ``value``), at ``times``, which are sorted.

    NaN before its first point, after its last one, and where missing values are not replaced. ``time`` has at least one
    point.
    """
    after = np.searchsorted(time, times)
    exact = after < len(time)
    exact[exact] = time[after[exact]] == times[exact]
    found = np.full(len(times), np.nan)
    found[exact] = value[after[exact]]
    if missing is Missing.SKIP:
        return found
    between = ~exact & (after > 0) & (after < len(time))
    if missing is Missing.ZERO:
        found[between] = 0.0
        return found
    right = after[between]
    left = right - 1
    if missing is Missing.PREVIOUS:
        found[between] = value[left]
        return found
    part = (times[between] - time[left]) / (time[right] - time[left])
    found[between] = value[left] + part * (value[right] - value[left])
    return found
