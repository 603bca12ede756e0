"""Aggregations: series joined by the labels that they share."""

import hashlib
import math
from collections.abc import Callable

import numpy as np

from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.promql.labels import Labels, drop_labels, keep_labels, set_label
from jobmeter.promql.nodes import NAME, Aggregation
from jobmeter.promql.numbers import format_plain
from jobmeter.promql.over_time import average_windows, compute_quantile, sort_values, sum_windows
from jobmeter.promql.values import QueryError, Scalar, String, Value, Vector, drop_absent, make_empty_vector

_HASHES = float(1 << 64)
_OF_ONE = frozenset({"sum", "avg", "min", "max"})
"""Aggregations that return the series' own value for a group of one series."""


def aggregate(node: Aggregation, vector: Vector, parameter: Value | None) -> Vector:
    """Return the groups of a vector. Raises QueryError for an invalid parameter."""
    labels = _group_labels(node, vector)
    groups: dict[Labels, int] = {}
    index = np.array([groups.setdefault(one, len(groups)) for one in labels], np.int64)
    if not groups:
        return make_empty_vector(vector.values.shape[1])
    if node.operator in JOINED:
        if node.operator in _OF_ONE and len(groups) == len(labels):
            joined = Vector(labels, vector.values, vector.present)
        else:
            joined = _join(JOINED[node.operator], vector, index, list(groups))
        return _keep_common_name(node, vector, joined, index)
    if node.operator == "quantile":
        shares = _numbers(parameter)

        def column_quantile(values: Float64s, column: int) -> float:
            return compute_quantile(sort_values(values), float(shares[column]))

        return _keep_common_name(node, vector, _aggregate_columns(vector, index, list(groups), column_quantile), index)
    if node.operator == "count_values":
        return _count_values(vector, labels, parameter)
    if node.operator == "limit_ratio":
        return _limit_ratio(vector, _numbers(parameter))
    if node.operator in {"topk", "bottomk", "limitk"}:
        return _select(node.operator, vector, index, _numbers(parameter))
    raise QueryError(f"unknown aggregation {node.operator}")


def _group_labels(node: Aggregation, vector: Vector) -> list[Labels]:
    names = {*node.labels, NAME} if node.without else set(node.labels)
    chosen = drop_labels if node.without else keep_labels
    return [chosen(one, names) for one in vector.labels]


def _keep_common_name(node: Aggregation, vector: Vector, found: Vector, index: Int64s) -> Vector:
    """Keep the metric name of groups by name, unless the name of one of their series is void."""
    if vector.unnamed is None or node.without or NAME not in node.labels:
        return found
    unnamed = np.zeros(len(found.labels), bool)
    np.logical_or.at(unnamed, index, vector.unnamed)
    return Vector(found.labels, found.values, found.present, unnamed=unnamed)


def _numbers(parameter: Value | None) -> Float64s:
    if not isinstance(parameter, Scalar):
        raise QueryError("the parameter of this aggregation must be a number")
    return parameter.values


def _join(how: "Callable[[_Groups], Float64s]", vector: Vector, index: Int64s, labels: list[Labels]) -> Vector:
    groups = _Groups(vector, index, len(labels))
    with np.errstate(all="ignore"):
        values = how(groups)
    return Vector(labels, values, groups.count > 0)


class _Groups:
    """The values of each group at each time, one after the other."""

    def __init__(self, vector: Vector, index: Int64s, groups: int) -> None:
        columns = vector.values.shape[1]
        order = np.argsort(index, kind="stable")
        # Time by time, and in it group by group: each window is a group at one time.
        if vector.present.all():
            self.values = vector.values[order].T.ravel()
            first = np.arange(columns) * len(index)
            bounds = np.searchsorted(index[order], np.arange(groups + 1))
            self.low, self.high = first + bounds[:-1, None], first + bounds[1:, None]
            self.count = self.high - self.low
            return
        present = vector.present[order].T.ravel()
        self.values = vector.values[order].T.ravel()[present]
        place = (np.arange(columns)[:, None] * groups + index[order][None, :]).ravel()[present]
        bounds = np.searchsorted(place, np.arange(columns * groups + 1)).reshape(-1)
        self.low = np.ascontiguousarray(bounds[:-1].reshape(columns, groups).T)
        self.high = np.ascontiguousarray(bounds[1:].reshape(columns, groups).T)
        self.count = self.high - self.low

    def reduce(self, ufunc: np.ufunc, values: Float64s) -> Float64s:
        """Reduce one value per sample by group and time; NaN for a group without values."""
        out = np.full(self.low.shape, np.nan)
        some = self.count > 0
        if some.any():
            starts = self.low.T[some.T]
            reduced = np.full(self.low.T.shape, np.nan)
            reduced[some.T] = ufunc.reduceat(values, starts)
            out = reduced.T
        return out


def _variance(groups: _Groups) -> Float64s:
    some = groups.count.T.ravel() > 0
    sizes = groups.count.T.ravel()[some]
    if not len(sizes):
        return np.full(groups.low.shape, np.nan)
    first = groups.values[groups.low.T.ravel()[some]]
    shifted = groups.values - np.repeat(first, sizes)
    average = groups.reduce(np.add, shifted) / groups.count
    deviation = shifted - np.repeat(average.T.ravel()[some], sizes)
    return groups.reduce(np.add, deviation**2) / groups.count


JOINED: dict[str, Callable[[_Groups], Float64s]] = {
    "sum": lambda groups: sum_windows(groups.values, groups.low, groups.high),
    "avg": lambda groups: average_windows(groups.values, groups.low, groups.high),
    "count": lambda groups: groups.count.astype(np.float64),
    "group": lambda groups: np.ones(groups.count.shape),
    "min": lambda groups: groups.reduce(np.fmin, groups.values),
    "max": lambda groups: groups.reduce(np.fmax, groups.values),
    "stdvar": _variance,
    "stddev": lambda groups: np.sqrt(_variance(groups)),
}
"""Aggregations computed with whole arrays."""


def _aggregate_columns(
    vector: Vector, index: Int64s, labels: list[Labels], of: Callable[[Float64s, int], float]
) -> Vector:
    values = np.full((len(labels), vector.values.shape[1]), np.nan)
    present = np.zeros(values.shape, bool)
    for group in range(len(labels)):
        rows = np.nonzero(index == group)[0]
        for column in np.nonzero(vector.present[rows].any(axis=0))[0].tolist():
            chosen = rows[vector.present[rows, column]]
            values[group, column] = of(vector.values[chosen, column], column)
            present[group, column] = True
    return Vector(labels, values, present)


def _count_values(vector: Vector, groups: list[Labels], parameter: Value | None) -> Vector:
    if not isinstance(parameter, String) or not parameter.value:
        raise QueryError("count_values needs the name of a label")
    rows: dict[Labels, Float64s] = {}
    for row, labels in enumerate(groups):
        present = vector.present[row]
        for value in np.unique(vector.values[row, present]).tolist():
            same = vector.values[row] == value if not math.isnan(value) else np.isnan(vector.values[row])
            key = set_label(labels, parameter.value, format_plain(value))
            counts = rows.setdefault(key, np.zeros(vector.values.shape[1]))
            counts += same & present
    if not rows:
        return make_empty_vector(vector.values.shape[1])
    values = np.stack(list(rows.values()))
    return Vector(list(rows), values, values > 0)


def _select(operator: str, vector: Vector, index: Int64s, counts: Float64s) -> Vector:
    """Keep the k largest, smallest or first rows of each group at each time."""
    present = np.zeros(vector.present.shape, bool)
    order: list[int] = []
    for column in range(vector.values.shape[1]):
        wanted = counts[column]
        if math.isnan(wanted):
            raise QueryError("the parameter of the aggregation is NaN")
        if wanted < 1:
            continue
        rows = np.nonzero(vector.present[:, column])[0]
        values = vector.values[rows, column]
        if operator == "limitk":
            ranked = rows
        else:
            missing = np.isnan(values)
            ranked = rows[np.lexsort((-values if operator == "topk" else values, missing))]
        seen: dict[int, int] = {}
        for row in ranked.tolist():
            group = int(index[row])
            seen[group] = seen.get(group, 0) + 1
            if seen[group] <= wanted:
                present[row, column] = True
                order.append(row)
    kept = vector.replace_values(vector.values, present)
    return Vector(kept.labels, kept.values, present, ordered=True, unnamed=kept.unnamed).select_rows(
        np.array(list(dict.fromkeys(order)), np.int64)
    )


def _limit_ratio(vector: Vector, ratios: Float64s) -> Vector:
    """Keep a share of the rows by a hash of their labels. A negative ratio keeps the complementary rows."""
    if np.isnan(ratios).any():
        raise QueryError("the parameter of limit_ratio is NaN")
    ratios = np.clip(ratios, -1.0, 1.0)
    digests = [hashlib.blake2b(repr(one).encode(), digest_size=8).digest() for one in vector.labels]
    offset = np.array([int.from_bytes(one, "big") / _HASHES for one in digests])[:, None]
    chosen: Bools = np.where(ratios >= 0, offset < ratios, offset >= 1 + ratios)
    return drop_absent(vector.replace_values(vector.values, vector.present & chosen))
