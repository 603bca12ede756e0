"""The cache of the newest interval of each device, so that an interval can be extended without reading it first.

Every minute samples name thousands of devices, and nearly all only extend their newest interval. The update names each
row by its id and its key and counts the changed rows. If any row differs, all are read.
"""

import threading
from collections.abc import Iterable, Sequence

import msgspec
import sqlalchemy as sa

from jobmeter.model.job import AllocationSource
from jobmeter.registry.intervals import GAP_MS, DeviceKey, Interval, IntervalChange
from jobmeter.registry.stored import Observation

MOST = 400_000
"""Most devices and replicas in the cache; above that it is emptied."""

JobKey = tuple[str, str]
_Device = tuple[str, str, str]
_SOURCE = AllocationSource.IMPORT.value
# SQL of the driver itself, for speed with thousands of rows: only SQLite has a single writer.
_GO_ON = (
    'UPDATE allocations SET "end" = max("end", ?) WHERE id = ? AND "end" IS NOT NULL AND source = ? '
    "AND project = ? AND job = ? AND replica = ? AND node = ? AND device = ?"
)


class IntervalChanges(msgspec.Struct):
    """Changes of one transaction to the cache, to be applied after the commit."""

    ends: dict[tuple[JobKey, _Device], Interval] = msgspec.field(default_factory=dict)
    running: list[tuple[JobKey, tuple[str, int] | None]] = msgspec.field(default_factory=list)


class IntervalCache:
    """The newest interval of devices by job, and the running jobs and replicas. Safe for several threads."""

    def __init__(self, *, alone: bool) -> None:
        """``alone``: no other process writes jobs. Otherwise nothing is cached."""
        self._alone = alone
        self._lock = threading.Lock()
        self._intervals: dict[JobKey, dict[_Device, Interval]] = {}
        self._running: dict[JobKey, set[tuple[str, int] | None]] = {}
        self._count = 0

    def is_running(self, job: JobKey, replica: tuple[str, int] | None = None) -> bool:
        """Return True if that job, or that replica (name and attempt) of it, is cached as running."""
        return replica in self._running.get(job, ())

    def go_on(
        self, connection: sa.Connection, observations: Sequence[Observation], updates: IntervalChanges
    ) -> list[tuple[DeviceKey, Interval]]:
        """Extend the intervals of devices whose allocation did not change. Return the others, which must be merged."""
        others: list[Observation] = []
        moved: dict[tuple[JobKey, _Device], Interval] = {}
        nothing: dict[_Device, Interval] = {}
        for one in observations:
            if not (one.device and one.replica and one.job):
                continue
            job, device = (one.project, one.job), (one.replica, one.node, one.device)
            last = self._intervals.get(job, nothing).get(device)
            if last is None or not _goes_on(last, one):
                others.append(one)
            elif one.last_ms > (moved.get((job, device), last).end or 0):
                moved[job, device] = Interval(last.start, one.last_ms, last.cluster, last.rank, last.row)
        if not self._write_moved(connection, moved):
            return list(_devices(observations))
        updates.ends.update(moved)
        return list(_devices(others))

    def note_joined(self, changes: Iterable[IntervalChange], updates: IntervalChanges) -> None:
        """Cache the newest merged interval of each device whose row is in the cache."""
        for change in changes:
            key, interval = change.key, change.keep
            place = (key.project, key.job), (key.replica, key.node, key.device)
            if change.newest and interval.row is None:
                # Another interval now follows the cached one, and extending the cached one might reach it.
                self._forget_device(*place)
                updates.ends.pop(place, None)
                continue
            newest_interval = updates.ends.get(place) or self._intervals.get(place[0], {}).get(place[1])
            newest = newest_interval is None or interval.start >= newest_interval.start
            if interval.row is not None and newest and change.newest:
                updates.ends[place] = interval

    def commit(self, updates: IntervalChanges) -> None:
        """Apply the changes of a committed transaction."""
        if not self._alone:
            return
        with self._lock:
            for (job, device), interval in updates.ends.items():
                own = self._intervals.setdefault(job, {})
                self._count += device not in own
                own[device] = interval
            for job, replica in updates.running:
                members = self._running.setdefault(job, set())
                self._count += replica not in members
                members.add(replica)
            if self._count > MOST:
                self._clear()

    def forget(self, jobs: Iterable[JobKey]) -> None:
        """Drop jobs that were written otherwise or deleted."""
        with self._lock:
            for job in jobs:
                self._count -= len(self._intervals.pop(job, ())) + len(self._running.pop(job, ()))

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._clear()

    def _forget_device(self, job: JobKey, device: _Device) -> None:
        with self._lock:
            self._count -= self._intervals.get(job, {}).pop(device, None) is not None

    def _clear(self) -> None:
        self._intervals.clear()
        self._running.clear()
        self._count = 0

    def _write_moved(self, connection: sa.Connection, moved: dict[tuple[JobKey, _Device], Interval]) -> bool:
        """Write extended intervals. Return False if a row has changed since it was cached."""
        if not moved:
            return True
        rows = [(interval.end, interval.row, _SOURCE, *job, *device) for (job, device), interval in moved.items()]
        if connection.exec_driver_sql(_GO_ON, rows).rowcount == len(rows):
            return True
        self.clear()
        return False


def _goes_on(last: Interval, one: Observation) -> bool:
    if last.end is None or one.cluster not in {"", last.cluster}:
        return False
    return last.start <= one.first_ms <= last.end + GAP_MS


def _devices(observations: Iterable[Observation]) -> Iterable[tuple[DeviceKey, Interval]]:
    for one in observations:
        if one.job and one.replica and one.device:
            key = DeviceKey(one.project, one.job, one.replica, one.node, one.device, _SOURCE)
            yield key, Interval(one.first_ms, one.last_ms, one.cluster)
