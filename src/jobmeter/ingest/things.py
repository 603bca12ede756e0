"""What samples are of (a replica on a device of a node), by small numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobmeter.ingest.join import extremes, numbered, series_of
from jobmeter.model.batch import Int64s, SampleBatch
from jobmeter.model.roster import Roster
from jobmeter.model.series import Series
from jobmeter.registry.base import Observation

NEVER = np.iinfo(np.int64).max
_NOBODY, _UNKNOWN = -1, -2


class Thing(NamedTuple):
    """One of them; names that do not apply are empty."""

    project: str
    job: str
    replica: str
    attempt: int
    cluster: str
    node: str
    device: str


class Seen(NamedTuple):
    """Things (int64[n] numbers, each once), and from when to when each was seen (int64[n] ms)."""

    thing: Int64s
    first: Int64s
    last: Int64s

    def where(self, chosen: NDArray[np.bool_]) -> "Seen":
        """Some of them."""
        return Seen(self.thing[chosen], self.first[chosen], self.last[chosen])


class Spans:
    """From when (``first``, ms) to when (``last``) each thing was seen, by its number; ``NEVER`` for what was not."""

    def __init__(self) -> None:
        self.first: Int64s = np.empty(0, np.int64)
        self.last: Int64s = np.empty(0, np.int64)

    def fit(self, count: int) -> None:
        """Make room for that many things."""
        more = count - len(self.first)
        if more > 0:
            more = max(more, len(self.first))
            self.first = np.concatenate((self.first, np.full(more, NEVER)))
            self.last = np.concatenate((self.last, np.full(more, -NEVER)))

    def widen(self, seen: Seen) -> None:
        """Take what was seen in."""
        self.first[seen.thing] = np.minimum(self.first[seen.thing], seen.first)
        self.last[seen.thing] = np.maximum(self.last[seen.thing], seen.last)

    def forget(self, things: Int64s) -> None:
        """Take it that these were not seen."""
        self.first[things], self.last[things] = NEVER, -NEVER

    def all(self) -> Seen:
        """Everything that was seen."""
        things = np.flatnonzero(self.first != NEVER)
        return Seen(things, self.first[things], self.last[things])


class Things:
    """Numbers of things, and the thing of each series of a roster. Not safe for several threads."""

    def __init__(self) -> None:
        self._numbers: dict[Thing, int] = {}
        self._things: list[Thing] = []
        self._roster = Roster()
        self._of_series: Int64s = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._things)

    def number(self, thing: Thing) -> int:
        """The number of a thing; the next one when it had none."""
        number = self._numbers.setdefault(thing, len(self._things))
        if number == len(self._things):
            self._things.append(thing)
        return number

    def of(self, seen: Seen) -> list[Thing]:
        """The things of these numbers."""
        return [self._things[number] for number in seen.thing.tolist()]

    def of_job(self, project: str, job: str) -> Int64s:
        """The numbers of everything that is of a job."""
        mine = (at for at, thing in enumerate(self._things) if thing.job == job and thing.project == project)
        return np.fromiter(mine, np.int64)

    def seen(self, batch: SampleBatch) -> Seen:
        """What a batch was measured of, and when."""
        batch = numbered(batch)
        series = series_of(batch)
        if series.roster is not self._roster:
            self._roster, self._of_series = series.roster, np.empty(0, np.int64)
        more = len(self._roster) - len(self._of_series)
        if more > 0:
            self._of_series = np.concatenate((self._of_series, np.full(max(more, len(self._of_series)), _UNKNOWN)))
        positions, first, last = extremes(batch)
        numbers = series.numbers[positions]
        for place in np.flatnonzero(self._of_series[numbers] == _UNKNOWN).tolist():
            self._of_series[numbers[place]] = self._number_of(series[int(positions[place])])
        things = self._of_series[numbers]
        some = things != _NOBODY
        return _of_each(things[some], first[some], last[some], len(self._things))

    def observations(self, seen: Seen) -> list[Observation]:
        """The same, in the registry's words."""
        return [
            Observation(**thing._asdict(), first_ms=first, last_ms=last)
            for thing, first, last in zip(self.of(seen), seen.first.tolist(), seen.last.tolist(), strict=True)
        ]

    def _number_of(self, series: Series) -> int:
        if not series.job and not series.node:
            return _NOBODY
        place = series.cluster, series.node, series.device
        return self.number(Thing(series.project, series.job, series.replica, series.attempt, *place))


def _of_each(things: Int64s, first: Int64s, last: Int64s, count: int) -> Seen:
    """Each thing once, in the order in which they come."""
    order = np.arange(len(things))
    # Written backwards, so that the first place of a thing stays. What no thing leads to is never read.
    first_of = np.empty(count, np.int64)
    first_of[things[::-1]] = order[::-1]
    place = first_of[things]
    earliest, latest = first.copy(), last.copy()
    np.minimum.at(earliest, place, first)
    np.maximum.at(latest, place, last)
    once = place == order
    return Seen(things[once], earliest[once], latest[once])
