"""Sorts columns into the order of the query, and removes duplicate samples."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import SeriesKeys, Uint32s, Uint64s, find_runs

Positions = NDArray[np.intp]


class Order(msgspec.Struct, frozen=True, eq=False):
    """The mapping between the engine's order (job, series) and the caller's order of keys.

    ``keys``: the caller's keys in the engine's order. ``position``: the position of each of these in the caller's
    order.
    """

    keys: SeriesKeys
    position: Positions
    by_series: Positions

    @classmethod
    def from_keys(cls, keys: SeriesKeys) -> "Order":
        """Compute the order of some keys."""
        position = np.lexsort((keys.series, keys.job))
        ordered = keys.select(position)
        return cls(ordered, position, np.argsort(keys.series, kind="stable"))

    @property
    def same(self) -> bool:
        """True if the caller's order is the engine's."""
        return bool((self.position[1:] > self.position[:-1]).all())

    def index_rows(self, series: Uint64s, keys: SeriesKeys) -> Uint32s:
        """Return the caller's index of each row; ``series`` comes in long runs and has only series of ``keys``."""
        starts = find_runs(series)
        found = np.searchsorted(keys.series, series[starts], sorter=self.by_series)
        lengths = np.diff(np.append(starts, len(series)))
        return np.repeat(self.by_series[found].astype(np.uint32), lengths)


def find_latest(index: NDArray[np.generic], time: NDArray[np.int64], block: NDArray[np.uint64]) -> Positions | None:
    """Return the row of the highest block in each run of equal (index, time); None if every run has a single row.

    Rows of equal (index, time) follow one another, in any order of their blocks.
    """
    again = (time[1:] == time[:-1]) & (index[1:] == index[:-1])
    if not again.any():
        return None
    ends = np.flatnonzero(np.append(~again, True))
    run = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
    return np.lexsort((block, run))[ends]
