"""Which hours are rolled up, and which of those got samples since.

Two numbers and a set, stored in the engine. Hours before ``done`` are rolled up. Hours before ``intent`` are or are
about to be: a roll-up raises it before it reads the samples. A *mark* (job, hour) says that samples of that hour
may be missing in its roll-ups. New marks of a process that writes alone reach the engine just before their samples.

A writer of samples marks the hours before ``intent`` twice: before the samples become visible, so that no reader
trusts a roll-up that lacks them; and after, in case a roll-up took the mark in between without having read them (or
raised ``intent`` past them). The second time is free where the first mark still stands and only this process writes.
A roll-up removes exactly the marks that it took before it read the samples, by their ids.
"""

import secrets
import threading
from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np

from jobmeter.model.time import HOUR, Clock, floor_to
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.native import encode
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rows import JobHour
from jobmeter.store.clickhouse.sql import pieces
from jobmeter.store.clickhouse.target import Target

_QUORUM = {"insert_quorum": "auto", "insert_quorum_parallel": 0}
_SEQUENTIAL = {"select_sequential_consistency": 1}


class DirtyHour(msgspec.Struct, frozen=True):
    """One mark."""

    job: int
    hour: int
    id: int


class RollupState:
    """See the module. Safe for any number of threads; in a process that writes alone it answers from memory."""

    def __init__(self, pool: Pool, target: Target, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._exclusive = target.exclusive
        self._write_settings = _QUORUM if target.cluster else {}
        self._read_settings = _SEQUENTIAL if target.cluster else {}
        self._lock = threading.Lock()
        self._standing: dict[JobHour, set[int]] = {}
        self._open: set[JobHour] = set()
        self._unwritten: list[DirtyHour] = []
        self._begun = 0  # roll-ups, at the moments from which on they may have read
        self._progress: dict[str, int] = {}
        self.reload()

    def intent(self) -> int:
        """Where marks begin to be needed: hours that end after it are not rolled up, nor about to be."""
        return self._read_progress()["intent"]

    def done(self) -> int:
        """Where roll-ups end: hours before it are rolled up, but for the marked ones."""
        return self._read_progress()["done"]

    def raise_intent(self, until_ms: int) -> None:
        """Say that hours before ``until_ms`` are about to be rolled up."""
        self._write_progress({"intent": until_ms})
        with self._lock:
            self._begun += 1

    def raise_done(self, until_ms: int) -> None:
        """Say that hours before ``until_ms`` are rolled up."""
        self._write_progress({"done": until_ms})

    def dirty_before(self, touched: Collection[JobHour]) -> int:
        """Mark what is about to be written. Gives a number for ``dirty_after``.

        In a process that writes alone the marks are durable after ``write_marks``, which comes before the samples reach
        the engine: a start marks again what it finds in the journal.
        """
        if not touched:
            return self._begun
        with self._lock:
            self._mark(touched)
            return self._begun

    def dirty_after(self, touched: Iterable[JobHour], before: int) -> None:
        """Mark what became visible, unless the mark from before certainly stands. Durable on return.

        ``before``: what ``dirty_before`` gave.
        """
        with self._lock:
            if self._mark(touched) or self._begun != before:
                self._write_marks()

    def write_marks(self) -> None:
        """Make all marks durable."""
        with self._lock:
            self._write_marks()

    def _write_marks(self) -> None:
        self._insert(self._unwritten, cleared=0)
        self._unwritten.clear()

    def take(self) -> list[DirtyHour]:
        """The marks that stand. What is written from now on is marked anew, so these may be removed when done."""
        with self._lock:
            self._open.clear()
            self._begun += 1
            if not self._exclusive:
                return self._read_dirty_hours(None)
            return [DirtyHour(job, hour, mark) for (job, hour), marks in self._standing.items() for mark in marks]

    def give_back(self, marks: Sequence[DirtyHour]) -> None:
        """These were taken and are not removed: what is written from now on needs no other ones."""
        with self._lock:
            self._open.update({(mark.job, mark.hour) for mark in marks} & self._standing.keys())

    def clear(self, marks: Sequence[DirtyHour]) -> None:
        """Remove these marks and no others."""
        with self._lock:
            cleared = {mark.id for mark in marks}
            self._unwritten = [mark for mark in self._unwritten if mark.id not in cleared]
            self._insert(marks, cleared=1)
            for mark in marks:
                standing = self._standing.get((mark.job, mark.hour))
                if standing is not None:
                    standing.discard(mark.id)
                    if not standing:
                        del self._standing[mark.job, mark.hour]

    def marked(self, jobs: Sequence[int]) -> set[JobHour]:
        """The marked hours of some jobs."""
        if not self._exclusive:
            return {(mark.job, mark.hour) for mark in self._read_dirty_hours(jobs)}
        pairs = frozenset(jobs)
        with self._lock:
            return {pair for pair in self._standing if pair[0] in pairs}

    def _mark(self, touched: Iterable[JobHour]) -> bool:
        """Mark those that are not open; False where all of them are. The lock is taken."""
        pairs = [pair for pair in touched if pair not in self._open]
        identity = secrets.randbits(64)
        marks = [DirtyHour(job, hour, identity) for job, hour in pairs]
        if not self._exclusive:
            self._insert(marks, cleared=0)
            return False
        self._unwritten += marks
        for pair in pairs:
            self._standing.setdefault(pair, set()).add(identity)
        self._open.update(pairs)
        return bool(pairs)

    def reload(self) -> None:
        """Read everything from the engine; on the first start roll-ups begin with the current hour."""
        with self._lock:
            self._standing.clear()
            self._open.clear()
            self._unwritten.clear()
        self._progress = self._select_progress()
        missing = [name for name in ("done", "intent") if name not in self._progress]
        if missing:
            self._write_progress(dict.fromkeys(missing, self._beginning()))
        if self._exclusive:
            for mark in self._read_dirty_hours(None):
                self._standing.setdefault((mark.job, mark.hour), set()).add(mark.id)

    def _beginning(self) -> int:
        """The hour at which roll-ups without a stored position continue: the last one that has any.

        Without any, with the first hour of the samples; on the first start, with the current hour.
        """
        with translated("read how far roll-ups are"), self._pool.client() as client:
            times = [
                client.query(f"SELECT {which}(time) FROM {table} HAVING count() > 0").result_rows
                for which, table in (("max", "hours"), ("min", "samples"))
            ]
        times_found = [int(rows[0][0]) for rows in times if rows]
        return floor_to(times_found[0] if times_found else self._clock.now_ms(), HOUR)

    def _read_progress(self) -> dict[str, int]:
        return self._progress if self._exclusive else self._select_progress()

    def _select_progress(self) -> dict[str, int]:
        with translated("read how far roll-ups are"), self._pool.client() as client:
            rows = client.query("SELECT name, max(value) FROM progress GROUP BY name", settings=self._read_settings)
        return {str(name): int(value) for name, value in rows.result_rows}

    def _write_progress(self, values: dict[str, int]) -> None:
        if not values:
            return
        with translated("note how far roll-ups are"), self._pool.client() as client:
            client.command(
                "INSERT INTO progress SELECT name, value "
                "FROM system.one ARRAY JOIN {names:Array(String)} AS name, {values:Array(Int64)} AS value",
                parameters={"names": list(values), "values": list(values.values())},
                settings=self._write_settings,
            )
        higher = {name: max(value, self._progress.get(name, 0)) for name, value in values.items()}
        self._progress = self._progress | higher

    def _insert(self, marks: Sequence[DirtyHour], cleared: int) -> None:
        if not marks:
            return
        count = len(marks)
        body = encode(
            [
                ("job", np.fromiter((mark.job for mark in marks), np.uint64, count)),
                ("hour", np.fromiter((mark.hour for mark in marks), np.int64, count)),
                ("id", np.fromiter((mark.id for mark in marks), np.uint64, count)),
                ("cleared", np.full(count, cleared, np.uint8)),
                ("at", np.full(count, self._clock.now_ms(), np.int64)),
            ]
        )
        with translated("mark late samples"), self._pool.client() as client:
            client.raw_insert(
                "marks", ["job", "hour", "id", "cleared", "at"], body, fmt="Native", settings=self._write_settings
            )

    def _read_dirty_hours(self, jobs: Sequence[int] | None) -> list[DirtyHour]:
        found: list[DirtyHour] = []
        with translated("read which hours are marked"), self._pool.client() as client:
            for part in [None] if jobs is None else pieces(sorted(set(jobs))):
                condition = "" if part is None else "WHERE job IN {jobs:Array(UInt64)}"
                rows = client.query(
                    f"SELECT job, hour, id FROM marks {condition} GROUP BY job, hour, id HAVING max(cleared) = 0",
                    parameters={} if part is None else {"jobs": list(part)},
                    settings=self._read_settings,
                ).result_rows
                found += [DirtyHour(int(job), int(hour), int(identity)) for job, hour, identity in rows]
        return found
