"""What samples are of (a replica on a device of a node), by small numbers."""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from jobmeter.ingest.join import extremes, numbered, series_of
from jobmeter.model.batch import Int64s, SampleBatch
from jobmeter.model.roster import Roster, SeriesList
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

    def part(self, most: int) -> "Seen":
        """The first of them, so many at most."""
        return Seen(self.thing[:most], self.first[:most], self.last[:most])

    def where(self, chosen: NDArray[np.bool_]) -> "Seen":
        """Some of them."""
        return Seen(self.thing[chosen], self.first[chosen], self.last[chosen])


NOTHING = Seen(*(np.empty(0, np.int64) for _ in Seen._fields))
"""None of them."""


def merged(parts: Sequence[Seen]) -> Seen:
    """Each thing of any of them once, from when to when it was seen in all of them."""
    if not parts:
        return NOTHING
    if len(parts) == 1:
        return parts[0]
    thing, places = np.unique(np.concatenate([part.thing for part in parts]), return_inverse=True)
    first, last = np.full(len(thing), NEVER), np.full(len(thing), -NEVER)
    np.minimum.at(first, places, np.concatenate([part.first for part in parts]))
    np.maximum.at(last, places, np.concatenate([part.last for part in parts]))
    return Seen(thing, first, last)


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


class _Members:
    """Which things some series are of."""

    def __init__(self, things: Int64s) -> None:
        """``things`` int64[n]: of each series its thing, or ``_NOBODY``."""
        # A stable sort of 16 bits is much the faster one.
        few = len(things) and int(things.max()) - int(things.min()) < 2**16
        order = np.argsort((things - things.min()).astype(np.uint16) if few else things, kind="stable")
        self._order = order[np.searchsorted(things[order], 0) :]
        ordered = things[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=_NOBODY))
        self._things = ordered[self._starts]

    def spans(self, first: Int64s, last: Int64s) -> Seen:
        """Each thing once, from the first and last time of each series."""
        if not len(self._things):
            return Seen(self._things, first[:0], last[:0])
        earliest = np.minimum.reduceat(first[self._order], self._starts)
        return Seen(self._things, earliest, np.maximum.reduceat(last[self._order], self._starts))


class Things:
    """Numbers of things, and the thing of each series of a roster. Not safe for several threads."""

    def __init__(self) -> None:
        self._numbers: dict[Thing, int] = {}
        self._things: list[Thing] = []
        self._roster = Roster()
        self._of_series: Int64s = np.empty(0, np.int64)
        self._members: WeakKeyDictionary[SeriesList, _Members] = WeakKeyDictionary()

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
            self._members.clear()
        positions, first, last = extremes(batch)
        if len(positions) < len(series):
            return self._of(series, positions).spans(first, last)
        members = self._members.get(series)
        if members is None:
            members = self._members[series] = self._of(series, positions)
        return members.spans(first, last)

    def _of(self, series: SeriesList, positions: Int64s) -> "_Members":
        """The things of some of the series."""
        more = len(self._roster) - len(self._of_series)
        if more > 0:
            self._of_series = np.concatenate((self._of_series, np.full(max(more, len(self._of_series)), _UNKNOWN)))
        numbers = series.numbers[positions]
        for place in np.flatnonzero(self._of_series[numbers] == _UNKNOWN).tolist():
            self._of_series[numbers[place]] = self._number_of(series[int(positions[place])])
        return _Members(self._of_series[numbers])

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
