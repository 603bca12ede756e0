"""Quantiles and fractions of histograms that are series with a label ``le``."""

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from jobmeter.model.batch import Bools, Float64s
from jobmeter.promql.labels import Labels, drop_labels, get_value
from jobmeter.promql.nodes import NAME
from jobmeter.promql.values import Vector, make_empty_vector

_TOLERANCE = 1e-12
"""Largest relative difference of two counts that count as equal: a rounding error."""
_BOUND = "le"

Of = Callable[[Float64s, Float64s, Float64s], Float64s]
"""A function of upper bounds [buckets], cumulative counts [buckets, times] and parameters [..., times]."""


class Notes:
    """Problems found in buckets."""

    def __init__(self) -> None:
        self.bad_bounds: dict[str, None] = {}
        """Names of metrics whose label ``le`` is missing or not a number."""
        self.forced: dict[str, None] = {}
        """Names of metrics whose bucket counts were made monotonic."""


def evaluate_histograms(vector: Vector, parameters: Float64s, of: Of, notes: Notes) -> Vector:
    """Return a value for each histogram: a group of series that differ only in ``le``."""
    groups: defaultdict[Labels, list[tuple[float, int]]] = defaultdict(list)
    for row, labels in enumerate(vector.labels):
        try:
            bound = float(get_value(labels, _BOUND))
        except ValueError:
            notes.bad_bounds[get_value(labels, NAME)] = None
            continue
        groups[drop_labels(labels, {_BOUND})].append((bound, row))
    if not groups:
        return make_empty_vector(vector.values.shape[1])
    values = np.full((len(groups), vector.values.shape[1]), np.nan)
    present = np.zeros(values.shape, bool)
    for at, (labels, members) in enumerate(groups.items()):
        members.sort()
        bounds = np.array([bound for bound, _ in members])
        rows = [row for _, row in members]
        counts, exists = vector.values[rows], vector.present[rows]
        present[at] = exists.any(axis=0)
        for pattern, columns in _patterns(exists):
            if not pattern.any():
                continue
            found, forced = _make_monotonic(*_coalesce_buckets(bounds[pattern], counts[pattern][:, columns]))
            if forced:
                notes.forced[get_value(labels, NAME)] = None
            values[at, columns] = of(*found, parameters[..., columns])
    return Vector(list(groups), values, present, unnamed=np.ones(len(groups), bool))


def _patterns(exists: Bools) -> list[tuple[Bools, Bools]]:
    """Return each set of buckets that exist at the same time, with the times at which they do."""
    found, inverse = np.unique(exists, axis=1, return_inverse=True)
    return [(found[:, at], inverse.ravel() == at) for at in range(found.shape[1])]


def _coalesce_buckets(bounds: Float64s, counts: Float64s) -> tuple[Float64s, Float64s]:
    """Join buckets with the same bound."""
    unique, starts = np.unique(bounds, return_index=True)
    return (bounds, counts) if len(unique) == len(bounds) else (unique, np.add.reduceat(counts, starts, axis=0))


def _make_monotonic(bounds: Float64s, counts: Float64s) -> tuple[tuple[Float64s, Float64s], bool]:
    """Raise each count to at least the previous one. Also return True if one was lower by more than rounding."""
    made = counts.copy()
    forced = False
    for at in range(1, len(made)):
        before, now = made[at - 1], made[at]
        same = np.abs(before - now) <= _TOLERANCE * (np.abs(before) + np.abs(now))
        fell = ~same & (now < before)
        forced = forced or bool(fell.any())
        made[at] = np.where(same | fell, before, now)
    return (bounds, made), forced


def compute_quantile(bounds: Float64s, counts: Float64s, share: Float64s) -> Float64s:
    """Return the quantile of each time, interpolated within its bucket."""
    times = counts.shape[1]
    out = np.full(times, np.nan)
    if len(bounds) < 2 or not math.isinf(bounds[-1]):
        return _apply_share_bounds(out, share)
    with np.errstate(all="ignore"):
        total = counts[-1]
        rank = share * total
        bucket = np.minimum((counts[:-1] < rank).sum(axis=0), len(bounds) - 1)
        column = np.arange(times)
        start = np.where(bucket > 0, bounds[np.maximum(bucket - 1, 0)], 0.0)
        below = np.where(bucket > 0, counts[np.maximum(bucket - 1, 0), column], 0.0)
        inside = counts[bucket, column] - below
        out = start + (bounds[bucket] - start) * ((rank - below) / inside)
        out = np.where((bucket == 0) & (bounds[0] <= 0), bounds[0], out)
        out = np.where(bucket == len(bounds) - 1, bounds[-2], out)
        out = np.where((total == 0) | np.isnan(total), np.nan, out)
    return _apply_share_bounds(out, share)


def _apply_share_bounds(values: Float64s, share: Float64s) -> Float64s:
    values = np.where(share < 0, -np.inf, values)
    values = np.where(share > 1, np.inf, values)
    return np.where(np.isnan(share), np.nan, values)


def compute_fraction(bounds: Float64s, counts: Float64s, ends: Float64s) -> Float64s:
    """Return the share of observations between ``ends[0]`` and ``ends[1]`` at each time."""
    lower, upper = ends
    if not math.isinf(bounds[-1]):
        return np.full(counts.shape[1], np.nan)
    with np.errstate(all="ignore"):
        total = counts[-1]
        found = (_rank(bounds, counts, upper) - _rank(bounds, counts, lower)) / total
        found = np.where(lower >= upper, 0.0, found)
        return np.where((total == 0) | np.isnan(total) | np.isnan(lower) | np.isnan(upper), np.nan, found)


def _rank(bounds: Float64s, counts: Float64s, value: Float64s) -> Float64s:
    """Return the number of observations below a value, interpolated within its bucket."""
    column = np.arange(counts.shape[1])
    bucket = np.minimum(np.searchsorted(bounds, value, "left"), len(bounds) - 1)
    first = 0.0 if bounds[0] > 0 else -np.inf
    start = np.where(bucket > 0, bounds[np.maximum(bucket - 1, 0)], first)
    below = np.where(bucket > 0, counts[np.maximum(bucket - 1, 0), column], 0.0)
    end, here = bounds[bucket], counts[bucket, column]
    inside = np.clip((value - start) / (end - start), 0.0, 1.0)
    # Nothing says how observations lie in a bucket without an end: they count as at its other end.
    inside = np.where(np.isinf(end), 0.0, inside)
    inside = np.where(np.isinf(start), value > start, inside)
    inside = np.where(value >= end, 1.0, inside)
    return below + (here - below) * inside
