"""Sorts columns into the order of the query, each sample once."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import SampleColumns, SeriesKeys, Uint32s, Uint64s

Positions = NDArray[np.intp]


class Order(msgspec.Struct, frozen=True, eq=False):
    """How the engine's order (job, series) and the caller's order of keys belong together.

    ``keys``: the caller's keys in the engine's order. ``position``: for each of these its place in the caller's order.
    """

    keys: SeriesKeys
    position: Positions
    by_series: Positions

    @classmethod
    def of(cls, keys: SeriesKeys) -> "Order":
        """The order of some keys."""
        position = np.lexsort((keys.series, keys.job))
        ordered = keys.where(position)
        return cls(ordered, position, np.argsort(keys.series, kind="stable"))

    @property
    def same(self) -> bool:
        """True when the caller's order is the engine's."""
        return bool((self.position[1:] > self.position[:-1]).all())

    def index_of(self, series: Uint64s, keys: SeriesKeys) -> Uint32s:
        """The caller's index of each row; ``series`` comes in long runs and has only series of ``keys``."""
        starts = run_starts(series)
        found = np.searchsorted(keys.series, series[starts], sorter=self.by_series)
        lengths = np.diff(np.append(starts, len(series)))
        return np.repeat(self.by_series[found].astype(np.uint32), lengths)


def run_starts(values: NDArray[np.generic]) -> Positions:
    """Where each run of equal values begins."""
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1]))) if len(values) else np.empty(0, np.intp)


def last_of_each(index: NDArray[np.generic], time: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """True for the last row of each run of equal (index, time); None when every row is the only one."""
    again = time[1:] == time[:-1]
    if not again.any():
        return None
    again &= index[1:] == index[:-1]
    if not again.any():
        return None
    return np.append(~again, True)


def latest(index: NDArray[np.generic], time: NDArray[np.int64], block: NDArray[np.uint64]) -> Positions | None:
    """Where the row of the highest block of each run of equal (index, time) is; None when every row is the only one.

    Rows of equal (index, time) follow one another, in any order of their blocks.
    """
    single = last_of_each(index, time)
    if single is None:
        return None
    ends = np.flatnonzero(single)
    run = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
    return np.lexsort((block, run))[ends]


def by_index(columns: SampleColumns) -> SampleColumns:
    """The rows sorted by index; rows of one index stay in their order."""
    order = np.argsort(columns.index, kind="stable")
    return columns.where(order)
