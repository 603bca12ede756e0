"""Downsampling: reduce the samples of a series in each interval to one point at the interval's start.

https://opentsdb.net/docs/build/html/user_guide/query/downsampling.html.
"""

import re
from enum import StrEnum
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import BucketColumns, Float64s, Int64s, find_runs
from jobmeter.model.time import TimeRange, ceil_to, floor_to
from jobmeter.query.tsdb.calendars import Unit, compute_edges
from jobmeter.query.tsdb.columns import MOST_POINTS, SeriesColumns, make_points_error
from jobmeter.query.tsdb.functions import AGGREGATORS, NONE, Aggregator
from jobmeter.query.tsdb.times import parse_duration

_SCALAR = re.compile(r"scalar#(-?[0-9]{1,30}(?:\.[0-9]{1,30})?)")
_CALENDAR = re.compile(r"([1-9][0-9]{0,3})([smhdwny])")


class Fill(StrEnum):
    """Value of an interval without a sample."""

    NONE = "none"
    NAN = "nan"
    NULL = "null"
    ZERO = "zero"
    SCALAR = "scalar"


class Downsample(msgspec.Struct, frozen=True, kw_only=True):
    """Downsampling specification.

    ``interval_ms`` 0 is the whole range; ``unit`` and ``every`` define a calendar interval.
    """

    text: str
    interval_ms: int
    function: Aggregator
    fill: Fill = Fill.NONE
    scalar: float = 0.0
    unit: Unit | None = None
    every: int = 1
    zone: ZoneInfo

    @property
    def stepped(self) -> bool:
        """True if roll-ups of the interval's length give its points; else every sample is needed."""
        return bool(self.interval_ms) and self.unit is None and self.function.name in STEPPED

    def make_grid(self, start_ms: int, end_ms: int) -> Int64s:
        """Return the starts of the intervals that begin in ``[start_ms, end_ms]``. Raises LimitExceededError."""
        if not self.interval_ms:
            return np.array([start_ms], np.int64)
        if self.unit is not None:
            found = compute_edges(start_ms, end_ms + 1, self.every, self.unit, self.zone)
            return found[(found >= start_ms) & (found <= end_ms)]
        first = ceil_to(start_ms, self.interval_ms)
        if (end_ms - first) // self.interval_ms >= MOST_POINTS:
            raise make_points_error()
        return np.arange(first, end_ms + 1, self.interval_ms, dtype=np.int64)

    def reach(self, start_ms: int, end_ms: int, margin_ms: int) -> tuple[int, int]:
        """Return the range to read, end excluded, for points in ``[start_ms, end_ms]``.

        Intervals are whole: the last one ends after ``end_ms``. ``margin_ms`` more is read at either end. An interval
        of the whole range ends before ``end_ms``, as every interval ends before the next one begins:
        https://github.com/OpenTSDB/opentsdb/blob/v2.4.0/src/core/Downsampler.java (``moveToNextValue``).
        """
        if not self.interval_ms:
            return start_ms, end_ms
        if self.unit is not None:
            found = compute_edges(start_ms - margin_ms, end_ms + margin_ms + 1, self.every, self.unit, self.zone)
            return max(0, int(found[0])), int(found[-1])
        step = self.interval_ms
        return floor_to(max(0, start_ms - margin_ms), step), floor_to(end_ms + margin_ms, step) + step


def parse(text: str, zone: ZoneInfo, *, calendar: bool) -> Downsample:
    """Parse ``1m-avg``, ``1h-sum-nan``, ``0all-max``, ``1dc-sum``.

    Raises InvalidRequestError (field ``downsample``).
    """
    parts = text.split("-", 2)
    if len(parts) < 2:
        raise _make_specifier_error(text, "must provide at least interval and function")
    interval, name = parts[0], parts[1]
    if name.endswith("c") and name not in AGGREGATORS and name[:-1] in AGGREGATORS:
        interval, name = interval + "c", name[:-1]
    function = AGGREGATORS.get(name)
    if function is None:
        raise InvalidRequestError(f"No such downsampling function: {name[:64]}", "downsample")
    if name == NONE:
        raise InvalidRequestError("cannot use the NONE aggregator for downsampling", "downsample")
    fill, scalar = _fill(text, parts[2]) if len(parts) == 3 else (Fill.NONE, 0.0)
    if interval in {"all", "0all"}:
        return Downsample(text=text, interval_ms=0, function=function, fill=fill, scalar=scalar, zone=zone)
    by_calendar = calendar or interval.endswith("c")
    length = parse_duration(interval.removesuffix("c"), "downsample")
    found = _CALENDAR.fullmatch(interval.removesuffix("c")) if by_calendar else None
    if by_calendar and found is None:
        raise _make_specifier_error(text, "an interval of a calendar is a number of s, m, h, d, w, n or y")
    return Downsample(
        text=text,
        interval_ms=length,
        function=function,
        fill=fill,
        scalar=scalar,
        unit=Unit(found[2]) if found else None,
        every=int(found[1]) if found else 1,
        zone=zone,
    )


def _fill(text: str, policy: str) -> tuple[Fill, float]:
    scalar = _SCALAR.fullmatch(policy)
    if scalar:
        return Fill.SCALAR, float(scalar[1])
    if policy == Fill.SCALAR:
        raise _make_specifier_error(text, "the fill policy scalar needs its value, as in 1m-avg-scalar#5")
    if policy not in set(Fill):
        names = " ".join(one.value for one in Fill)
        raise InvalidRequestError(f"No such fill policy: '{policy[:64]}': must be one of: {names}", "downsample")
    return Fill(policy), 0.0


def _make_specifier_error(text: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid downsampling specifier '{text[:100]}': {why}", "downsample")


def downsample(columns: SeriesColumns, spec: Downsample, span: TimeRange) -> SeriesColumns:
    """Compute the points of each series' intervals. ``span`` is the query's range, for whole-range intervals."""
    if not len(columns):
        return columns
    bucket = _bucket(columns.time, spec, span)
    starts = find_runs(columns.index, bucket)
    values = spec.function.function(columns.value, starts)
    return SeriesColumns(columns.index[starts], bucket[starts], values)


def _bucket(time: Int64s, spec: Downsample, span: TimeRange) -> Int64s:
    if not spec.interval_ms:
        return np.full(len(time), span.start_ms, np.int64)
    if spec.unit is None:
        return time - time % spec.interval_ms
    bounds = compute_edges(int(time.min()), int(time.max()) + 1, spec.every, spec.unit, spec.zone)
    return bounds[np.searchsorted(bounds, time, side="right") - 1]


STEPPED = {
    "avg": lambda steps: steps.sum / steps.count,
    "count": lambda steps: steps.count.astype(np.float64),
    "diff": lambda steps: steps.last - steps.first,
    "first": lambda steps: steps.first,
    "last": lambda steps: steps.last,
    "max": lambda steps: steps.maximum,
    "mimmax": lambda steps: steps.maximum,
    "min": lambda steps: steps.minimum,
    "mimmin": lambda steps: steps.minimum,
    "sum": lambda steps: steps.sum,
    "pfsum": lambda steps: steps.sum,
    "zimsum": lambda steps: steps.sum,
}
"""Functions that can be computed from roll-ups of a step."""


def reduce_steps(steps: BucketColumns, name: str) -> SeriesColumns:
    """Compute points by a function of ``STEPPED``, from steps as long as the interval."""
    value: Float64s = STEPPED[name](steps)
    return SeriesColumns(steps.index.astype(np.int64), steps.time, value)


def fill(columns: SeriesColumns, spec: Downsample, grid: Int64s) -> SeriesColumns:
    """Give every series a point in each interval of the grid; points outside the grid are dropped.

    Raises LimitExceededError.
    """
    owners = np.unique(columns.index)
    if len(owners) * len(grid) > MOST_POINTS:
        raise make_points_error()
    empty = {Fill.ZERO: 0.0, Fill.SCALAR: spec.scalar}.get(spec.fill, np.nan)
    table = np.full((len(owners), len(grid)), empty)
    place = np.searchsorted(grid, columns.time)
    inside = place < len(grid)
    inside[inside] = grid[place[inside]] == columns.time[inside]
    table[np.searchsorted(owners, columns.index[inside]), place[inside]] = columns.value[inside]
    return SeriesColumns(np.repeat(owners, len(grid)), np.tile(grid, len(owners)), table.ravel())
