"""Keeps cached jobs current while other processes write jobs.

The servers of a group drop their cached jobs before one of them acknowledges a change. A server outside of the group
reads the recorded changes (``changes``) before it uses a cached job.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

from jobmeter.errors import UnavailableError
from jobmeter.model.record_group import RecordGroup
from jobmeter.registry import changes
from jobmeter.registry.batched import Batched
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.interval_cache import JobKey
from jobmeter.registry.memory import CachedAnswers

READ_SECONDS = 1.0
"""Seconds between two background reads of the changes that nobody announced, for example changes by a command."""


class CacheRefresh:
    """Drops the cached jobs that other processes have changed. Thread-safe."""

    def __init__(self, database: Database, memory: CachedAnswers, *, alone: bool) -> None:
        """``alone``: see ``join``."""
        self._database = database
        self._memory = memory
        self._group: RecordGroup | None = None
        self._is_alone = alone
        self._read_in: int | None = None  # the membership in which the changes were read
        self._position: changes.ChangePosition | None = None
        self._read: Batched[None, None] = Batched(self._drop_changed)
        self._announce: Batched[Collection[JobKey], None] = Batched(self._announce_all)
        memory.is_current = self.is_current

    def join(self, group: RecordGroup | None, *, alone: bool) -> None:
        """Use cached jobs as a member of a group. A server without a group uses them if it is ``alone``."""
        self._group, self._is_alone = group, alone
        if group is not None:
            group.hear(self._memory.drop_jobs)

    def is_current(self) -> bool:
        """Return True if no cached job misses a change that any server acknowledged before the call."""
        member = self._membership()
        return member is not None and member == self._read_in

    def _membership(self) -> int | None:
        return (0 if self._is_alone else None) if self._group is None else self._group.get_membership()

    def await_changes(self) -> None:
        """Drop the cached jobs that another process has changed before this call. Calls that wait share a read."""
        if not self.is_current():
            self._read(None)

    def read_unannounced(self) -> None:
        """Drop the cached jobs that another process has changed, unless the database does not answer."""
        with suppress(UnavailableError):
            self._read(None)

    def announce(self, written: Collection[JobKey]) -> None:
        """Wait until no server answers from earlier records of these jobs. Raises UnavailableError if one still may.

        Calls that wait share an announcement.
        """
        if self._group is not None:
            self._announce(written)

    def _announce_all(self, calls: Sequence[Collection[JobKey]]) -> Sequence[None]:
        ids = {job for written in calls for _, job in written if job}
        if ids and self._group is not None:
            self._group.announce(sorted(ids))
        return [None] * len(calls)

    def _drop_changed(self, calls: Sequence[None]) -> Sequence[None]:
        member = self._membership()  # first: later changes are announced
        with self._database.open_snapshot(SHORT_SECONDS) as connection:
            changed, after = None, self._position
            if after is not None:
                changed, after = changes.read_changes(connection, after)
            if changed is None:
                after = changes.get_position(connection)
        if changed is None:
            self._memory.clear_jobs()  # retentions stay: writers need them while the database does not answer
        else:
            keys = {key for found in (changed.recorded, changed.sampled) for key in changes.iterate_jobs(found)}
            if keys:
                self._memory.invalidate(keys)
        self._position = after
        self._read_in = member
        return calls
