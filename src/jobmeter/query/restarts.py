"""Restarts: the devices that a replica had one after another are one member of its job.

A replica that restarts on another node, or on other devices, never has the old and the new ones together. Counted as
members of their own, both would be added up in the bucket of the restart. So its stays, one for each attempt and node,
follow each other, and the devices of a stay take the places of those before: by their name, else in their order.

Samples without attempts (of an import, for example) show one attempt on several nodes, or on several devices one after
another. They follow each other too, unless allocations say that the replica had them at the same time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from jobmeter.model.job import AllocationSource, JobView
from jobmeter.model.order import natural
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.query.request import By
from jobmeter.query.shape import Entry, Member

_Time = tuple[int, int]
"""From when until when a replica had something, in ms; the end is exclusive."""
_NodeKey = tuple[str, str]


class _Use(NamedTuple):
    """A device in one attempt of a replica."""

    attempt: int
    cluster: str
    node: str
    device: str


class JoinedEntries(NamedTuple):
    """Entries by what they are members of. ``lasting``: no allocation had a say in it, whose times may change."""

    entries: list[Entry]
    lasting: bool


def join_restarts(entries: Sequence[Entry], view: JobView, by: By) -> JoinedEntries:
    """Return entries in which the devices that a replica of a job had one after another are the same member.

    With ``By.NODE`` only those of one node, with ``By.DEVICE`` none: each device has a line of its own there.
    """
    attempts = {(one.name, one.node): one.attempt for one in sorted(view.replicas, key=lambda one: one.attempt)}
    uses = [None if by is By.DEVICE or not one.member.device else _use(one, attempts) for one in entries]
    replicas: dict[tuple[str, str, str], dict[_Use, Member]] = {}
    for entry, use in zip(entries, uses, strict=True):
        if use is not None:
            replicas.setdefault(_group(entry, by), {}).setdefault(use, entry.member)
    members: dict[tuple[tuple[str, str, str], _Use], Member] = {}
    lasting, times = True, _times(view)
    for group, found in replicas.items():
        if len(found) > 1:
            replica = _Replica(group[0], times)
            replica.follow(found)
            lasting = lasting and replica.lasting
            members |= {(group, use): member for use, member in replica.members(found) if member != found[use]}
    if not members:
        return JoinedEntries(list(entries), lasting=True)
    joined = [
        entry if use is None else replace(entry, member=members.get((_group(entry, by), use), entry.member))
        for entry, use in zip(entries, uses, strict=True)
    ]
    return JoinedEntries(joined, lasting)


def _group(entry: Entry, by: By) -> tuple[str, str, str]:
    member = entry.member
    return (entry.replica, member.cluster, member.node) if by is By.NODE else (entry.replica, "", "")


def _use(entry: Entry, attempts: Mapping[tuple[str, str], int]) -> _Use:
    series, member = entry.series, entry.member
    # A series of the device itself has no attempt: it is that of the replica on the device's node.
    attempt = series.attempt if series.job else attempts.get((entry.replica, member.node), 0)
    return _Use(attempt, member.cluster, member.node, member.device)


def _times(view: JobView) -> Mapping[tuple[str, str, str], _Time]:
    """When each replica had each device, by (replica, node, device): from the first time to the last."""
    found: dict[tuple[str, str, str], _Time] = {}
    for one in view.allocations:
        # What samples say ends with the last sample.
        end = MAX_TIME_MS if one.end is None else one.end + (one.source is AllocationSource.IMPORT)
        key = one.replica, one.node, one.device
        start, last = found.get(key, (one.start, end))
        found[key] = min(start, one.start), max(last, end)
    return found


@dataclass(slots=True)
class _Place:
    """Places of a replica at one time, and their successors: the uses of one member."""

    uses: list[_Use] = field(default_factory=list)


@dataclass(slots=True)
class _Lane:
    """Stays that follow each other: ``attempt`` and ``time`` are of the last one."""

    places: list[_Place] = field(default_factory=list)
    attempt: int = -1
    node: _NodeKey = ("", "")
    time: _Time | None = None


class _Replica:
    """The stays of one replica, and the places in which their devices follow each other."""

    def __init__(self, name: str, times: Mapping[tuple[str, str, str], _Time]) -> None:
        self._name = name
        self._times = times
        self._lanes: list[_Lane] = []
        self.lasting = True
        """False once an allocation decided."""

    def follow(self, uses: Iterable[_Use]) -> None:
        """Let each stay follow an earlier one, where there is one that it does not overlap."""
        stays: dict[tuple[int, str, str], list[str]] = {}
        for use in sorted(uses, key=self._order):
            stays.setdefault(use[:3], []).append(use.device)
        for (attempt, cluster, node), devices in stays.items():
            time = self._stay_time(node, devices)
            free = [lane for lane in self._lanes if self._ended(lane, attempt, time)]
            same = [lane for lane in free if lane.node == (cluster, node)]
            lane = next(iter(same or free), None)
            if lane is None:
                self._lanes.append(lane := _Lane())
            lane.attempt, lane.node, lane.time = attempt, (cluster, node), time
            rows = self._rows(node, devices)
            _take_places(lane, [[_Use(attempt, cluster, node, device) for device in row] for row in rows])

    def members(self, found: Mapping[_Use, Member]) -> Iterator[tuple[_Use, Member]]:
        """The member of each use: that of the last one in its place."""
        taken: set[Member] = set()
        for place in sorted((place for lane in self._lanes for place in lane.places), key=lambda one: len(one.uses)):
            own = [found[use] for use in reversed(place.uses)]
            free = next((member for member in own if member not in taken or len(set(own)) == 1), None)
            member = free or own[0]._replace(device=f"{own[0].device}~{len(taken)}")
            taken.add(member)
            yield from ((use, member) for use in place.uses)

    def _order(self, use: _Use) -> tuple[object, ...]:
        time = self._time(use.node, use.device)
        return use.attempt, -1 if time is None else time[0], natural(use.node), natural(use.device)

    def _ended(self, lane: _Lane, attempt: int, time: _Time | None) -> bool:
        """Return True where the stays of a lane were over before another one, of that attempt and time."""
        if lane.attempt != attempt:
            return True
        if lane.time is None or time is None:
            return bool(self._name)  # a replica is in one place; what has no name may be several
        self.lasting = False
        return lane.time[1] <= time[0]

    def _rows(self, node: str, devices: Sequence[str]) -> list[list[str]]:
        """The devices of a stay, those that it had one after another together. They are in the order of their begin."""
        rows: list[list[str]] = []
        ends: list[int] = []
        for device in devices:
            time = self._time(node, device)
            row = next((at for at, end in enumerate(ends) if time is not None and end <= time[0]), None)
            # One sample says nothing of how long it had the device.
            end = MAX_TIME_MS if time is None or time[1] - time[0] <= 1 else time[1]
            if row is None:
                rows.append([device])
                ends.append(end)
            else:
                self.lasting = False
                rows[row].append(device)
                ends[row] = end
        return rows

    def _time(self, node: str, device: str) -> _Time | None:
        return self._times.get((self._name, node, device))

    def _stay_time(self, node: str, devices: Iterable[str]) -> _Time | None:
        found = [self._time(node, device) for device in devices]
        known = [time for time in found if time is not None]
        if len(known) < len(found):
            return None
        return min(time[0] for time in known), max(time[1] for time in known)


def _take_places(lane: _Lane, rows: Iterable[list[_Use]]) -> None:
    """Put each row of uses into the place of an earlier one: of that device name, else the first free one."""
    free = dict(enumerate(lane.places))
    waiting: list[list[_Use]] = []
    for row in rows:
        names = {use.device for use in row}
        same = next((at for at, place in free.items() if place.uses[-1].device in names), None)
        if same is None:
            waiting.append(row)
        else:
            free.pop(same).uses.extend(row)
    for row in waiting:
        if free:
            free.pop(next(iter(free))).uses.extend(row)
        else:
            lane.places.append(_Place(list(row)))
