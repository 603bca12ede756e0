"""What the funnel remembers of the series that it saw lately, so that a batch of known ones costs a look-up each."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from jobmeter.errors import LimitExceededError
from jobmeter.ingest.check import known_metric
from jobmeter.model.catalog import Metric
from jobmeter.model.series import Series, check_series
from jobmeter.model.time import Clock

GENERATION_SECONDS = 3_600.0
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Known:
    """One series: its catalogue row, and its bounds as plain numbers."""

    metric: Metric
    lowest: float
    highest: float


class KnownSeries:
    """Two generations of series: those of this hour, and those of the hour before.

    A series is checked when it is new. Their number is what ``project_series`` limits. Safe for several threads.
    """

    def __init__(self, clock: Clock, project_series: int) -> None:
        self._clock = clock
        self._limit = project_series
        self._lock = threading.Lock()
        self._young: dict[Series, Known] = {}
        self._old: dict[Series, Known] = {}
        self._counts: dict[str, int] = {}
        self._turned = clock.monotonic()

    def look_up(self, series: Sequence[Series]) -> list[Known]:
        """What is known of each. Raises InvalidRequestError naming the field of the first that is illegal.

        Nothing is remembered of a list that is refused.
        """
        with self._lock:
            self._turn()
            young = self._young
            found = [young.get(one) for one in series]
            missing = {one: self._learn(one) for one, known in zip(series, found, strict=True) if known is None}
            self._admit(missing)
        return [known if known is not None else missing[one] for one, known in zip(series, found, strict=True)]

    def _turn(self) -> None:
        passed = self._clock.monotonic() - self._turned
        if passed < GENERATION_SECONDS and len(self._young) < _MOST:
            return
        self._old, self._young = (self._young if passed < 2 * GENERATION_SECONDS else {}), {}
        self._counts = {}
        for one in self._old:
            self._counts[one.project] = self._counts.get(one.project, 0) + 1
        self._turned = self._clock.monotonic()

    def _learn(self, one: Series) -> Known:
        old = self._old.get(one)
        if old is not None:
            return old
        check_series(one)
        metric = known_metric(one)
        lowest = float("-inf") if metric.minimum is None else metric.minimum
        return Known(metric, lowest, float("inf") if metric.maximum is None else metric.maximum)

    def _admit(self, missing: dict[Series, Known]) -> None:
        fresh: dict[str, int] = {}
        for one in missing:
            if one not in self._old:
                fresh[one.project] = fresh.get(one.project, 0) + 1
        for project, count in fresh.items():
            if self._counts.get(project, 0) + count > self._limit:
                raise LimitExceededError(f"project {project} may have {self._limit} live series", "series")
        for project, count in fresh.items():
            self._counts[project] = self._counts.get(project, 0) + count
        self._young.update(missing)
