"""Numbers for series, so that their properties lie in arrays: batches of interned series need no objects."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Float64s, Int64s, SampleBatch, SeriesKeys, Uint32s, Uint64s
from jobmeter.model.series import Series

T = TypeVar("T", bound=np.generic)
MOST, MOST_BYTES = 1_000_000, 2**30
_SERIES_BYTES = 600
"""Approximate bytes of a series besides the text of its labels."""
_FIRST = 1_024


class SeriesInterner:
    """Every series since the interner was created, numbered from 0. Thread-safe.

    Series are never removed: a full interner is replaced by an empty one (see ``current``), and lives as long as a
    batch that refers to it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Series, int] = {}
        self._series: list[Series] = []
        self._bytes = 0
        self._job: Uint64s = np.empty(_FIRST, np.uint64)
        self._id: Uint64s = np.empty(_FIRST, np.uint64)

    def __len__(self) -> int:
        return len(self._series)

    @property
    def full(self) -> bool:
        """True if it should be replaced by an empty one."""
        return len(self._series) >= MOST or self._bytes >= MOST_BYTES

    def numbers(self, series: Sequence[Series]) -> Int64s:
        """Return the number of each series, int64[n]; new series get the next numbers."""
        with self._lock:
            numbers = self._numbers
            for one in series:
                if one not in numbers:
                    self._add(one)
            return np.fromiter(map(numbers.__getitem__, series), np.int64, len(series))

    def series(self, numbers: Int64s) -> list[Series]:
        """Return the series with these numbers."""
        series = self._series
        return [series[number] for number in numbers.tolist()]

    def keys(self, numbers: Int64s) -> SeriesKeys:
        """Return the keys of the series with these numbers."""
        return SeriesKeys(self._job[numbers], self._id[numbers])

    def _add(self, one: Series) -> None:
        number = len(self._series)
        if number == len(self._job):
            # New arrays: a reader holds either the old ones or these, and finds its series in both.
            self._job, self._id = (np.concatenate((series, np.empty_like(series))) for series in (self._job, self._id))
        self._job[number], self._id[number] = one.job_key, one.id
        self._series.append(one)
        self._bytes += _SERIES_BYTES + sum(len(name) + len(value) for name, value in one.labels)
        self._numbers[one] = number


class SeriesList(Sequence[Series]):
    """Different series of one interner: ``numbers`` int64[n], each once. The objects are looked up on demand.

    A sender that repeats a list of series gets the identical list object. ``derived`` works as in ``SeriesKeys``.
    """

    __slots__ = ("_keys", "_series", "derived", "interner", "numbers")

    def __init__(self, interner: SeriesInterner, numbers: Int64s) -> None:
        self.interner = interner
        self.numbers = numbers
        self.derived: dict[object, Any] = {}
        self._keys: SeriesKeys | None = None
        self._series: list[Series] | None = None

    @property
    def keys(self) -> SeriesKeys:
        """Keys in the order of the series."""
        if self._keys is None:
            self._keys = self.interner.keys(self.numbers)
        return self._keys

    def take(self, places: Int64s) -> "SeriesList":
        """Select series, each once."""
        return SeriesList(self.interner, self.numbers[places])

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Series: ...
    @overload
    def __getitem__(self, at: slice) -> list[Series]: ...
    def __getitem__(self, at: int | slice) -> Series | list[Series]:
        """Return a series, or a list of series for a slice."""
        if self._series is None:
            self._series = self.interner.series(self.numbers)
        return self._series[at]

    def __iter__(self) -> Iterator[Series]:
        return iter(self[:])


def make_batch(series: SeriesList, index: Uint32s, time: Int64s, value: Float64s) -> SampleBatch:
    """Build a batch of these series with computed keys."""
    return SampleBatch(series, index, time, value, series.keys)


def series_of(batch: SampleBatch) -> SeriesList:
    """Return the list of a batch's interned series."""
    series = batch.series
    if not isinstance(series, SeriesList):
        raise TypeError("the series of the batch have no numbers")
    return series


def grow(column: NDArray[T], count: int, fill: float) -> NDArray[T]:
    """Grow a column to at least ``count`` rows, at least twice its size; new rows are ``fill``."""
    more = max(count - len(column), len(column))
    return np.concatenate((column, np.full(more, fill, column.dtype)))


class _Current:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interner = SeriesInterner()

    def get(self) -> SeriesInterner:
        with self._lock:
            if self._interner.full:
                self._interner = SeriesInterner()
            return self._interner


current = _Current().get
"""Current interner of this process, replaced when full: columns by number check for a change."""
