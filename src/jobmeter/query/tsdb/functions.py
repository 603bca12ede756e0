"""OpenTSDB's aggregators: reduce many groups of values at once.

https://opentsdb.net/docs/build/html/user_guide/query/aggregators.html

Downsampling applies them to the samples of one series in a step, aggregation to the values of several series at one
time. Groups are runs of one array, so that each function needs only a few array operations.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np

from jobmeter.model.batch import Float64s, Int64s

Function = Callable[[Float64s, Int64s], Float64s]
"""Aggregation function: takes values and the start of each run, returns a value per run. No run is empty."""


_SIZES = 64


class Missing(Enum):
    """Replacement of a missing value between the first and the last one of a series."""

    LINEAR = "Linear interpolation"
    ZERO = "Zero"
    PREVIOUS = "Its previous value"
    SKIP = "Nothing"


class Aggregator(NamedTuple):
    """Function with its replacement of missing values during aggregation."""

    name: str
    function: Function
    missing: Missing


_sum, _min, _max = np.add.reduceat, np.minimum.reduceat, np.maximum.reduceat


def count_values(starts: Int64s, size: int) -> Int64s:
    """Return the number of values in each run."""
    found: Int64s = np.diff(np.r_[starts, size])
    return found


def _avg(values: Float64s, starts: Int64s) -> Float64s:
    return _sum(values, starts) / count_values(starts, len(values))


def _count(values: Float64s, starts: Int64s) -> Float64s:
    return count_values(starts, len(values)).astype(np.float64)


def _dev(values: Float64s, starts: Int64s) -> Float64s:
    """Population standard deviation: OpenTSDB divides by the number of values. 0 for a single value."""
    size = count_values(starts, len(values))
    apart = values - np.repeat(_avg(values, starts), size)
    found: Float64s = np.sqrt(_sum(apart * apart, starts) / size)
    return found


def _take_first(values: Float64s, starts: Int64s) -> Float64s:
    return values[starts]


def _take_last(values: Float64s, starts: Int64s) -> Float64s:
    found: Float64s = values[starts + count_values(starts, len(values)) - 1]
    return found


def _diff(values: Float64s, starts: Int64s) -> Float64s:
    return _take_last(values, starts) - _take_first(values, starts)


def _square_sum(values: Float64s, starts: Int64s) -> Float64s:
    return _sum(values * values, starts)


def _sort_runs(values: Float64s, starts: Int64s) -> tuple[Float64s, Int64s]:
    """Sort the values within their runs. Returns them and the run sizes."""
    size = count_values(starts, len(values))
    sizes = np.unique(size)
    if len(sizes) > _SIZES:
        run = np.repeat(np.arange(len(starts)), size)
        return values[np.lexsort((values, run))], size
    ordered = np.empty_like(values)
    for one in sizes.tolist():
        # Runs of equal size form a table, which is much faster to sort.
        places = starts[size == one][:, np.newaxis] + np.arange(one)
        ordered[places] = np.sort(values[places], axis=1)
    return ordered, size


def _median(values: Float64s, starts: Int64s) -> Float64s:
    """Median; of two middle values the upper, as in OpenTSDB."""
    ordered, size = _sort_runs(values, starts)
    middle: Float64s = ordered[starts + size // 2]
    return middle


class Estimate(Enum):
    """Position of a percentile among n sorted values, counted from 1."""

    LEGACY = "p (n + 1)"
    R3 = "p n, rounded to the nearest, halves to even"
    R7 = "1 + p (n - 1)"


def _percentile(part: float, estimate: Estimate) -> Function:
    def function(values: Float64s, starts: Int64s) -> Float64s:
        ordered, size = _sort_runs(values, starts)
        if estimate is Estimate.R3:
            place = np.where(part <= 0.5 / size, 0.0, np.rint(size * part))
        elif estimate is Estimate.R7:
            place = 1 + (size - 1) * part
        else:
            place = part * (size + 1)
        below = np.floor(place).astype(np.int64)
        low = np.clip(below - 1, 0, size - 1)
        high = np.clip(below, 0, size - 1)
        rest = np.where((place < 1) | (place >= size), 0.0, place - below)
        lower, upper = ordered[starts + low], ordered[starts + high]
        found: Float64s = lower + rest * (upper - lower)
        return found

    return function


_PERCENTS = {"50": 0.5, "75": 0.75, "90": 0.9, "95": 0.95, "99": 0.99, "999": 0.999}

_ALL = (
    Aggregator("avg", _avg, Missing.LINEAR),
    Aggregator("count", _count, Missing.ZERO),
    Aggregator("dev", _dev, Missing.LINEAR),
    Aggregator("diff", _diff, Missing.LINEAR),
    Aggregator("first", _take_first, Missing.ZERO),
    Aggregator("last", _take_last, Missing.ZERO),
    Aggregator("max", _max, Missing.LINEAR),
    Aggregator("median", _median, Missing.LINEAR),
    Aggregator("mimmax", _max, Missing.SKIP),
    Aggregator("mimmin", _min, Missing.SKIP),
    Aggregator("min", _min, Missing.LINEAR),
    Aggregator("mult", np.multiply.reduceat, Missing.LINEAR),
    Aggregator("multiply", np.multiply.reduceat, Missing.LINEAR),
    Aggregator("none", _take_last, Missing.SKIP),
    Aggregator("pfsum", _sum, Missing.PREVIOUS),
    Aggregator("squareSum", _square_sum, Missing.ZERO),
    Aggregator("sum", _sum, Missing.LINEAR),
    Aggregator("zimsum", _sum, Missing.ZERO),
    *(Aggregator(f"p{name}", _percentile(part, Estimate.LEGACY), Missing.LINEAR) for name, part in _PERCENTS.items()),
    *(Aggregator(f"ep{name}r3", _percentile(part, Estimate.R3), Missing.LINEAR) for name, part in _PERCENTS.items()),
    *(Aggregator(f"ep{name}r7", _percentile(part, Estimate.R7), Missing.LINEAR) for name, part in _PERCENTS.items()),
)

NONE = "none"
"""Aggregator that leaves every series separate."""

AGGREGATORS: Mapping[str, Aggregator] = {one.name: one for one in _ALL}
"""Every aggregator by name."""
