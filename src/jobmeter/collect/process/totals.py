"""Sums of the counters of processes that come and go. They never fall and never exceed the real usage.

A process's counters include the counters of children that it has waited for. So when a child is gone, its usage appears
in its parent, unless the parent did not wait for it (it ended first, or ignores its children): then it would be lost.
Each update compares the usage of ended children with the amount that their parent took over, and adds the rest to the
owner.

Processes are read one after the other, so a parent may be read before it waits for a child, and the child after it.
Usage that no living ancestor has taken over is therefore retained only at the second update. A process that was missing
and is back, or whose final figures come late, is not counted twice. Neither are its descendants, for which it may have
waited, and whose usage was retained meanwhile.

A process may change its owner. Its earlier usage stays with the previous owner, also when its parent takes over both.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
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

    ``waited`` is the part of ``values`` that came from children, absent if unknown. ``late``: the process is older than
    its membership, and usage before its first reading belongs to nobody.
    """

    owner: O
    values: Values
    parent: K | None = None
    waited: Values | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Missing(Generic[K, O]):
    """Process that is gone: its last counts, all readings of that time, the first update without it, and its heir."""

    reading: ProcessReading[K, O]
    base: Mapping[K, ProcessReading[K, O]]
    since: int
    heir: K | None = None


@dataclass(slots=True)
class _Retained(Generic[O]):
    """Retained counts of processes of one owner that went missing together."""

    owner: O
    values: Values


@dataclass(frozen=True, slots=True)
class _Closed(Generic[K, O]):
    """Process whose counts were divided at an update: its last reading, and the part of other owners."""

    reading: ProcessReading[K, O]
    foreign: Values
    retained: _Retained[O]
    since: int
    update: int

    @property
    def own(self) -> Values:
        return _subtract(self.reading.values, self.foreign)


class ProcessTotals(Generic[K, O]):
    """Sums by owner. ``width`` is the number of counters of each process. Not thread-safe."""

    def __init__(self, width: int) -> None:
        self._zero: Values = (0.0,) * width
        self._last: dict[K, ProcessReading[K, O]] = {}
        self._missing: dict[K, _Missing[K, O]] = {}
        self._closed: dict[K, _Closed[K, O]] = {}
        self._gone: dict[O, Values] = {}
        self._foreign: dict[K, Values] = {}
        self._undecided: dict[K, Values] = {}
        self._highest: dict[O, Values] = {}
        self._floors: dict[O, Values] = {}
        self._updates = 0

    def __contains__(self, key: K) -> bool:
        """Return True for a process that is read, and for a vanished one as long as it is remembered."""
        return key in self._last or key in self._missing or key in self._closed

    def resume(self, floors: Mapping[O, Values]) -> None:
        """Set the sums of an earlier run. The difference belongs to processes that are gone."""
        self._floors = dict(floors)

    def update(
        self,
        live: Mapping[K, ProcessReading[K, O]],
        ended: Mapping[K, ProcessReading[K, O]] | None = None,
        left: Mapping[K, ProcessReading[K, O]] | None = None,
    ) -> None:
        """Update with the current counts.

        ``ended`` are final counts of processes reaped since the last call by a parent outside. ``left`` are final
        counts of processes whose parent may have taken them over; they include the usage of children reaped before the
        last call.
        """
        final, last = ended or {}, left or {}
        now = {**live, **final}
        self._updates += 1
        for key, reading in {**last, **now}.items():
            self._begin_reading(key, reading)
        self._last.update((key, reading) for key, reading in last.items() if key not in now)
        gone = {key: missing for key, missing in self._missing.items() if key not in now}
        gone |= {
            key: _Missing(reading, self._last, self._updates) for key, reading in self._last.items() if key not in now
        }
        self._missing = self._divide_missing(gone, now, final)
        for key, reading in final.items():
            self._add_to_owner(reading.owner, _subtract(reading.values, self._foreign.pop(key, self._zero)))
        self._last = {key: reading for key, reading in live.items() if key not in final}
        self._foreign = {
            key: values for key, values in self._foreign.items() if key in self._last or key in self._missing
        }

    def get_totals(self) -> dict[O, Values]:
        """Return the sums of every owner until it is forgotten."""
        sums = {**dict.fromkeys(self._highest, self._zero), **self._gone}
        for key, reading in self._last.items():
            own = _subtract(self._subtract_foreign(key, reading), self._undecided.get(key, self._zero))
            sums[reading.owner] = _add(sums.get(reading.owner, self._zero), own)
        for owner in self._floors.keys() & sums.keys():
            missing = _subtract(self._floors.pop(owner), sums[owner])
            self._add_to_owner(owner, missing)
            sums[owner] = _add(sums[owner], missing)
        for owner, values in sums.items():
            sums[owner] = self._highest[owner] = tuple(map(max, values, self._highest.get(owner, self._zero)))
        return sums

    def forget(self, owners: Iterable[O]) -> None:
        """Drop the sums of finished owners."""
        for owner in owners:
            self._gone.pop(owner, None)
            self._floors.pop(owner, None)
            self._highest.pop(owner, None)

    def _begin_reading(self, key: K, reading: ProcessReading[K, O]) -> None:
        """Assign earlier usage of a process that joins an owner to its previous owner, or to nobody.

        The counts of a process that is back include its retained counts, and the counts of children that it had waited
        for.
        """
        if closed := self._closed.pop(key, None):
            self._foreign[key] = closed.foreign
            self._take_back(key, reading.owner, closed.retained, closed.own)
            self._take_back_below(key, reading, closed.reading, closed.since)
            return
        missing = self._missing.get(key)
        before = missing.reading if missing else self._last.get(key)
        if before is None:
            if reading.late:
                self._foreign[key] = reading.values
            return
        if before.owner != reading.owner:
            own = self._subtract_foreign(key, before)
            self._add_to_owner(before.owner, own)
            self._add_foreign(key, own)
        if missing:
            self._take_back_below(key, reading, before, missing.since)

    def _divide_missing(
        self,
        gone: dict[K, _Missing[K, O]],
        now: Mapping[K, ProcessReading[K, O]],
        final: Mapping[K, ProcessReading[K, O]],
    ) -> dict[K, _Missing[K, O]]:
        """Add counts of ended processes that no heir took over to their owners. Return the undecided processes."""
        together: defaultdict[tuple[K | None, K | None, int], list[K]] = defaultdict(list)
        for key, missing in gone.items():
            heir = self._find_heir(missing, now)
            together[heir, missing.heir if heir is None else None, id(missing.base)].append(key)
        waiting: dict[K, _Missing[K, O]] = {}
        self._undecided = {}
        for (heir, ended, _), keys in together.items():
            base = gone[keys[0]].base
            if heir is None:
                # The heir of the last update ended, too: its last reading has a part of these counts.
                if ended in gone and ended in base:
                    last = gone[ended].reading
                    self._divide(
                        keys, gone, (ended, last.owner), _subtract(_read_waited(last), _read_waited(base[ended]))
                    )
                else:
                    self._divide(keys, gone, None, self._zero)
                continue
            taken = _subtract(_read_waited(now[heir]), _read_waited(base[heir]) if heir in base else self._zero)
            lost = reduce(_add, (gone[key].reading.values for key in keys))
            nearest_named = all(gone[key].heir == heir for key in keys)
            if nearest_named or heir in final or _take_least(lost, taken) == lost:
                self._divide(keys, gone, (heir, now[heir].owner), taken)
            else:
                waiting.update((key, replace(gone[key], heir=heir)) for key in keys)
                of_heir = (
                    self._subtract_foreign(key, gone[key].reading)
                    for key in keys
                    if gone[key].reading.owner == now[heir].owner
                )
                others = _take_least(_subtract(lost, reduce(_add, of_heir, self._zero)), taken)
                self._undecided[heir] = _add(self._undecided.get(heir, self._zero), others)
        return waiting

    def _divide(
        self, keys: Iterable[K], gone: Mapping[K, _Missing[K, O]], heir: tuple[K, O] | None, taken: Values
    ) -> None:
        by_owner: defaultdict[O, list[K]] = defaultdict(list)
        foreign = {key: self._foreign.pop(key, self._zero) for key in keys}
        passed = _take_least(reduce(_add, foreign.values(), self._zero), taken)
        taken = _subtract(taken, passed)
        for key in foreign:
            by_owner[gone[key].reading.owner].append(key)
        for owner, own in by_owner.items():
            lost = reduce(_add, (_subtract(gone[key].reading.values, foreign[key]) for key in own))
            found = _take_least(lost, taken)
            taken = _subtract(taken, found)
            retained = _Retained(owner, _subtract(lost, found))
            self._add_to_owner(owner, retained.values)
            for key in own:
                self._closed[key] = _Closed(gone[key].reading, foreign[key], retained, gone[key].since, self._updates)
            if heir is not None and owner != heir[1]:
                self._add_to_owner(owner, found)
                passed = _add(passed, found)
        if heir is not None and any(passed):
            self._add_foreign(heir[0], passed)
        for key in list(self._closed)[: max(len(self._closed) - _REMEMBERED, 0)]:
            del self._closed[key]

    def _take_back(self, key: K, owner: O, retained: _Retained[O], most: Values) -> Values:
        """Exclude retained counts from the owner, or from a process of another owner. Return the excluded amount."""
        back = _take_least(most, retained.values)
        retained.values = _subtract(retained.values, back)
        if owner == retained.owner:
            self._gone[owner] = _subtract(self._gone.get(owner, self._zero), back)
        else:
            self._add_foreign(key, back)
        return back

    def _take_back_below(self, key: K, now: ProcessReading[K, O], before: ProcessReading[K, O], since: int) -> None:
        """Take back the retained counts of a process's descendants, if it has waited for them while it was missing."""
        taken = _subtract(_read_waited(now), _read_waited(before))
        if not any(taken):
            return
        found = {child: closed for child, closed in self._closed.items() if closed.update >= since}
        parents = {key}
        while parents := {child for child, closed in found.items() if closed.reading.parent in parents}:
            for closed in map(found.pop, parents):
                taken = _subtract(
                    taken, self._take_back(key, now.owner, closed.retained, _take_least(taken, closed.own))
                )
                passed_on = _take_least(closed.foreign, taken)
                taken = _subtract(taken, passed_on)
                self._add_foreign(key, passed_on)

    def _find_heir(self, missing: _Missing[K, O], now: Mapping[K, ProcessReading[K, O]]) -> K | None:
        """Return the nearest living ancestor; None without one."""
        parent = missing.reading.parent
        steps = len(missing.base) + len(self._last)
        while parent is not None and parent not in now and steps:
            last = missing.base.get(parent) or self._last.get(parent)
            parent = last.parent if last else None
            steps -= 1
        return parent

    def _subtract_foreign(self, key: K, reading: ProcessReading[K, O]) -> Values:
        foreign = self._foreign.get(key)
        return reading.values if foreign is None else _subtract(reading.values, foreign)

    def _add_foreign(self, key: K, values: Values) -> None:
        self._foreign[key] = _add(self._foreign.get(key, self._zero), values)

    def _add_to_owner(self, owner: O, values: Values) -> None:
        self._gone[owner] = _add(self._gone.get(owner, self._zero), values)


def _read_waited(reading: ProcessReading[K, O]) -> Values:
    return reading.values if reading.waited is None else reading.waited


def _add(left: Values, right: Values) -> Values:
    return tuple(map(add, left, right))


def _subtract(left: Values, right: Values) -> Values:
    return tuple(max(a - b, 0.0) for a, b in zip(left, right, strict=True))


def _take_least(left: Values, right: Values) -> Values:
    return tuple(map(min, left, right))
