"""Sums of counters over things that come and go, which never fall.

The counters of a process hold those of the children that it has waited for. So when a child is gone, what it had used
shows up in its parent, unless the parent did not wait for it (it ended first, or ignores its children): then it would
be lost. Each update compares what the children that are gone had used with how much their parent grew, and keeps the
rest.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
O = TypeVar("O", bound=Hashable)  # noqa: E741
Values = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reading(Generic[K, O]):
    """What one thing has counted so far, whom it works for, and the thing that will take over its counts."""

    owner: O
    values: Values
    parent: K | None = None


class Totals(Generic[K, O]):
    """The sums by owner. ``width`` is the number of counters of each thing. Not safe for several threads."""

    def __init__(self, width: int) -> None:
        self._zero: Values = (0.0,) * width
        self._last: dict[K, Reading[K, O]] = {}
        self._gone: dict[O, Values] = {}
        self._foreign: dict[K, Values] = {}
        self._highest: dict[O, Values] = {}
        self._floors: dict[O, Values] = {}

    def resume(self, floors: Mapping[O, Values]) -> None:
        """Say what the sums had reached in an earlier life: what is missing then belongs to things that are gone."""
        self._floors = dict(floors)

    def update(self, live: Mapping[K, Reading[K, O]], ended: Mapping[K, Reading[K, O]] | None = None) -> None:
        """Take in what there is now. ``ended`` are final counts of things that were waited for since the last call."""
        now = {**live, **ended} if ended else live
        for parent, lost in self._lost(now).items():
            grown = _subtract(now[parent].values, self._last[parent].values)
            for owner, values in lost.items():
                taken = _least(values, grown)
                grown = _subtract(grown, taken)
                self._keep(owner, _subtract(values, taken))
                if owner != now[parent].owner:
                    self._keep(owner, taken)
                    self._foreign[parent] = _add(self._foreign.get(parent, self._zero), taken)
        for key, reading in (ended or {}).items():
            self._keep(reading.owner, _subtract(reading.values, self._foreign.pop(key, self._zero)))
        self._last = {key: reading for key, reading in live.items() if not ended or key not in ended}
        self._foreign = {key: values for key, values in self._foreign.items() if key in self._last}

    def totals(self) -> dict[O, Values]:
        """The sums of every owner that was ever seen and not forgotten. None of them is lower than it ever was."""
        sums = dict(self._gone)
        for key, reading in self._last.items():
            own = _subtract(reading.values, self._foreign.get(key, self._zero))
            sums[reading.owner] = _add(sums.get(reading.owner, self._zero), own)
        for owner in self._floors.keys() & sums.keys():
            missing = _subtract(self._floors.pop(owner), sums[owner])
            self._keep(owner, missing)
            sums[owner] = _add(sums[owner], missing)
        for owner, values in sums.items():
            sums[owner] = self._highest[owner] = _most(values, self._highest.get(owner, self._zero))
        return sums

    def forget(self, owners: Iterable[O]) -> None:
        """Drop what is kept of owners that are over."""
        for owner in owners:
            self._gone.pop(owner, None)
            self._floors.pop(owner, None)
            self._highest.pop(owner, None)

    def _lost(self, now: Mapping[K, Reading[K, O]]) -> dict[K, dict[O, Values]]:
        """What the things that are gone had counted, by the nearest ancestor that is still there and by owner.

        What has no such ancestor is kept at once.
        """
        lost: defaultdict[K, dict[O, Values]] = defaultdict(dict)
        for key, reading in self._last.items():
            if key in now:
                continue
            values = _subtract(reading.values, self._foreign.pop(key, self._zero))
            heir = self._heir(reading, now)
            if heir is None:
                self._keep(reading.owner, values)
            else:
                lost[heir][reading.owner] = _add(lost[heir].get(reading.owner, self._zero), values)
        return lost

    def _heir(self, reading: Reading[K, O], now: Mapping[K, Reading[K, O]]) -> K | None:
        parent = reading.parent
        steps = len(self._last)
        while parent is not None and parent in self._last and steps:
            if parent in now:
                return parent
            parent = self._last[parent].parent
            steps -= 1
        return None

    def _keep(self, owner: O, values: Values) -> None:
        self._gone[owner] = _add(self._gone.get(owner, self._zero), values)


def _add(left: Values, right: Values) -> Values:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def _subtract(left: Values, right: Values) -> Values:
    return tuple(max(a - b, 0.0) for a, b in zip(left, right, strict=True))


def _least(left: Values, right: Values) -> Values:
    return tuple(map(min, left, right))


def _most(left: Values, right: Values) -> Values:
    return tuple(map(max, left, right))
