"""Restarts: devices that a replica had one after another become one member of its job.

A replica that restarts on another node, or on other devices, never has the old and the new ones together. As separate
members, both would be added up in the bucket of the restart. So its stays, one for each attempt and node, follow each
other. The devices of a stay replace earlier ones by name, else by order.

Samples without attempts (from an import, for example) show one attempt on several nodes, or on several devices one
after another. They follow each other too, unless allocations state that the replica had them simultaneously.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import AllocationSource, JobView
from jobmeter.model.order import make_natural_key
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.query.request import By
from jobmeter.query.selected_series import SeriesPart, SubjectKey

_Time = tuple[int, int]
"""Time in which a replica had something: start and exclusive end in ms."""
_NodeKey = tuple[str, str]


class _Use(NamedTuple):
    """Device in one attempt of a replica."""

    attempt: int
    cluster: str
    node: str
    device: str


class JoinedEntries(NamedTuple):
    """Entries with their members. ``range_independent``: no allocation, whose times may change, affected them."""

    entries: list[SeriesPart]
    range_independent: bool


def join_restarts(entries: Sequence[SeriesPart], view: JobView, by: By) -> JoinedEntries:
    """Merge the devices that a replica of a job had one after another into one member.

    With ``By.NODE`` only devices of one node are merged; with ``By.DEVICE`` each device keeps its own line.
    """
    attempts = {(one.name, one.node): one.attempt for one in sorted(view.replicas, key=lambda one: one.attempt)}
    uses = [None if by is By.DEVICE or not one.member.device else _use(one, attempts) for one in entries]
    replicas: dict[tuple[str, str, str], dict[_Use, SubjectKey]] = {}
    for entry, use in zip(entries, uses, strict=True):
        if use is not None:
            replicas.setdefault(_group(entry, by), {}).setdefault(use, entry.member)
    members: dict[tuple[tuple[str, str, str], _Use], SubjectKey] = {}
    range_independent, times = True, _times(view)
    for group, found in replicas.items():
        replica = _Replica(group[0], times)
        if len(found) > 1 and not replica.was_together(found):
            replica.follow(found)
            range_independent = range_independent and replica.range_independent
            members |= {(group, use): member for use, member in replica.list_members(found) if member != found[use]}
    if not members:
        return JoinedEntries(list(entries), range_independent=True)
    joined = [
        entry if use is None else replace(entry, member=members.get((_group(entry, by), use), entry.member))
        for entry, use in zip(entries, uses, strict=True)
    ]
    return JoinedEntries(joined, range_independent)


def _group(entry: SeriesPart, by: By) -> tuple[str, str, str]:
    member = entry.member
    return (entry.replica, member.cluster, member.node) if by is By.NODE else (entry.replica, "", "")


def _use(entry: SeriesPart, attempts: Mapping[tuple[str, str], int]) -> _Use:
    series, member = entry.series, entry.member
    # A series of the device has no attempt: it belongs to the replica on the device's node.
    attempt = series.attempt if series.job else attempts.get((entry.replica, member.node), 0)
    return _Use(attempt, member.cluster, member.node, member.device)


def _times(view: JobView) -> Mapping[tuple[str, str, str], _Time]:
    """Return the time in which each replica had each device, by (replica, node, device): from first to last."""
    found: dict[tuple[str, str, str], _Time] = {}
    for one in view.allocations:
        # Times by samples end with the last sample.
        end = MAX_TIME_MS if one.end is None else one.end + (one.source is AllocationSource.IMPORT)
        key = one.replica, one.node, one.device
        start, last = found.get(key, (one.start, end))
        found[key] = min(start, one.start), max(last, end)
    return found


@dataclass(slots=True)
class _Place:
    """Successive uses of one member."""

    uses: list[_Use] = field(default_factory=list)


@dataclass(slots=True)
class _Lane:
    """Successive stays: ``attempt`` and ``time`` belong to the last one."""

    places: list[_Place] = field(default_factory=list)
    attempt: int = -1
    node: _NodeKey = ("", "")
    time: _Time | None = None


class _Replica:
    """Stays of one replica, and the order in which their devices replace each other."""

    def __init__(self, name: str, times: Mapping[tuple[str, str, str], _Time]) -> None:
        self._name = name
        self._times = times
        self._lanes: list[_Lane] = []
        self.range_independent = True
        """False once an allocation affected the result."""

    def was_together(self, uses: Iterable[_Use]) -> bool:
        """Return True if one stay has all devices at the same time: then none replaces another."""
        known = [time for use in uses if (time := self._time(use.node, use.device)) is not None]
        last_start = max((start for start, _ in known), default=0)
        first_end = min((end for start, end in known if end - start > 1), default=MAX_TIME_MS)
        return len({use[:3] for use in uses}) == 1 and last_start < first_end

    def follow(self, uses: Iterable[_Use]) -> None:
        """Append each stay to an earlier one that it does not overlap."""
        stays = group_pairs((use[:3], use.device) for use in sorted(uses, key=self._order))
        for (attempt, cluster, node), devices in stays.items():
            time = self._stay_time(node, devices)
            free = [lane for lane in self._lanes if self._has_ended(lane, attempt, time)]
            same = [lane for lane in free if lane.node == (cluster, node)]
            lane = next(iter(same or free), None)
            if lane is None:
                self._lanes.append(lane := _Lane())
            lane.attempt, lane.node, lane.time = attempt, (cluster, node), time
            rows = self._rows(node, devices)
            _take_places(lane, [[_Use(attempt, cluster, node, device) for device in row] for row in rows])

    def list_members(self, found: Mapping[_Use, SubjectKey]) -> Iterator[tuple[_Use, SubjectKey]]:
        """Yield the member of each use: the member of the last use in its place."""
        taken: set[SubjectKey] = set()
        for place in sorted((place for lane in self._lanes for place in lane.places), key=lambda one: len(one.uses)):
            own = [found[use] for use in reversed(place.uses)]
            free = next((member for member in own if member not in taken or len(set(own)) == 1), None)
            member = free or own[0]._replace(device=f"{own[0].device}~{len(taken)}")
            taken.add(member)
            yield from ((use, member) for use in place.uses)

    def _order(self, use: _Use) -> tuple[object, ...]:
        time = self._time(use.node, use.device)
        return use.attempt, -1 if time is None else time[0], make_natural_key(use.node), make_natural_key(use.device)

    def _has_ended(self, lane: _Lane, attempt: int, time: _Time | None) -> bool:
        """Return True if the stays of a lane ended before another stay of that attempt and time."""
        if lane.attempt != attempt:
            return True
        if lane.time is None or time is None:
            return bool(self._name)  # a named replica runs in one place; unnamed ones may be several
        self.range_independent = False
        return lane.time[1] <= time[0]

    def _rows(self, node: str, devices: Sequence[str]) -> list[list[str]]:
        """Group the devices of a stay that it had one after another, in order of their start."""
        rows: list[list[str]] = []
        ends: list[int] = []
        for device in devices:
            time = self._time(node, device)
            row = next((at for at, end in enumerate(ends) if time is not None and end <= time[0]), None)
            # A single sample does not tell how long it had the device.
            end = MAX_TIME_MS if time is None or time[1] - time[0] <= 1 else time[1]
            if row is None:
                rows.append([device])
                ends.append(end)
            else:
                self.range_independent = False
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
    """Put each row of uses into an earlier place: by device name, else into the first free one."""
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
