"""A cache of the bounds of recent series, and the checks of a batch against them: a few array steps each."""

from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model import catalog
from jobmeter.model.batch import Float64s, Int64s, SampleBatch
from jobmeter.model.catalog import CATALOG
from jobmeter.model.series import check_series
from jobmeter.model.series_table import SeriesList, SeriesTable
from jobmeter.model.time import MAX_TIME_MS, Clock

GENERATION_SECONDS = 3_600.0
MAX_UNKNOWN = 16
"""Most names of unknown metrics in a receipt."""


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


class SeriesCache:
    """Series of this hour and of the previous hour, whose number in each project ``project_series`` limits.

    A new series is checked. ``table`` has its bounds, its project, and the hour of its last samples; series that it
    drops no longer count. Safe for several threads.
    """

    def __init__(self, table: SeriesTable, clock: Clock, project_series: int) -> None:
        self._clock = clock
        self._limit = project_series
        self._table = table
        self._lowest, self._highest = table.add_column(np.float64), table.add_column(np.float64)
        self._project, self._hour = table.add_column(np.int64), table.add_column(np.int64)
        self._unknown = table.add_column(np.bool_)
        self._projects = {"": 0}
        self._counts: Int64s = np.empty(0, np.int64)
        self._now = 2
        self._valid = self._now, table.generation
        """Hour and generation of the table in which cached bounds are valid."""
        self._turned = clock.monotonic()

    def look_up(self, series: SeriesList) -> SeriesBounds:
        """Return the entries of some series. Raises InvalidRequestError naming the field of the first invalid series.

        A rejected list counts nothing.
        """
        derived = series.keys.derived
        with self._table.lock:
            self._turn()
            cached: tuple[tuple[int, int], SeriesBounds] | None = derived.get(self)
            if cached is not None and cached[0] == self._valid:
                return cached[1]
            rows = self._table.assign_rows(series.keys.series)
            self._turn()  # the table may have begun another generation
            missing = np.flatnonzero(self._hour[rows] != self._now)
            if len(missing):
                self._learn(series, rows, missing)
                self._admit(rows[missing])
            bounds = self._bounds_of(series, rows)
            derived[self] = self._valid, bounds
            return bounds

    def _turn(self) -> None:
        passed = self._clock.monotonic() - self._turned
        if passed >= GENERATION_SECONDS:
            self._now += 1 if passed < 2 * GENERATION_SECONDS else 2
            self._turned = self._clock.monotonic()
        valid = self._now, self._table.generation
        if self._valid == valid:
            return
        self._valid = valid
        live = self._project[: self._table.end][self._hour[: self._table.end] >= self._now - 1]
        self._counts = np.bincount(live, minlength=len(self._projects))

    def _learn(self, series: SeriesList, rows: Int64s, places: Int64s) -> None:
        for place in places[self._project[rows[places]] == 0].tolist():
            one = series[place]
            row = rows[place]
            metric = catalog.find(check_series(one).metric)
            self._unknown[row] = metric is None
            self._lowest[row], self._highest[row] = (-np.inf, np.inf) if metric is None else metric.bounds
            self._project[row] = self._projects.setdefault(one.project, len(self._projects))

    def _admit(self, rows: Int64s) -> None:
        names = list(self._projects)
        fresh = self._project[rows[self._hour[rows] < self._now - 1]]
        more = np.bincount(fresh, minlength=len(names))
        counts = np.zeros(len(names), np.int64)
        counts[: len(self._counts)] = self._counts
        for project in np.flatnonzero(more).tolist():
            if counts[project] + more[project] > self._limit:
                raise LimitExceededError(f"project {names[project]} has at most {self._limit} live series", "project")
        self._counts = counts + more
        self._hour[rows] = self._now

    def _bounds_of(self, series: SeriesList, rows: Int64s) -> SeriesBounds:
        names = list(self._projects)
        lowest, highest = self._lowest[rows], self._highest[rows]
        project, unknown = self._project[rows], self._unknown[rows]
        floor, ceiling = float(lowest.max(initial=-np.inf)), float(highest.min(initial=np.inf))
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
