"""Values of expressions over a grid of times: one row for each series, one column for each time."""

from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.promql.labels import Labels, drop_name, format_labels


class QueryError(InvalidRequestError):
    """Error of a query that its samples make ambiguous, for example by several matches."""


class Scalar(msgspec.Struct, frozen=True, eq=False):
    """A number for each time: ``values`` float64[times]."""

    values: Float64s


class String(msgspec.Struct, frozen=True, eq=False):
    """A text."""

    value: str


class Vector(msgspec.Struct, frozen=True, eq=False):
    """Series with at most one value for each time.

    ``values`` and ``present`` have the shape [series, times]; a value that is not present is undefined. ``times`` are
    the times of the samples in ms, for values that are samples.
    """

    labels: list[Labels]
    values: Float64s
    present: Bools
    times: Int64s | None = None
    ordered: bool = False
    """True if the order of the rows is part of the answer."""
    unnamed: Bools | None = None
    """Mask of the rows whose metric name is dropped at the end of the query, because a function changed their meaning.
    """

    def select_rows(self, at: Int64s | Sequence[int]) -> "Vector":
        """Return some of the rows, in this order."""
        index = np.asarray(at, np.int64)
        return Vector(
            [self.labels[one] for one in index.tolist()],
            self.values[index],
            self.present[index],
            None if self.times is None else self.times[index],
            self.ordered,
            None if self.unnamed is None else self.unnamed[index],
        )

    def replace_values(self, values: Float64s, present: Bools | None = None) -> "Vector":
        """Return the same series with other values."""
        kept = self.present if present is None else present
        return Vector(self.labels, values, kept, ordered=self.ordered, unnamed=self.unnamed)

    def transform(self, values: Float64s, present: Bools | None = None) -> "Vector":
        """Return the series with values of another meaning, marked to lose their metric name."""
        kept = self.present if present is None else present
        return Vector(self.labels, values, kept, unnamed=np.ones(len(self.labels), bool))

    def relabel(self, labels: list[Labels], renamed: Sequence[bool] = ()) -> "Vector":
        """Return the values under other labels. ``renamed`` marks rows with a new name, which they keep."""
        unnamed = self.unnamed
        if unnamed is not None and len(renamed):
            unnamed = unnamed & ~np.array(renamed, bool)
        return Vector(labels, self.values, self.present, ordered=self.ordered, unnamed=unnamed)


Value = Scalar | String | Vector


def make_empty_vector(times: int) -> Vector:
    """Return a vector without series."""
    return Vector([], np.empty((0, times)), np.empty((0, times), bool))


def resolve_names(vector: Vector) -> Vector:
    """Drop the names that functions made void, and join rows that then have equal labels at different times.

    Raises QueryError if two series then have equal labels at the same time.
    """
    if vector.unnamed is None:
        return merge_rows(vector)
    rows = zip(vector.labels, vector.unnamed.tolist(), strict=True)
    labels = [drop_name(one) if drop else one for one, drop in rows]
    return merge_rows(Vector(labels, vector.values, vector.present, vector.times, vector.ordered))


def merge_rows(vector: Vector) -> Vector:
    """Join rows with equal labels. Raises QueryError if two of them have a value at the same time."""
    if len(set(vector.labels)) == len(vector.labels):
        return vector
    rows: dict[Labels, int] = {}
    target = np.array([rows.setdefault(one, len(rows)) for one in vector.labels])
    values = np.full((len(rows), vector.values.shape[1]), np.nan)
    present = np.zeros(values.shape, bool)
    for row, into in enumerate(target.tolist()):
        chosen = vector.present[row]
        if (present[into] & chosen).any():
            raise QueryError(
                f"vector cannot contain metrics with the same labelset: {format_labels(vector.labels[row])}"
            )
        values[into, chosen] = vector.values[row, chosen]
        present[into] |= chosen
    return Vector(list(rows), values, present, ordered=vector.ordered)


def drop_absent(vector: Vector) -> Vector:
    """Return the rows that have at least one value."""
    if vector.present.all():  # quicker than row by row
        return vector
    some = vector.present.any(axis=1)
    return vector if some.all() else vector.select_rows(np.nonzero(some)[0])
