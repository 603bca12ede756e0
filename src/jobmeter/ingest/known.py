"""What the funnel remembers of the series that it saw lately, so that a batch of known ones costs a few array steps."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import LimitExceededError
from jobmeter.model import catalog
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.catalog import Metric
from jobmeter.model.roster import Roster, SeriesList
from jobmeter.model.series import check_series
from jobmeter.model.time import Clock

GENERATION_SECONDS = 3_600.0
MAX_UNKNOWN = 16
"""Most names of unknown metrics that a receipt tells."""
_NEVER = -1
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Of some series, one after the other: the bounds of their metrics, and their projects.

    ``lowest``, ``highest`` float64[n]; a value between ``floor`` and ``ceiling`` is right for all of them.
    ``projects``: the name of each project, and which of the series (int64[]) are its; None for all of them.
    ``unknown``: names of metrics that the catalogue does not have, at most 16; their series are of no project.
    """

    lowest: Float64s
    highest: Float64s
    floor: float
    ceiling: float
    projects: Sequence[tuple[str, Int64s | None]]
    unknown: tuple[str, ...] = ()


class _Columns:
    """What is known of the series of one roster, by their numbers."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.lowest: Float64s = np.empty(0)
        self.highest: Float64s = np.empty(0)
        self.project: Int64s = np.empty(0, np.int64)
        self.seen: Int64s = np.empty(0, np.int64)
        self.unknown: Bools = np.empty(0, np.bool_)

    def fit(self) -> None:
        """Make room for every series of the roster."""
        more = len(self.roster) - len(self.seen)
        if more <= 0:
            return
        more = max(more, len(self.seen))
        self.lowest = np.concatenate((self.lowest, np.full(more, np.nan)))
        self.highest = np.concatenate((self.highest, np.full(more, np.nan)))
        self.project = np.concatenate((self.project, np.full(more, _NEVER)))
        self.seen = np.concatenate((self.seen, np.full(more, _NEVER)))
        self.unknown = np.concatenate((self.unknown, np.zeros(more, np.bool_)))


class KnownSeries:
    """Series of this hour and of the hour before: their number in each project is what ``project_series`` limits.

    A series is checked when it is new. With another roster the count begins anew. Safe for several threads.
    """

    def __init__(self, clock: Clock, project_series: int) -> None:
        self._clock = clock
        self._limit = project_series
        self._lock = threading.Lock()
        self._columns = _Columns(Roster())
        self._projects: dict[str, int] = {}
        self._counts: Int64s = np.empty(0, np.int64)
        self._facts: WeakKeyDictionary[SeriesList, tuple[int, Facts]] = WeakKeyDictionary()
        self._now = 1
        self._turned = clock.monotonic()

    def look_up(self, series: SeriesList) -> Facts:
        """What is known of each. Raises InvalidRequestError naming the field of the first that is illegal.

        Nothing is counted of a list that is refused.
        """
        with self._lock:
            if series.roster is not self._columns.roster:
                self._columns, self._counts = _Columns(series.roster), np.zeros_like(self._counts)
                self._facts.clear()
            self._turn()
            turn, facts = self._facts.get(series, (_NEVER, None))
            if facts is not None and turn == self._now:
                return facts
            self._columns.fit()
            columns, numbers = self._columns, series.numbers
            missing = np.flatnonzero(columns.seen[numbers] != self._now)
            if len(missing):
                self._learn(series, missing)
                self._admit(numbers[missing])
            facts = _facts(series, columns, list(self._projects))
            self._facts[series] = self._now, facts
            return facts

    def _turn(self) -> None:
        passed = self._clock.monotonic() - self._turned
        if passed < GENERATION_SECONDS:
            return
        self._now += 1 if passed < 2 * GENERATION_SECONDS else 2
        self._turned = self._clock.monotonic()
        live = self._columns.project[self._columns.seen >= self._now - 1]
        self._counts = np.bincount(live, minlength=len(self._projects))

    def _learn(self, series: SeriesList, places: Int64s) -> None:
        columns, numbers = self._columns, series.numbers
        for place in places[columns.project[numbers[places]] == _NEVER].tolist():
            one = series[place]
            number = numbers[place]
            metric = catalog.find(check_series(one).metric)
            columns.unknown[number] = metric is None
            columns.lowest[number], columns.highest[number] = _bounds(metric)
            columns.project[number] = self._projects.setdefault(one.project, len(self._projects))

    def _admit(self, numbers: Int64s) -> None:
        columns, names = self._columns, list(self._projects)
        fresh = columns.project[numbers[columns.seen[numbers] < self._now - 1]]
        more = np.bincount(fresh, minlength=len(names))
        counts = np.zeros(len(names), np.int64)
        counts[: len(self._counts)] = self._counts
        for project in np.flatnonzero(more).tolist():
            if counts[project] + more[project] > self._limit:
                raise LimitExceededError(f"project {names[project]} may have {self._limit} live series", "project")
        self._counts = counts + more
        columns.seen[numbers] = self._now


def _facts(series: SeriesList, columns: _Columns, names: Sequence[str]) -> Facts:
    numbers = series.numbers
    lowest, highest, project = columns.lowest[numbers], columns.highest[numbers], columns.project[numbers]
    floor, ceiling = float(lowest.max(initial=-np.inf)), float(highest.min(initial=np.inf))
    unknown = columns.unknown[numbers]
    if len(project) and (project == project[0]).all() and not unknown.any():
        return Facts(lowest, highest, floor, ceiling, [(names[int(project[0])], None)])
    parts = [(names[one], np.flatnonzero((project == one) & ~unknown)) for one in np.unique(project).tolist()]
    return Facts(lowest, highest, floor, ceiling, parts, _names(series, np.flatnonzero(unknown)))


def _names(series: SeriesList, places: Int64s) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for place in places.tolist():
        found[series[place].metric] = None
        if len(found) == MAX_UNKNOWN:
            break
    return tuple(found)


def _bounds(metric: Metric | None) -> tuple[float, float]:
    lowest = float("-inf") if metric is None or metric.minimum is None else metric.minimum
    return lowest, float("inf") if metric is None or metric.maximum is None else metric.maximum
