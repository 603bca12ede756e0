"""Samples of many series, and their windows for a grid of times."""

import msgspec
import numpy as np

from jobmeter.kernel import ranges
from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.model.special import STALE
from jobmeter.promql.labels import Labels
from jobmeter.promql.values import Vector

_CHUNK = 4_000_000
"""Most samples copied at once for functions that compute each window separately."""


class RolledSamples(msgspec.Struct, frozen=True, eq=False):
    """Statistics of runs: consecutive samples that no window divides.

    ``count`` int64[runs]; ``sum minimum maximum first`` float64[runs], ``first_time`` int64[runs] in ms. ``increase``
    float64[runs] is the growth of a counter from the first to the last sample, with resets counted from zero.
    """

    count: Int64s
    sum: Float64s
    minimum: Float64s
    maximum: Float64s
    first: Float64s
    first_time: Int64s
    increase: Float64s


class WindowSamples(msgspec.Struct, frozen=True, eq=False):
    """The samples of series. Series i has ``[starts[i], starts[i + 1])``, in order of time.

    ``times`` int64[samples] in ms, ``values`` float64[samples], ``starts`` int64[series + 1]. With ``rolled`` each
    sample is the last sample of a run, and represents the run. ``expired``: older samples have expired.
    """

    labels: list[Labels]
    times: Int64s
    values: Float64s
    starts: Int64s
    rolled: RolledSamples | None = None
    expired: bool = False

    def without_stale(self) -> "WindowSamples":
        """Return the samples without stale markers."""
        stale = is_stale(self.values)
        if not stale.any():
            return self
        live = ~stale
        counts = np.concatenate(([0], np.cumsum(live)))
        return msgspec.structs.replace(
            self, times=self.times[live], values=self.values[live], starts=counts[self.starts]
        )

    @property
    def first_values(self) -> Float64s:
        """First value of the run of each sample; without runs the value of the sample."""
        return self.values if self.rolled is None else self.rolled.first

    @property
    def first_times(self) -> Int64s:
        """The times of ``first_values``."""
        return self.times if self.rolled is None else self.rolled.first_time


def is_stale(values: Float64s) -> Bools:
    """Mark the values that are stale markers."""
    found: Bools = np.ascontiguousarray(values).view(np.int64) == STALE
    return found


class Windows(msgspec.Struct, frozen=True, eq=False):
    """The samples in ``(ends - range_ms, ends]`` of each series: ``[low, high)``, int64[series, times].

    ``ends`` int64[times] in ms. ``now`` are the times of the query, which an offset or ``@`` moved to ``ends``.
    """

    samples: WindowSamples
    ends: Int64s
    now: Int64s
    range_ms: int
    low: Int64s
    high: Int64s
    unnamed: Bools | None = None

    @property
    def count(self) -> Int64s:
        """The number of samples in each window."""
        count: Int64s = np.maximum(self.high - self.low, 0)
        if self.samples.rolled is not None:
            total = np.concatenate(([0], np.cumsum(self.samples.rolled.count)))
            count = np.where(count > 0, total[self.high] - total[self.low], 0)
        return count

    def make_vector(self, values: Float64s, present: Bools, *, named: bool = False) -> Vector:
        """Return a vector with a value for each window. Without ``named`` the metric name is dropped."""
        unnamed = self.unnamed if named else np.ones(len(self.samples.labels), bool)
        return Vector(self.samples.labels, values, present, unnamed=unnamed)


def find_windows(samples: WindowSamples, ends: Int64s, range_ms: int) -> tuple[Int64s, Int64s]:
    """Return the index of the first sample after ``ends - range_ms`` and after ``ends``, int64[series, times] each."""
    return ranges.find(samples.times, samples.starts, ends, range_ms)


def reduce_windows(ufunc: np.ufunc, values: Float64s, low: Int64s, high: Int64s) -> Float64s:
    """Reduce ``values[low:high]`` of each window; NaN for an empty window."""
    some = high > low
    if not some.any():
        return np.full(low.shape, np.nan)
    every = bool(some.all())
    pairs = np.stack((low, high) if every else (low[some], high[some]), axis=-1).ravel()
    with np.errstate(all="ignore"):
        reduced = ufunc.reduceat(np.append(values, values[-1:]), pairs)[::2]
    if every:
        return reduced.reshape(low.shape)
    out = np.full(low.shape, np.nan)
    out[some] = reduced
    return out


class WindowSpread(msgspec.Struct, frozen=True, eq=False):
    """Samples of windows, one window after the other.

    ``index`` is the position of each sample, ``window`` its window. ``starts`` is the start of each window. ``chosen``
    are the windows, as positions in the flat grid.
    """

    chosen: Int64s
    index: Int64s
    window: Int64s
    starts: Int64s

    def add(self, values: Float64s) -> Float64s:
        """Return the sum of the values of each window."""
        with np.errstate(all="ignore"):
            return np.add.reduceat(values, self.starts)


def spread_windows(windows: Windows, least: int = 1) -> list[WindowSpread]:
    """Return the windows with ``least`` samples or more, in parts of bounded size."""
    low, count = windows.low.ravel(), windows.count.ravel()
    chosen = np.nonzero(count >= least)[0]
    parts = []
    if len(chosen):
        group = np.cumsum(count[chosen]) // _CHUNK
        for part in np.split(chosen, np.nonzero(np.diff(group))[0] + 1):
            sizes = count[part]
            starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
            window = np.repeat(np.arange(len(part)), sizes)
            index = np.arange(int(sizes.sum())) - starts[window] + low[part][window]
            parts.append(WindowSpread(part, index, window, starts))
    return parts
