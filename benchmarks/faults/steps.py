"""Samples of one source joined into steps, as a query joins them."""

import numpy as np

from jobmeter.diagnose.signal import Signal
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.query.gaps import Presence


class Steps:
    """Steps of ``step_ms`` over the samples at the positions ``selected``, int64[k], of ``time``, int64[n] in ms.

    Series that were sampled at the same times share an instance, so the steps are computed once.
    """

    def __init__(self, time: Int64s, selected: Int64s, step_ms: int) -> None:
        self._selected = selected
        read = time[selected]
        self._starts = np.flatnonzero(np.append(True, np.diff(read // step_ms) > 0)) if len(read) else selected
        self._count = np.diff(np.append(self._starts, len(read)))
        last = read[np.append(self._starts[1:], len(read)) - 1] if len(read) else read
        self._presence = Presence(read[self._starts], last, self._count)

    def sums(self, value: Float64s) -> Float64s:
        """Return the sum of a series' values in each step."""
        own = value[self._selected]
        return np.add.reduceat(own, self._starts) if len(own) else own

    def means(self, value: Float64s) -> Float64s:
        """Return the mean of a series' values in each step."""
        found: Float64s = self.sums(value) / self._count
        return found

    def signal(
        self, metric: str, value: Float64s, replica: str = "", node: str = "", device: str = "", part: str = ""
    ) -> Signal:
        """Return the values of the steps as a signal."""
        found = Signal(metric, self._presence.first, value, replica, node, device, part=part)
        return found.with_ends(self._presence.until)
