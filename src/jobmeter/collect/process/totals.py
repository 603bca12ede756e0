"""Sums of the counters of processes that come and go. They never decrease and never exceed the real usage.

A process's counters include the counters of children that it has waited for. So when a child is gone, its usage appears
in its parent, unless the parent did not wait for it (it ended first, or ignores its children): then it would be lost.
Each update compares the usage of ended children with the amount that their parent took over, and adds the rest to the
owner.

Processes are read one after the other, so a parent may be read before it waits for a child, and the child after it.
Usage that no living ancestor has taken over is therefore retained only at the second update. A process that was missing
and is back, or whose final figures come late, is not counted twice.

A process may change its owner: its earlier usage stays with the previous owner.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
O = TypeVar("O", bound=Hashable)  # noqa: E741
Values = tuple[float, ...]

_REMEMBERED = 4_096
"""Most vanished processes that are remembered, in case they reappear."""


@dataclass(frozen=True, slots=True)
class ProcessReading(Generic[K, O]):
    """Counts of one process, its owner, and its parent, which will take over its counts.

    ``waited`` is the part of ``values`` that was taken over from children; absent if unknown. A process that is
    ``late`` is older than its membership: usage before its first reading belongs to nobody.
    """

    owner: O
    values: Values
    parent: K | None = None
    waited: Values | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Missing(Generic[K, O]):
    """Process that is gone: its last counts, all readings of that time, and its heir."""

    reading: ProcessReading[K, O]
    base: Mapping[K, ProcessReading[K, O]]
    heir: K | None = None


@dataclass(slots=True)
class _Retained:
    """Retained counts of processes that went missing together."""

    values: Values


class ProcessTotals(Generic[K, O]):
    """Sums by owner. ``width`` is the number of counters of each process. Not thread-safe."""

    def __init__(self, width: int) -> None:
        self._zero: Values = (0.0,) * width
        self._last: dict[K, ProcessReading[K, O]] = {}
        self._missing: dict[K, _Missing[K, O]] = {}
        self._closed: dict[K, tuple[ProcessReading[K, O], _Retained]] = {}
        self._gone: dict[O, Values] = {}
        self._foreign: dict[K, Values] = {}
        self._highest: dict[O, Values] = {}
        self._floors: dict[O, Values] = {}

    def resume(self, floors: Mapping[O, Values]) -> None:
        """Set the sums of an earlier run: the difference belongs to processes that are gone."""
        self._floors = dict(floors)

    def update(
        self,
        live: Mapping[K, ProcessReading[K, O]],
        ended: Mapping[K, ProcessReading[K, O]] | None = None,
        left: Mapping[K, ProcessReading[K, O]] | None = None,
    ) -> None:
        """Update with the current counts.

        ``ended`` are final counts of processes reaped since the last call by a parent outside. ``left`` are final
        counts of processes whose parent may have taken them over; they include the usage of their children that were
        reaped before the last call.
        """
        final, last = ended or {}, left or {}
        now = {**live, **final}
        for key, reading in (*last.items(), *now.items()):
            self._begin_reading(key, reading)
        self._last.update((key, reading) for key, reading in last.items() if key not in now)
        for key, reading in {**last, **now}.items():
            if key in self._closed:
                self._take_back(key, reading)
        gone = {key: missing for key, missing in self._missing.items() if key not in now}
        gone |= {key: _Missing(reading, self._last) for key, reading in self._last.items() if key not in now}
        self._missing = self._divide_missing(gone, now, final)
        for key, reading in final.items():
            self._add_to_owner(reading.owner, _subtract(reading.values, self._foreign.pop(key, self._zero)))
        self._last = {key: reading for key, reading in live.items() if key not in final}
        self._foreign = {
            key: values for key, values in self._foreign.items() if key in self._last or key in self._missing
        }

    def totals(self) -> dict[O, Values]:
        """The sums of every owner until it is forgotten. They never decrease."""
        sums = {**dict.fromkeys(self._highest, self._zero), **self._gone}
        for key, reading in self._last.items():
            sums[reading.owner] = _add(sums.get(reading.owner, self._zero), self._own(key, reading))
        for owner in self._floors.keys() & sums.keys():
            missing = _subtract(self._floors.pop(owner), sums[owner])
            self._add_to_owner(owner, missing)
            sums[owner] = _add(sums[owner], missing)
        for owner, values in sums.items():
            sums[owner] = self._highest[owner] = _most(values, self._highest.get(owner, self._zero))
        return sums

    def forget(self, owners: Iterable[O]) -> None:
        """Drop the sums of finished owners."""
        for owner in owners:
            self._gone.pop(owner, None)
            self._floors.pop(owner, None)
            self._highest.pop(owner, None)

    def _begin_reading(self, key: K, reading: ProcessReading[K, O]) -> None:
        """Assign earlier usage of a process that joins an owner to its previous owner, or to nobody."""
        missing = self._missing.get(key)
        before = missing.reading if missing else self._last.get(key)
        if before is None:
            if reading.late and key not in self._closed:
                self._foreign[key] = reading.values
        elif before.owner != reading.owner:
            own = self._own(key, before)
            self._add_to_owner(before.owner, own)
            self._foreign[key] = _add(self._foreign.get(key, self._zero), own)

    def _divide_missing(
        self,
        gone: dict[K, _Missing[K, O]],
        now: Mapping[K, ProcessReading[K, O]],
        final: Mapping[K, ProcessReading[K, O]],
    ) -> dict[K, _Missing[K, O]]:
        """Add counts of ended processes that no heir took over to their owners. Returns the undecided processes."""
        together: defaultdict[tuple[K | None, int], list[K]] = defaultdict(list)
        for key, missing in gone.items():
            together[self._heir(missing, now), id(missing.base)].append(key)
        waiting: dict[K, _Missing[K, O]] = {}
        for (heir, _), keys in together.items():
            if heir is None:
                self._divide(keys, gone, None, self._zero)
                continue
            base = gone[keys[0]].base
            taken = _subtract(_waited(now[heir]), _waited(base[heir]) if heir in base else self._zero)
            lost = self._sum_own(keys, gone)
            nearest_named = all(gone[key].heir == heir for key in keys)
            if nearest_named or heir in final or _least(lost, taken) == lost:
                self._divide(keys, gone, (heir, now[heir].owner), taken)
            else:
                waiting.update((key, replace(gone[key], heir=heir)) for key in keys)
        return waiting

    def _divide(
        self, keys: Iterable[K], gone: Mapping[K, _Missing[K, O]], heir: tuple[K, O] | None, taken: Values
    ) -> None:
        by_owner: defaultdict[O, list[K]] = defaultdict(list)
        for key in keys:
            by_owner[gone[key].reading.owner].append(key)
        for owner, own in by_owner.items():
            lost = self._sum_own(own, gone)
            for key in own:
                self._foreign.pop(key, None)
            found = _least(lost, taken)
            taken = _subtract(taken, found)
            retained = _Retained(_subtract(lost, found))
            self._add_to_owner(owner, retained.values)
            self._closed.update((key, (gone[key].reading, retained)) for key in own)
            if heir is not None and owner != heir[1]:
                self._add_to_owner(owner, found)
                self._foreign[heir[0]] = _add(self._foreign.get(heir[0], self._zero), found)
        for key in list(self._closed)[: max(len(self._closed) - _REMEMBERED, 0)]:
            del self._closed[key]

    def _take_back(self, key: K, now: ProcessReading[K, O]) -> None:
        """Subtract the retained counts of a process that is back: its own counters include them.

        They also include the counts of children that went missing with the process and that it had waited for.
        """
        reading, retained = self._closed.pop(key)
        taken = _subtract(_waited(now), _waited(reading))
        of_children = reduce(_add, self._closed_below(key, retained), self._zero)
        back = _least(_add(reading.values, _least(taken, of_children)), retained.values)
        retained.values = _subtract(retained.values, back)
        self._gone[reading.owner] = _subtract(self._gone.get(reading.owner, self._zero), back)

    def _closed_below(self, key: K, retained: _Retained) -> Iterator[Values]:
        """Yield the last counts of the descendants of a process that went missing with it."""
        found = {child: reading for child, (reading, other) in self._closed.items() if other is retained}
        parents = {key}
        while parents := {child for child, reading in found.items() if reading.parent in parents}:
            yield from (found.pop(child).values for child in parents)

    def _heir(self, missing: _Missing[K, O], now: Mapping[K, ProcessReading[K, O]]) -> K | None:
        """Return the nearest living ancestor; None without one."""
        parent = missing.reading.parent if missing.heir is None else missing.heir
        steps = len(missing.base) + len(self._last)
        while parent is not None and parent not in now and steps:
            last = missing.base.get(parent) or self._last.get(parent)
            parent = last.parent if last else None
            steps -= 1
        return parent

    def _own(self, key: K, reading: ProcessReading[K, O]) -> Values:
        foreign = self._foreign.get(key)
        return reading.values if foreign is None else _subtract(reading.values, foreign)

    def _sum_own(self, keys: Iterable[K], gone: Mapping[K, _Missing[K, O]]) -> Values:
        return reduce(_add, (self._own(key, gone[key].reading) for key in keys), self._zero)

    def _add_to_owner(self, owner: O, values: Values) -> None:
        self._gone[owner] = _add(self._gone.get(owner, self._zero), values)


def _waited(reading: ProcessReading[K, O]) -> Values:
    return reading.values if reading.waited is None else reading.waited


def _add(left: Values, right: Values) -> Values:
    return tuple(map(add, left, right))


def _subtract(left: Values, right: Values) -> Values:
    return tuple(max(a - b, 0.0) for a, b in zip(left, right, strict=True))


def _least(left: Values, right: Values) -> Values:
    return tuple(map(min, left, right))


def _most(left: Values, right: Values) -> Values:
    return tuple(map(max, left, right))
