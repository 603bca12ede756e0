"""The last day for which each series' descriptor was written, looked up for thousands of series at once."""

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.series_table import SeriesTable
from jobmeter.model.batch import Int64s, Uint64s


class WrittenDays(SeriesTable):
    """Series ids with a day each. Not safe for several threads."""

    def older(self, ids: Uint64s, days: Int64s) -> NDArray[np.intp]:
        """Return the positions whose stored day is missing or before the given one. Days below 0 are no days."""
        return np.flatnonzero((days >= 0) & (self.find(ids) < days))
