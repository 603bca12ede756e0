"""Functions of ranges: a value for each window of samples.

Prometheus has the definitions (``promql/functions.go``). A window is open at its start.
"""

import math
from collections.abc import Callable

import numpy as np

from jobmeter.kernel import ranges
from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.promql.values import Vector
from jobmeter.promql.windows import Windows, WindowSpread, reduce_windows, spread_windows

_SECOND = 1000.0
_EXTRAPOLATED = 1.1
"""Largest gap between samples and a window's end, as a multiple of the samples' interval, that is extrapolated."""
_ILL_CONDITIONED = 1e9
"""Ratio of the sum of absolute values to the sum, above which the sum is computed exactly."""


def sum_windows(values: Float64s, low: Int64s, high: Int64s) -> Float64s:
    """Return the sum of each window; exact even if large values cancel each other out."""
    sums = ranges.add(values, low, high)
    if len(values) and values.min() >= 0:  # false for NaN
        return sums
    sizes = ranges.add(np.abs(values), low, high)
    with np.errstate(all="ignore"):
        doubtful = np.nonzero((high > low) & (sizes > _ILL_CONDITIONED * np.abs(sums)) & np.isfinite(sizes))
    for at in zip(*(axis.tolist() for axis in doubtful), strict=True):
        sums[at] = math.fsum(values[low[at] : high[at]].tolist())
    return sums


def average_windows(values: Float64s, low: Int64s, high: Int64s) -> Float64s:
    """Return the mean of each window, even if its sum overflows."""
    count = np.maximum(high - low, 1)
    sums = sum_windows(values, low, high)
    with np.errstate(all="ignore"):
        found: Float64s = sums / count
    over = np.isinf(sums)
    if not over.any():
        return found
    for at in zip(*(axis.tolist() for axis in np.nonzero(over)), strict=True):
        part = values[low[at] : high[at]]
        if np.isfinite(part).all():
            found[at] = math.fsum((part / len(part)).tolist())
    return found


def _index_first(windows: Windows) -> Int64s:
    return np.minimum(windows.low, max(len(windows.samples.times) - 1, 0))


def _index_last(windows: Windows) -> Int64s:
    return np.maximum(windows.high - 1, 0)


def _drops(windows: Windows) -> tuple[Float64s, Bools]:
    """Return for each sample the previous value if the sample fell below it, else 0, and True if it fell."""
    values = windows.samples.values
    fell = np.zeros(len(values), bool)
    fell[1:] = values[1:] < values[:-1]
    before = np.zeros(len(values))
    before[1:] = np.where(fell[1:], values[:-1], 0.0)
    return before, fell


def _sum_after_first(values: Float64s, windows: Windows) -> Float64s:
    """Return the sum of each window without its first sample; 0 without other samples."""
    return ranges.add(values, windows.low + 1, windows.high, 0.0)


def _sum_growth(windows: Windows, change: Float64s) -> Float64s:
    """Return the growth of a counter in each window; ``change`` is the last value minus the first one."""
    rolled = windows.samples.rolled
    if rolled is None:
        return change + _sum_after_first(_drops(windows)[0], windows)
    before = np.concatenate(([0.0], windows.samples.values[:-1]))
    jumps = np.where(rolled.first >= before, rolled.first - before, rolled.first)
    inside = ranges.add(rolled.increase, windows.low, windows.high, 0.0)
    return inside + _sum_after_first(jumps, windows)


def _extrapolate_change(windows: Windows, *, counter: bool, per_second: bool) -> Vector:
    """Return the change in each window, extrapolated to the window's ends if the samples nearly reach them."""
    samples = windows.samples
    enough = windows.count >= 2
    if not enough.any():
        return windows.make_vector(np.full(enough.shape, np.nan), enough)
    first, last = _index_first(windows), _index_last(windows)
    values, times = samples.values, samples.times
    first_values, first_times = samples.first_values[first], samples.first_times[first]
    with np.errstate(all="ignore"):
        change = values[last] - first_values
        if counter:
            change = _sum_growth(windows, change)
        sampled = (times[last] - first_times) / _SECOND
        between = sampled / np.maximum(windows.count - 1, 1)
        to_start = (first_times - (windows.ends - windows.range_ms)) / _SECOND
        to_end = (windows.ends - times[last]) / _SECOND
        to_start = np.where(to_start >= between * _EXTRAPOLATED, between / 2, to_start)
        if counter:
            # A counter cannot have been below 0.
            to_zero = np.where((change > 0) & (first_values >= 0), sampled * (first_values / change), to_start)
            to_start = np.minimum(to_start, to_zero)
        to_end = np.where(to_end >= between * _EXTRAPOLATED, between / 2, to_end)
        factor = (sampled + to_start + to_end) / sampled
        if per_second:
            factor = factor / (windows.range_ms / _SECOND)
        return windows.make_vector(change * factor, enough)


def _compare_newest_two(windows: Windows, *, per_second: bool) -> Vector:
    samples = windows.samples
    enough = windows.count >= 2
    if not enough.any():
        return windows.make_vector(np.full(enough.shape, np.nan), enough)
    last = _index_last(windows)
    before = np.maximum(last - 1, 0)
    with np.errstate(all="ignore"):
        change = samples.values[last] - samples.values[before]
        if per_second:
            change = np.where(samples.values[last] < samples.values[before], samples.values[last], change)
            change = change / ((samples.times[last] - samples.times[before]) / _SECOND)
    return windows.make_vector(change, enough)


def _count_changed(windows: Windows, changed: Bools) -> Vector:
    values = _sum_after_first(changed.astype(np.float64), windows)
    return windows.make_vector(values, windows.count > 0)


def _changes(windows: Windows) -> Vector:
    values = windows.samples.values
    changed = np.zeros(len(values), bool)
    changed[1:] = (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
    return _count_changed(windows, changed)


def _compute_maximum(windows: Windows) -> Vector:
    samples = windows.samples
    values = samples.values if samples.rolled is None else samples.rolled.maximum
    return windows.make_vector(reduce_windows(np.fmax, values, windows.low, windows.high), windows.count > 0)


def _compute_minimum(windows: Windows) -> Vector:
    samples = windows.samples
    values = samples.values if samples.rolled is None else samples.rolled.minimum
    return windows.make_vector(reduce_windows(np.fmin, values, windows.low, windows.high), windows.count > 0)


def _sum(windows: Windows) -> Vector:
    samples = windows.samples
    values = samples.values if samples.rolled is None else samples.rolled.sum
    return windows.make_vector(sum_windows(values, windows.low, windows.high), windows.count > 0)


def _mean(windows: Windows) -> Vector:
    count = windows.count
    if windows.samples.rolled is not None:
        return windows.make_vector(_sum(windows).values / np.maximum(count, 1), count > 0)
    return windows.make_vector(average_windows(windows.samples.values, windows.low, windows.high), count > 0)


def _variance(windows: Windows) -> Vector:
    out = np.full(windows.low.size, np.nan)
    for part in spread_windows(windows):
        values = windows.samples.values[part.index]
        count = np.diff(np.append(part.starts, len(values)))
        with np.errstate(all="ignore"):
            # Shifted by the first value, so that equal values have no variance and large ones keep their digits.
            shifted = values - values[part.starts][part.window]
            average = part.add(shifted) / count
            out[part.chosen] = part.add((shifted - average[part.window]) ** 2) / count
    return windows.make_vector(out.reshape(windows.low.shape), windows.count > 0)


def _deviation(windows: Windows) -> Vector:
    found = _variance(windows)
    return windows.make_vector(np.sqrt(found.values), found.present)


def _sample_at(windows: Windows, values: Float64s, at: Int64s) -> Vector:
    found = values[at] if len(values) else np.full(at.shape, np.nan)
    return windows.make_vector(found, windows.count > 0, named=True)


def _time_at(windows: Windows, times: Int64s, at: Int64s) -> Vector:
    found = times[at] / _SECOND if len(times) else np.full(at.shape, np.nan)
    return windows.make_vector(found, windows.count > 0)


def _time_of(windows: Windows, sign: float) -> Vector:
    """Return the time of the newest largest value; with ``sign`` -1, of the newest smallest value."""
    out = np.full(windows.low.size, np.nan)
    for part in spread_windows(windows):
        values = sign * windows.samples.values[part.index]
        most = np.fmax.reduceat(values, part.starts)[part.window]
        chosen = (values == most) | np.isnan(most)
        times = np.where(chosen, windows.samples.times[part.index] / _SECOND, -np.inf)
        out[part.chosen] = np.maximum.reduceat(times, part.starts)
    return windows.make_vector(out.reshape(windows.low.shape), windows.count > 0)


def _line(windows: Windows, part: WindowSpread, origin: Float64s) -> tuple[Float64s, Float64s]:
    """Return the slope per second, and the value at ``origin`` (ms, one per window), of the least-squares line."""
    values = windows.samples.values[part.index]
    count = np.diff(np.append(part.starts, len(values)))
    first = values[part.starts]
    with np.errstate(all="ignore"):
        x = (windows.samples.times[part.index] - origin[part.window]) / _SECOND
        x_mean, y_mean = part.add(x) / count, part.add(values) / count
        dx = x - x_mean[part.window]
        covariance = part.add(dx * (values - y_mean[part.window]))
        # An infinite value minus an infinite mean is NaN, so infinite means use the raw sums.
        raw = part.add(x * values) - part.add(x) * y_mean
        slope = np.where(np.isfinite(y_mean), covariance, raw) / part.add(dx * dx)
        constant = np.minimum.reduceat(values == first[part.window], part.starts)
        infinite = np.isinf(first)
        slope = np.where(constant, np.where(infinite, np.nan, 0.0), slope)
        at_origin = np.where(constant, np.where(infinite, np.nan, first), y_mean - slope * x_mean)
    return slope, at_origin


def _slope(windows: Windows) -> Vector:
    out = np.full(windows.low.size, np.nan)
    for part in spread_windows(windows, 2):
        origin = windows.samples.times[part.index[part.starts]].astype(np.float64)
        out[part.chosen] = _line(windows, part, origin)[0]
    return windows.make_vector(out.reshape(windows.low.shape), windows.count >= 2)


def predict(windows: Windows, ahead: Float64s) -> Vector:
    """Return the value of the least-squares line ``ahead`` seconds after the time of the query."""
    out = np.full(windows.low.size, np.nan)
    columns = len(windows.now)
    for part in spread_windows(windows, 2):
        column = part.chosen % columns
        slope, now = _line(windows, part, windows.now[column].astype(np.float64))
        out[part.chosen] = slope * ahead[column] + now
    return windows.make_vector(out.reshape(windows.low.shape), windows.count >= 2)


def compute_quantile(ordered: Float64s, share: float) -> float:
    """Return the quantile of sorted values, interpolated; NaN sorts first."""
    if not len(ordered) or math.isnan(share):
        return math.nan
    if share < 0 or share > 1:
        return -math.inf if share < 0 else math.inf
    rank = share * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(len(ordered) - 1, low + 1)
    weight = rank - low
    return float(ordered[low] * (1 - weight) + ordered[high] * weight)


def sort_values(values: Float64s) -> Float64s:
    """Return the values in ascending order, NaN first."""
    missing = np.isnan(values)
    return np.concatenate((values[missing], np.sort(values[~missing])))


def _apply_to_windows(windows: Windows, of: Callable[[Float64s, int], float]) -> Vector:
    """Return a value for each window, computed by a function of its samples and its column in the grid."""
    out = np.full(windows.low.shape, np.nan)
    present = windows.count > 0
    for row, column in zip(*(axis.tolist() for axis in np.nonzero(present)), strict=True):
        part = windows.samples.values[windows.low[row, column] : windows.high[row, column]]
        out[row, column] = of(part, column)
    return windows.make_vector(out, present)


def compute_quantiles(windows: Windows, share: Float64s) -> Vector:
    """Return the quantile of each window. ``share`` has one value for each time."""
    return _apply_to_windows(
        windows, lambda values, column: compute_quantile(sort_values(values), float(share[column]))
    )


def _median_deviation(values: Float64s, _column: int) -> float:
    middle = compute_quantile(sort_values(values), 0.5)
    return compute_quantile(sort_values(np.abs(values - middle)), 0.5)


def smooth(windows: Windows, smoothing: Float64s, trend: Float64s) -> Vector:
    """Return each window's newest value after double exponential smoothing, by factors for each time."""

    def last(values: Float64s, column: int) -> float:
        if len(values) < 2:
            return math.nan
        factor, of_trend = float(smoothing[column]), float(trend[column])
        before, now = 0.0, float(values[0])
        slope = float(values[1] - values[0])
        for at, value in enumerate(values[1:].tolist()):
            if at:
                slope = of_trend * (now - before) + (1 - of_trend) * slope
            before, now = now, factor * value + (1 - factor) * (now + slope)
        return now

    found = _apply_to_windows(windows, last)
    return windows.make_vector(found.values, windows.count >= 2)


OVER_TIME: dict[str, Callable[[Windows], Vector]] = {
    "avg_over_time": _mean,
    "changes": _changes,
    "count_over_time": lambda windows: windows.make_vector(windows.count.astype(np.float64), windows.count > 0),
    "delta": lambda windows: _extrapolate_change(windows, counter=False, per_second=False),
    "deriv": _slope,
    "first_over_time": lambda windows: _sample_at(windows, windows.samples.first_values, _index_first(windows)),
    "idelta": lambda windows: _compare_newest_two(windows, per_second=False),
    "increase": lambda windows: _extrapolate_change(windows, counter=True, per_second=False),
    "irate": lambda windows: _compare_newest_two(windows, per_second=True),
    "last_over_time": lambda windows: _sample_at(windows, windows.samples.values, _index_last(windows)),
    "mad_over_time": lambda windows: _apply_to_windows(windows, _median_deviation),
    "max_over_time": _compute_maximum,
    "min_over_time": _compute_minimum,
    "present_over_time": lambda windows: windows.make_vector(np.ones(windows.low.shape), windows.count > 0),
    "rate": lambda windows: _extrapolate_change(windows, counter=True, per_second=True),
    "resets": lambda windows: _count_changed(windows, _drops(windows)[1]),
    "stddev_over_time": _deviation,
    "stdvar_over_time": _variance,
    "sum_over_time": _sum,
    "ts_of_first_over_time": lambda windows: _time_at(windows, windows.samples.first_times, _index_first(windows)),
    "ts_of_last_over_time": lambda windows: _time_at(windows, windows.samples.times, _index_last(windows)),
    "ts_of_max_over_time": lambda windows: _time_of(windows, 1.0),
    "ts_of_min_over_time": lambda windows: _time_of(windows, -1.0),
}
"""Functions whose only argument is a range."""
LOOPED = frozenset({"mad_over_time"})
"""Functions that compute each window separately."""
SPREAD = frozenset({"deriv", "stddev_over_time", "stdvar_over_time", "ts_of_max_over_time", "ts_of_min_over_time"})
"""Functions that copy the samples of all windows."""
COUNTERS = frozenset({"rate", "increase", "irate"})
"""Functions that are meaningful for counters only."""
ROLLED = frozenset(
    {
        "absent_over_time",
        "avg_over_time",
        "count_over_time",
        "delta",
        "first_over_time",
        "increase",
        "last_over_time",
        "max_over_time",
        "min_over_time",
        "present_over_time",
        "rate",
        "sum_over_time",
        "ts_of_first_over_time",
        "ts_of_last_over_time",
    }
)
"""Functions that ``RolledSamples`` can answer."""
GROWING = frozenset({"rate", "increase"})
"""Functions that need the increases of ``RolledSamples``."""
