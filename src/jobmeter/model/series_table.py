"""The table of series: a row for each series in use, whose properties are columns of arrays."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import LimitExceededError
from jobmeter.kernel.number_table import Allocate, NumberTable, allocate_zeros
from jobmeter.model.batch import Bools, Float64s, Int64s, SampleBatch, SeriesKeys, Uint32s, Uint64s
from jobmeter.model.series import Series

T = TypeVar("T", bound=np.generic)
Names = NDArray[np.object_]
"""Series objects."""

MOST, MOST_BYTES = 1_000_000, 2**30
_SERIES_BYTES = 600
"""Approximate bytes of a series object besides the text of its labels."""


class SeriesList(Sequence[Series]):
    """Different series with their keys, each once.

    A sender that repeats a list of series gets the identical list object, and with it ``keys.derived``.
    """

    __slots__ = ("keys", "names")

    def __init__(self, names: Names, keys: SeriesKeys) -> None:
        self.names = names
        self.keys = keys

    def take(self, places: Int64s) -> "SeriesList":
        """Select series, each once."""
        return SeriesList(self.names[places], self.keys.select(places))

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Series: ...
    @overload
    def __getitem__(self, at: slice) -> list[Series]: ...
    def __getitem__(self, at: int | slice) -> Series | list[Series]:
        """Return a series, or a list of series for a slice."""
        found: Series | list[Series] = self.names[at].tolist() if isinstance(at, slice) else self.names[at]
        return found

    def __iter__(self) -> Iterator[Series]:
        return iter(self[:])


class SeriesTable:
    """At most ``most`` series by their ids, with a row each. ``column`` adds a property of all series: 0 at first.

    A row belongs to its series until ``generation`` changes: a full table drops all series but those in the window
    (``there``), and others get their rows. Hold ``lock`` from the look-up of rows to the end of their use. A column
    takes memory for rows that were in use.

    ``ids`` uint64 and ``there`` bool, by row, and the numbers of rows lie in arrays of ``allocate``, which never move.
    Another process may read these without the lock: see ``NumberTable``.
    """

    def __init__(self, most: int = MOST, allocate: Allocate = allocate_zeros) -> None:
        self.lock = threading.RLock()
        self.generation = 0
        self.most = most
        self.allocate = allocate
        self.end = 0
        """Number of rows that were ever in use."""
        self._rows = NumberTable(most, allocate)
        self.ids: Uint64s = allocate(most, np.uint64)
        self.there: Bools = allocate(most, np.bool_)
        self._free: Int64s = np.empty(0, np.int64)
        self._columns: list[NDArray[Any]] = []
        self._names: Names = np.empty(0, np.object_)
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, ids: Uint64s) -> Int64s:
        """Return the row of each series, int64[k], -1 for an unknown series."""
        return self._rows.find(ids)

    def add_column(self, kind: type[T]) -> NDArray[T]:
        """Add a property of each series, by row."""
        self._columns.append(allocate_zeros(self.most, kind))
        return self._columns[-1]

    def assign_rows(self, ids: Uint64s) -> Int64s:
        """Return the row of each series, int64[k]. New series get rows. The caller holds ``lock``.

        Raises LimitExceededError for more series than a table without others has room for.
        """
        rows = self._rows.find(ids)
        if not len(rows) or int(rows.min()) >= 0:
            return rows
        new = np.unique(ids[rows < 0])
        if len(self) + len(new) > self.most:
            self._evict()
            new = np.unique(ids[self._rows.find(ids) < 0])
            if len(self) + len(new) > self.most:
                raise LimitExceededError(f"{len(new)} new series are too many at once", "series")
        again, self._free = self._free[: len(new)], self._free[len(new) :]
        fresh = np.arange(self.end, self.end + len(new) - len(again))
        self.end += len(fresh)
        added = np.concatenate((again, fresh))
        self.ids[added] = new
        self._rows.put(new, added)
        return self._rows.find(ids)

    def intern(self, series: Sequence[Series]) -> SeriesList:
        """Return the objects that the table has for these series, and their keys; series may repeat."""
        keys = SeriesKeys.from_series(series)
        with self.lock:
            if self._bytes >= MOST_BYTES:
                self._evict()
            rows = self.assign_rows(keys.series)
            if self.end > len(self._names):
                self._names = grow(self._names, self.end, None)
            names = self._names
            for row, one in zip(rows.tolist(), series, strict=True):
                if names[row] is None:
                    names[row] = one
                    self._bytes += _SERIES_BYTES + sum(len(name) + len(value) for name, value in one.labels)
            return SeriesList(names[rows], keys)

    def _evict(self) -> None:
        """Drop all objects of series, and all series but those in the window."""
        outside = ~self.there[: self.end]
        outside[self._free] = False
        gone = np.flatnonzero(outside)
        self._rows.remove(self.ids[gone])
        self._free = np.concatenate((self._free, gone))
        for column in self._columns:
            column[gone] = 0
        self._names[:] = None
        self._bytes = 0
        self.generation += 1


def grow(column: NDArray[T], count: int, fill: Any) -> NDArray[T]:  # noqa: ANN401 - a number of the column's type
    """Grow a column to at least ``count`` rows, at least twice its size; new rows are ``fill``."""
    more = max(count - len(column), len(column))
    return np.concatenate((column, np.full(more, fill, column.dtype)))


def find_distinct(series: SeriesList) -> tuple[SeriesList, Uint32s | None]:
    """Return the series of a list, each once, and the position of each entry among them.

    The positions are None if no series repeats.
    """
    ids = np.sort(series.keys.series)
    if not (ids[1:] == ids[:-1]).any():
        return series, None
    _, first, places = np.unique(series.keys.series, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.uint32)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    return series.take(first[order]), rank[places]


def make_batch(series: SeriesList, index: Uint32s, time: Int64s, value: Float64s) -> SampleBatch:
    """Build a batch of these series with computed keys."""
    return SampleBatch(series, index, time, value, series.keys)


def list_series(batch: SampleBatch) -> SeriesList:
    """Return the list of a batch's series, each once."""
    series = batch.series
    if not isinstance(series, SeriesList):
        raise TypeError("the series of the batch have no keys")
    return series


def list_of(series: Sequence[Series]) -> SeriesList:
    """Make a list of series, which may repeat until ``find_distinct``."""
    if isinstance(series, SeriesList):
        return series
    return SeriesList(np.fromiter(series, np.object_, len(series)), SeriesKeys.from_series(series))
