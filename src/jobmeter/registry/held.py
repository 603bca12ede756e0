"""What this process last saw go on, so that what goes on once more is written without being read first.

Thousands of devices are told of every minute, nearly all of which are held as before: their newest interval only gets
longer. Each such row is named by its id and its key, and counted: where one is not as remembered, everything is read.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from jobmeter.model.job import AllocationSource
from jobmeter.registry.base import Observation
from jobmeter.registry.intervals import GAP_MS, Change, DeviceKey, Interval

MOST = 400_000
"""Most devices and replicas that are remembered; when there are more all are forgotten."""

JobKey = tuple[str, str]
_Device = tuple[str, str, str]
_SOURCE = AllocationSource.IMPORT.value
# As the driver takes it: only SQLite has one writer, and this is said for thousands of rows.
_GO_ON = (
    'UPDATE allocations SET "end" = max("end", ?) WHERE id = ? AND "end" IS NOT NULL AND source = ? '
    "AND project = ? AND job = ? AND replica = ? AND node = ? AND device = ?"
)


@dataclass(slots=True)
class Learned:
    """What one transaction found out; true once it has been committed."""

    ends: dict[tuple[JobKey, _Device], Interval] = field(default_factory=dict)
    running: list[tuple[JobKey, tuple[str, int] | None]] = field(default_factory=list)


class Held:
    """The newest interval of devices by job, and what is known to run. Safe to use from any thread."""

    def __init__(self, *, alone: bool) -> None:
        """``alone`` says that no other process writes jobs; else nothing is remembered."""
        self._alone = alone
        self._lock = threading.Lock()
        self._intervals: dict[JobKey, dict[_Device, Interval]] = {}
        self._running: dict[JobKey, set[tuple[str, int] | None]] = {}
        self._count = 0

    def runs(self, job: JobKey, replica: tuple[str, int] | None = None) -> bool:
        """Whether that job, or that replica (name and attempt) of it, was known to run before."""
        return replica in self._running.get(job, ())

    def go_on(
        self, connection: sa.Connection, observations: Sequence[Observation], learned: Learned
    ) -> list[tuple[DeviceKey, Interval]]:
        """Make the intervals of devices longer that are held as before; gives the others, which have to be joined."""
        others: list[Observation] = []
        moved: dict[tuple[JobKey, _Device], Interval] = {}
        nothing: dict[_Device, Interval] = {}
        for seen in observations:
            if not (seen.device and seen.replica and seen.job):
                continue
            job, device = (seen.project, seen.job), (seen.replica, seen.node, seen.device)
            held = self._intervals.get(job, nothing).get(device)
            if held is None or not _goes_on(held, seen):
                others.append(seen)
            elif seen.last_ms > (moved.get((job, device), held).end or 0):
                moved[job, device] = Interval(held.start, seen.last_ms, held.cluster, held.rank, held.row)
        if not self._written(connection, moved):
            return list(_devices(observations))
        learned.ends.update(moved)
        return list(_devices(others))

    def joined(self, changes: Iterable[Change], learned: Learned) -> None:
        """Take note of intervals that were joined: of each device the newest, where its row is known."""
        for change in changes:
            key, interval = change.key, change.keep
            place = (key.project, key.job), (key.replica, key.node, key.device)
            if change.newest and interval.row is None:
                # What was remembered has another behind it now, which it may reach when it gets longer.
                self._forget_device(*place)
                learned.ends.pop(place, None)
                continue
            known = learned.ends.get(place) or self._intervals.get(place[0], {}).get(place[1])
            newest = known is None or interval.start >= known.start
            if interval.row is not None and newest and change.newest:
                learned.ends[place] = interval

    def commit(self, learned: Learned) -> None:
        """Remember what a transaction found out, once it is on disk."""
        if not self._alone:
            return
        with self._lock:
            for (job, device), interval in learned.ends.items():
                own = self._intervals.setdefault(job, {})
                self._count += device not in own
                own[device] = interval
            for job, replica in learned.running:
                members = self._running.setdefault(job, set())
                self._count += replica not in members
                members.add(replica)
            if self._count > MOST:
                self._clear()

    def forget(self, jobs: Iterable[JobKey]) -> None:
        """Those jobs were written otherwise, or deleted."""
        with self._lock:
            for job in jobs:
                self._count -= len(self._intervals.pop(job, ())) + len(self._running.pop(job, ()))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._clear()

    def _forget_device(self, job: JobKey, device: _Device) -> None:
        with self._lock:
            self._count -= self._intervals.get(job, {}).pop(device, None) is not None

    def _clear(self) -> None:
        self._intervals.clear()
        self._running.clear()
        self._count = 0

    def _written(self, connection: sa.Connection, moved: dict[tuple[JobKey, _Device], Interval]) -> bool:
        """Write longer intervals; False where a row was not there any more, as it was remembered."""
        if not moved:
            return True
        rows = [(interval.end, interval.row, _SOURCE, *job, *device) for (job, device), interval in moved.items()]
        if connection.exec_driver_sql(_GO_ON, rows).rowcount == len(rows):
            return True
        self.clear()
        return False


def _goes_on(held: Interval, seen: Observation) -> bool:
    if held.end is None or seen.cluster not in {"", held.cluster}:
        return False
    return held.start <= seen.first_ms <= held.end + GAP_MS


def _devices(observations: Iterable[Observation]) -> Iterable[tuple[DeviceKey, Interval]]:
    for seen in observations:
        if seen.job and seen.replica and seen.device:
            key = DeviceKey(seen.project, seen.job, seen.replica, seen.node, seen.device, _SOURCE)
            yield key, Interval(seen.first_ms, seen.last_ms, seen.cluster)
