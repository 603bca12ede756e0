"""A line of a job as a whole, with the time that each of its points stands for."""

import msgspec
import numpy as np

from jobmeter.model.batch import Float64s, Int64s

Interval = tuple[int, int]
"""``[start, end)`` in epoch milliseconds."""


class Course(msgspec.Struct, frozen=True, eq=False):
    """A line of a job as a whole: ``value`` float64[k] holds from ``time`` to ``until``, int64[k] ms, ascending."""

    time: Int64s
    until: Int64s
    value: Float64s

    def read_at(self, time: Int64s) -> Float64s:
        """Return the value at each time, NaN where nothing was measured."""
        if not len(self.time):
            return np.full(len(time), np.nan)
        place = np.searchsorted(self.time, time, side="right") - 1
        valid = (place >= 0) & (time < np.maximum(self.until, self.time + 1)[np.maximum(place, 0)])
        return np.where(valid, self.value[np.maximum(place, 0)], np.nan)
