"""Columns that every reader returns, and the error that names a position in a file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.record import JobRecord

NAME_COLUMNS = ("metric", "project", "cluster", "node", "device", "job_id", "replica")
"""Columns of names, in the order of a series descriptor."""
REQUIRED = ("job_id", "metric", "time", "value")
COLUMNS = ("job_id", "replica", "node", "device", "metric", "time", "value", "cluster", "project")
"""Every column that a file may have."""

Int32s = NDArray[np.int32]
Mask = NDArray[np.bool_]


class BadRowError(InvalidRequestError):
    """Row that cannot be imported; the message begins with its file, line (or row) and column."""

    def __init__(self, place: str, column: str, message: str) -> None:
        super().__init__(f"{place}, column {column}: {message}" if column else f"{place}: {message}", column)


@dataclass(frozen=True, slots=True, eq=False)
class RowNames:
    """Column of names, dictionary-encoded: row ``i`` is ``values[codes[i]]``; ``codes`` is int32[n]."""

    codes: Int32s
    values: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """``n`` samples of a file. ``names`` has the columns of ``NAME_COLUMNS`` that the file has.

    ``time`` int64[n] in epoch ms, ``value`` float64[n], finite. ``place`` returns the place of row ``i`` in the file.
    """

    names: Mapping[str, RowNames]
    time: Int64s
    value: Float64s
    place: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.time)

    def split(self, size: int) -> Iterator["Rows"]:
        """Split the rows into as few parts of at most ``size`` as possible, of about equal length."""
        count = -(-len(self) // size)
        if count <= 1:
            yield self
            return
        edges = [len(self) * part // count for part in range(count + 1)]
        for start, end in pairwise(edges):
            yield self.take(slice(start, end), np.arange(start, end))

    def filter(self, good: Mask) -> "Rows":
        """Select the rows where ``good`` (bool[n]) is true."""
        return self.take(good, np.flatnonzero(good))

    def take(self, which: slice | Mask, numbers: NDArray[np.intp]) -> "Rows":
        """Select rows; ``numbers`` are their positions."""
        place = self.place
        return replace(
            self,
            names={name: RowNames(column.codes[which], column.values) for name, column in self.names.items()},
            time=self.time[which],
            value=self.value[which],
            place=lambda row: place(int(numbers[row])),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Block of a file as read: samples, job records, and the number of skipped bad rows."""

    rows: Rows | None = None
    records: Sequence[JobRecord] = ()
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class RowSource:
    """File as named in errors and progress. ``skip_bad``: count bad rows instead of stopping at the first."""

    name: str
    skip_bad: bool = False
    batch_rows: int = 500_000

    def name_line(self, number: int) -> str:
        """Name a line of the file."""
        return f"{self.name}, line {number}"


def check_columns(source: RowSource, names: Sequence[str]) -> None:
    """Raise InvalidRequestError for a missing, repeated or unknown column."""
    for name in REQUIRED:
        if name not in names:
            raise InvalidRequestError(f"{source.name} has no column {name!r}; it has {', '.join(names)}", name)
    for name in names:
        if name not in COLUMNS:
            raise InvalidRequestError(f"{source.name}: column {name!r} is not one of {', '.join(COLUMNS)}", name)
        if list(names).count(name) > 1:
            raise InvalidRequestError(f"{source.name} has two columns {name!r}", name)
