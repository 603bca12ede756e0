"""A cache of the bounds of recent series, and the checks of a batch against them: a few array steps each."""

import threading
from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model import catalog
from jobmeter.model.batch import Bools, Float64s, Int64s, SampleBatch
from jobmeter.model.catalog import CATALOG
from jobmeter.model.interner import SeriesInterner, SeriesList, grow
from jobmeter.model.series import check_series
from jobmeter.model.time import MAX_TIME_MS, Clock

GENERATION_SECONDS = 3_600.0
MAX_UNKNOWN = 16
"""Most names of unknown metrics in a receipt."""
_NEVER = -1


class SeriesBounds(msgspec.Struct, frozen=True, eq=False):
    """The bounds and projects of some series, one after the other.

    ``lowest``, ``highest`` float64[n]; a value between ``floor`` and ``ceiling`` is valid for all of them.
    ``projects``: the name of each project, and the positions of its series (int64[], None: all of them). ``unknown``:
    names of metrics that are not in the catalogue, at most 16; their series belong to no project.
    """

    lowest: Float64s
    highest: Float64s
    floor: float
    ceiling: float
    projects: Sequence[tuple[str, Int64s | None]]
    unknown: tuple[str, ...] = ()


class _Columns:
    """Bounds and properties of an interner's series, indexed by the number of the series."""

    def __init__(self, interner: SeriesInterner) -> None:
        self.interner = interner
        self.lowest: Float64s = np.empty(0)
        self.highest: Float64s = np.empty(0)
        self.project: Int64s = np.empty(0, np.int64)
        self.last_ms: Int64s = np.empty(0, np.int64)
        self.unknown: Bools = np.empty(0, np.bool_)

    def fit(self) -> None:
        """Make room for every series of the interner."""
        count = len(self.interner)
        if count <= len(self.last_ms):
            return
        self.lowest, self.highest = grow(self.lowest, count, np.nan), grow(self.highest, count, np.nan)
        self.project, self.last_ms = grow(self.project, count, _NEVER), grow(self.last_ms, count, _NEVER)
        self.unknown = grow(self.unknown, count, fill=False)


class SeriesCache:
    """Series of this hour and of the previous hour, whose number in each project ``project_series`` limits.

    A new series is checked. Another interner restarts the count. Safe for several threads.
    """

    def __init__(self, clock: Clock, project_series: int) -> None:
        self._clock = clock
        self._limit = project_series
        self._lock = threading.Lock()
        self._columns = _Columns(SeriesInterner())
        self._projects: dict[str, int] = {}
        self._counts: Int64s = np.empty(0, np.int64)
        self._now = 1
        self._turned = clock.monotonic()

    def look_up(self, series: SeriesList) -> SeriesBounds:
        """Return the entries of some series. Raises InvalidRequestError naming the field of the first invalid series.

        A rejected list counts nothing.
        """
        with self._lock:
            if series.interner is not self._columns.interner:
                self._columns, self._counts = _Columns(series.interner), np.zeros_like(self._counts)
                self._now += 1  # results of another interner's lists do not count here
            self._turn()
            cached: tuple[int, SeriesBounds] | None = series.derived.get(self)
            if cached is not None and cached[0] == self._now:
                return cached[1]
            self._columns.fit()
            columns, numbers = self._columns, series.numbers
            missing = np.flatnonzero(columns.last_ms[numbers] != self._now)
            if len(missing):
                self._learn(series, missing)
                self._admit(numbers[missing])
            bounds = _bounds_of(series, columns, list(self._projects))
            series.derived[self] = self._now, bounds
            return bounds

    def _turn(self) -> None:
        passed = self._clock.monotonic() - self._turned
        if passed < GENERATION_SECONDS:
            return
        self._now += 1 if passed < 2 * GENERATION_SECONDS else 2
        self._turned = self._clock.monotonic()
        live = self._columns.project[self._columns.last_ms >= self._now - 1]
        self._counts = np.bincount(live, minlength=len(self._projects))

    def _learn(self, series: SeriesList, places: Int64s) -> None:
        columns, numbers = self._columns, series.numbers
        for place in places[columns.project[numbers[places]] == _NEVER].tolist():
            one = series[place]
            number = numbers[place]
            metric = catalog.find(check_series(one).metric)
            columns.unknown[number] = metric is None
            columns.lowest[number], columns.highest[number] = (-np.inf, np.inf) if metric is None else metric.bounds
            columns.project[number] = self._projects.setdefault(one.project, len(self._projects))

    def _admit(self, numbers: Int64s) -> None:
        columns, names = self._columns, list(self._projects)
        fresh = columns.project[numbers[columns.last_ms[numbers] < self._now - 1]]
        more = np.bincount(fresh, minlength=len(names))
        counts = np.zeros(len(names), np.int64)
        counts[: len(self._counts)] = self._counts
        for project in np.flatnonzero(more).tolist():
            if counts[project] + more[project] > self._limit:
                raise LimitExceededError(f"project {names[project]} may have {self._limit} live series", "project")
        self._counts = counts + more
        columns.last_ms[numbers] = self._now


def _bounds_of(series: SeriesList, columns: _Columns, names: Sequence[str]) -> SeriesBounds:
    numbers = series.numbers
    lowest, highest, project = columns.lowest[numbers], columns.highest[numbers], columns.project[numbers]
    floor, ceiling = float(lowest.max(initial=-np.inf)), float(highest.min(initial=np.inf))
    unknown = columns.unknown[numbers]
    if len(project) and (project == project[0]).all() and not unknown.any():
        return SeriesBounds(lowest, highest, floor, ceiling, [(names[int(project[0])], None)])
    parts = [(names[one], np.flatnonzero((project == one) & ~unknown)) for one in np.unique(project).tolist()]
    return SeriesBounds(lowest, highest, floor, ceiling, parts, _names(series, np.flatnonzero(unknown)))


def _names(series: SeriesList, places: Int64s) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for place in places.tolist():
        found[series[place].metric] = None
        if len(found) == MAX_UNKNOWN:
            break
    return tuple(found)


def check_shape(batch: SampleBatch) -> None:
    """Reject columns of different lengths, or with invalid series indexes (fields ``value`` and ``series``)."""
    if not len(batch.index) == len(batch.time) == len(batch.value):
        raise InvalidRequestError(
            f"{len(batch.index)} series, {len(batch.time)} times and {len(batch.value)} values are not the same number",
            "value",
        )
    if len(batch) and int(batch.index.max()) >= len(batch.series):
        raise InvalidRequestError(f"a sample names series {int(batch.index.max())} of {len(batch.series)}", "series")


def check_times(batch: SampleBatch) -> None:
    """Reject times before 1970 and after 2100 (field ``time``)."""
    if len(batch) and (batch.span[0] < 0 or batch.span[1] > MAX_TIME_MS):
        at = int(np.flatnonzero((batch.time < 0) | (batch.time > MAX_TIME_MS))[0])
        raise InvalidRequestError(
            f"time {int(batch.time[at])} of {_label(batch, at)} is not between 1970 and 2100 in milliseconds", "time"
        )


def check_values(batch: SampleBatch, bounds: SeriesBounds) -> None:
    """Reject values that are not finite or lie outside the bounds of their series (field ``value``)."""
    if not len(batch):
        return
    low, high = batch.extremes
    if low >= bounds.floor and high <= bounds.ceiling:  # false for values that are not finite
        return
    finite = np.isfinite(batch.value)
    if not finite.all():
        at = int(np.flatnonzero(~finite)[0])
        raise InvalidRequestError(
            f"a value of {_label(batch, at)} is {batch.value[at]}: values must be finite", "value"
        )
    outside = (batch.value < bounds.lowest[batch.index]) | (batch.value > bounds.highest[batch.index])
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        name = batch.series[int(batch.index[at])].metric
        metric = CATALOG[name]
        low, high = metric.bounds
        raise InvalidRequestError(
            f"{name} {float(batch.value[at])!r} is outside of [{low:g}, {high:g}]: is its unit {metric.unit!r}?",
            "value",
        )


def _label(batch: SampleBatch, at: int) -> str:
    series = batch.series[int(batch.index[at])]
    place = " ".join(name for name in (series.job, series.replica, series.node, series.device) if name)
    return f"{series.metric} ({place})" if place else series.metric
