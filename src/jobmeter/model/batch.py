"""Samples as columns: the only form in which measurements travel inside the server."""

from collections.abc import Sequence
from math import isfinite, nan
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import astuple, force_setattr
from numpy.typing import NDArray

from jobmeter.model.series import Series

Uint64s = NDArray[np.uint64]
Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Uint32s = NDArray[np.uint32]
Uint8s = NDArray[np.uint8]
Bools = NDArray[np.bool_]

NEVER = -1
"""Time of a sample that does not exist."""


def mark_first_rows(*keys: NDArray[Any]) -> Bools:
    """Return bool[n]: True for the first row, and for each row with other keys than the row before."""
    marks = np.ones(len(keys[0]), np.bool_)
    np.not_equal(keys[0][1:], keys[0][:-1], out=marks[1:])
    for key in keys[1:]:
        marks[1:] |= key[1:] != key[:-1]
    return marks


def mark_last_rows(*keys: NDArray[Any]) -> Bools:
    """Return bool[n]: True for the last row, and for each row with other keys than the next row."""
    return np.append(mark_first_rows(*keys)[1:], True)[: len(keys[0])]


def find_runs(*keys: NDArray[Any]) -> NDArray[np.intp]:
    """Return int[k]: the first row of each run of rows with equal keys."""
    return np.flatnonzero(mark_first_rows(*keys))


class SeriesKeys(msgspec.Struct, frozen=True, eq=False):
    """Keys of series to read: ``job`` and ``series`` are uint64[k], pair by pair, each pair once.

    Callers that repeat a list of series pass the identical object. ``derived`` caches results that others computed from
    it, each under its own key; it lives as long as the list.
    """

    job: Uint64s
    series: Uint64s
    derived: dict[object, Any] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.series)

    @classmethod
    def from_series(cls, series: Sequence[Series]) -> "SeriesKeys":
        """Build the keys of some series, in order."""
        return cls(
            np.fromiter((s.job_key for s in series), np.uint64, len(series)),
            np.fromiter((s.id for s in series), np.uint64, len(series)),
        )

    def select(self, rows: NDArray[np.integer[Any]] | Bools | slice) -> "SeriesKeys":
        """Select keys."""
        return SeriesKeys(self.job[rows], self.series[rows])

    def list_jobs(self) -> list[int]:
        """Distinct job keys, ascending."""
        return sorted(set(self.job.tolist()))


class SampleBatch(msgspec.Struct, frozen=True, eq=False):
    """``n`` samples of ``len(series)`` series, in any order, possibly with repetitions (the later row wins).

    ``index``: uint32[n], the position of a row's series in ``series``. ``time``: int64[n], milliseconds since the
    epoch. ``value``: float64[n], in the catalogue's unit, finite. The arrays are not changed after construction.
    ``existing_keys``, ``existing_span``, ``existing_single`` and ``existing_extremes`` are the properties ``keys``,
    ``span``, ``single`` and ``extremes`` if already computed.
    """

    series: Sequence[Series]
    index: Uint32s
    time: Int64s
    value: Float64s
    existing_keys: SeriesKeys | None = None
    existing_span: tuple[int, int] | None = None
    existing_single: bool | None = None
    existing_extremes: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self.time)

    @property
    def span(self) -> tuple[int, int]:
        """First and last time of a non-empty batch, computed once."""
        if self.existing_span is None:
            force_setattr(self, "existing_span", (int(self.time.min()), int(self.time.max())))
        assert self.existing_span is not None  # noqa: S101 - set above
        return self.existing_span

    @property
    def single(self) -> bool:
        """True if the batch has one sample per series, in order, as in nearly all requests; computed once."""
        if self.existing_single is None:
            index = self.index
            ordered = len(index) == len(self.series) > 0 and not int(index[0]) and bool((index[1:] > index[:-1]).all())
            force_setattr(self, "existing_single", ordered)
        return bool(self.existing_single)

    @property
    def extremes(self) -> tuple[float, float]:
        """Lowest and highest value of a non-empty batch; twice NaN if a value is not finite."""
        if self.existing_extremes is not None:
            return self.existing_extremes
        lowest, highest = float(self.value.min()), float(self.value.max())
        return (lowest, highest) if isfinite(lowest) and isfinite(highest) else (nan, nan)

    @property
    def keys(self) -> SeriesKeys:
        """Keys of ``series``, computed once."""
        if self.existing_keys is None:
            force_setattr(self, "existing_keys", SeriesKeys.from_series(self.series))
        assert self.existing_keys is not None  # noqa: S101 - set above
        return self.existing_keys


class SampleColumns(msgspec.Struct, frozen=True, eq=False):
    """Raw samples read from a store: sorted by (index, time), each (index, time) once.

    ``index``: uint32[n], position in the requested ``SeriesKeys``. ``time``: int64[n] ms. ``value``: float64[n].
    """

    index: Uint32s
    time: Int64s
    value: Float64s

    def __len__(self) -> int:
        return len(self.time)

    def select(self, rows: Bools | NDArray[np.intp] | slice) -> "SampleColumns":
        """Select rows."""
        return SampleColumns(self.index[rows], self.time[rows], self.value[rows])

    @classmethod
    def make_empty(cls) -> "SampleColumns":
        """Build empty columns."""
        return cls(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64))

    @classmethod
    def concatenate(cls, parts: "Sequence[SampleColumns]") -> "SampleColumns":
        """Concatenate blocks."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.make_empty()
        return cls(
            np.concatenate([part.index for part in parts]),
            np.concatenate([part.time for part in parts]),
            np.concatenate([part.value for part in parts]),
        )


class BucketColumns(msgspec.Struct, frozen=True, eq=False):
    """Statistics of each (series, bucket) with at least one sample: sorted by (index, time), each pair once.

    ``index`` uint32[n]; ``time`` int64[n], the bucket's start in ms; ``count`` uint64[n]; ``sum minimum maximum first
    last`` float64[n], ``first_time last_time`` int64[n] ms. For counters ``increase`` float64[n] is the growth since
    the reference sample (the last one before the bucket, else the bucket's first; resets count from zero), and
    ``elapsed`` int64[n] ms the time from that reference to ``last_time``; for gauges both are 0.
    """

    index: Uint32s
    time: Int64s
    count: Uint64s
    sum: Float64s
    minimum: Float64s
    maximum: Float64s
    first: Float64s
    first_time: Int64s
    last: Float64s
    last_time: Int64s
    increase: Float64s
    elapsed: Int64s

    def __len__(self) -> int:
        return len(self.time)

    def select(self, rows: NDArray[np.integer[Any]] | Bools | slice) -> "BucketColumns":
        """Select rows."""
        return BucketColumns(*(column[rows] for column in astuple(self)))

    @classmethod
    def make_empty(cls) -> "BucketColumns":
        """Build empty columns."""
        value, time = np.empty(0), np.empty(0, np.int64)
        index, count = np.empty(0, np.uint32), np.empty(0, np.uint64)
        return cls(index, time, count, value, value, value, value, time, value, time, value, time)


class References(msgspec.Struct, eq=False):
    """Last sample of each series so far: the reference for the next increase of a counter.

    ``time`` int64[k] ms (``NEVER`` without a sample), ``value`` float64[k]. Updated in place, block by block in order
    of time.
    """

    time: Int64s
    value: Float64s

    @classmethod
    def make_empty(cls, count: int) -> "References":
        """Build references without samples for ``count`` series."""
        return cls(np.full(count, NEVER, np.int64), np.zeros(count))

    def update(self, index: Uint32s, time: Int64s, value: Float64s) -> None:
        """Take the last sample of each series; the columns are sorted by (index, time)."""
        ends = np.flatnonzero(mark_last_rows(index))
        self.time[index[ends]] = time[ends]
        self.value[index[ends]] = value[ends]

    def copy(self) -> "References":
        """Return an independent copy."""
        return References(self.time.copy(), self.value.copy())

    def become(self, other: "References") -> None:
        """Assign the contents of another instance."""
        self.time[:], self.value[:] = other.time, other.value
