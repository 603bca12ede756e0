"""The roll-up state: the hours that are rolled up, and the hours among them with later samples.

It is two numbers and a set, stored in the engine. Hours before ``done`` are rolled up. Hours before ``intent`` are or
are about to be: a roll-up raises it before it reads the samples. A *mark* (job, hour) says that the roll-ups of that
hour may lack samples. If only one process writes, its new marks reach the engine just before their samples.

A writer of samples marks the hours before ``intent`` twice. The first time is before the samples become visible, so
that no reader trusts a roll-up that lacks them. The second time is after, in case a roll-up took the mark in between
without having read them (or raised ``intent`` past them). The second time is free if the first mark still stands and
only this process writes. A roll-up removes exactly the marks that it took before it read the samples, by their ids.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from jobmeter.model.time import HOUR, MINUTE, Clock, floor_to
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.native import encode
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rows import JobHour
from jobmeter.store.clickhouse.sql import iterate_pieces
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.clickhouse.write_fence import find_no_fence

_QUORUM = {"insert_quorum": "auto", "insert_quorum_parallel": 0}
_NEW_MS = 10 * MINUTE
"""Age in milliseconds up to which a sample is new; less than the age at which hours are rolled up."""
_SEQUENTIAL = {"select_sequential_consistency": 1}
_PROGRESS = (
    "INSERT INTO progress SELECT name, value "
    "FROM system.one ARRAY JOIN {names:Array(String)} AS name, {values:Array(Int64)} AS value"
)


class LateHour(msgspec.Struct, frozen=True):
    """A mark: an hour of a job with late samples."""

    job: int
    hour: int
    id: int


class RollupState:
    """The roll-up state. Safe for any number of threads; with a single writing process it answers from memory."""

    def __init__(
        self,
        pool: Pool,
        target: EngineTarget,
        clock: Clock,
        is_alone: Callable[[], bool],
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """``is_alone`` returns True while no other process writes to the engine.

        While ``may_write`` returns False this process does not write, and begins with the current hour without a
        stored position.
        """
        self.pool = pool
        self._may_write = may_write
        self._clock = clock
        self._is_alone = is_alone
        self._write_settings = _QUORUM if target.cluster else {}
        self._read_settings = _SEQUENTIAL if target.cluster else {}
        self._lock = threading.Lock()
        self._saving = threading.Lock()  # acquired before the lock above
        self._standing: dict[JobHour, set[int]] = {}
        self._open: set[JobHour] = set()
        self._unsaved: list[LateHour] = []
        self._begun = 0  # number of roll-ups that may have read samples
        self._progress: dict[str, int] = {}
        self._last_intent = 0
        self.fence = find_no_fence
        """Returns the fence of roll-ups of a server that shares a node; replicas have their own."""
        self.waiting_hours: Callable[[int], set[JobHour]] = lambda _: set()
        """Returns the hours before a time whose samples wait in another server's journal; empty without one."""
        self.reload()

    def read_intent(self) -> int:
        """Return the time before which samples need marks: later hours are not rolled up, nor about to be."""
        self._last_intent = intent = self._read_progress()["intent"]
        return intent

    def compute_intent(self, earliest_ms: int) -> int:
        """Return ``intent`` for samples that are not visible yet; for new samples, among others, the last one read.

        Roll-ups begin later than ``_NEW_MS`` after a sample. So for new samples it is enough that the caller compares
        them with ``intent`` once they are visible.
        """
        is_new = earliest_ms >= self._clock.now_ms() - _NEW_MS
        return self._last_intent if is_new and not self._is_alone() else self.read_intent()

    def read_done(self) -> int:
        """Return the time before which all hours except the marked ones are rolled up."""
        return self._read_progress()["done"]

    def raise_intent(self, until_ms: int) -> None:
        """Store that hours before ``until_ms`` are about to be rolled up."""
        self._write_progress({"intent": until_ms})
        with self._lock:
            self._begun += 1

    def raise_done(self, until_ms: int) -> None:
        """Store that hours before ``until_ms`` are rolled up.

        Raises UnavailableError if others expelled this server: another server's journal may have samples of these hours
        since.
        """
        self.pool.check()
        self._write_progress({"done": until_ms})

    def mark_before(self, hours: Collection[JobHour]) -> int:
        """Mark hours before their samples are written. Return a number for ``mark_after``.

        With a single writing process the marks are durable after ``write_marks``, which runs before the samples reach
        the engine: a start marks the rows of the journal again.
        """
        if not hours:
            return self._begun
        with self._lock:
            self._mark(hours)
            return self._begun

    def mark_after(self, hours: Iterable[JobHour], before: int) -> None:
        """Mark hours again after their samples became visible, unless the earlier mark certainly stands.

        Durable on return.

        ``before`` is the result of ``mark_before``.
        """
        with self._lock:
            durable = not self._mark(hours) and self._begun == before
        if not durable:
            self.write_marks()

    def write_marks(self) -> None:
        """Make all earlier marks durable. New marks do not wait for it."""
        with self._saving:
            with self._lock:
                marks = list(self._unsaved)
            self._insert(marks, cleared=0)
            with self._lock:
                saved = {mark.id for mark in marks}
                self._unsaved = [mark for mark in self._unsaved if mark.id not in saved]

    def take(self) -> list[LateHour]:
        """Return the current marks. Later writes make new marks, so these may be removed when their hours are done."""
        with self._lock:
            self._open.clear()
            self._begun += 1
            if not self._is_alone():
                return self._read_marks(None)
            return [LateHour(job, hour, mark) for (job, hour), marks in self._standing.items() for mark in marks]

    def give_back(self, marks: Sequence[LateHour]) -> None:
        """Return marks that were taken and are not removed: later writes of these hours need no new marks."""
        with self._lock:
            self._open.update({(mark.job, mark.hour) for mark in marks} & self._standing.keys())

    def clear(self, marks: Sequence[LateHour]) -> None:
        """Remove these marks and no others."""
        with self._lock:
            cleared = {mark.id for mark in marks}
            self._unsaved = [mark for mark in self._unsaved if mark.id not in cleared]
            self._insert(marks, cleared=1)
            for mark in marks:
                standing = self._standing.get((mark.job, mark.hour))
                if standing is not None:
                    standing.discard(mark.id)
                    if not standing:
                        del self._standing[mark.job, mark.hour]

    @property
    def any_marked(self) -> bool:
        """True if marks of this process are still set."""
        with self._lock:
            return bool(self._standing)

    def find_marked(self, jobs: Sequence[int]) -> set[JobHour]:
        """Return the marked hours of some jobs."""
        pairs = frozenset(jobs)
        if not self._is_alone():
            # Before the marks are read: the leader writes them before its journal goes to the engine.
            waiting = self.waiting_hours(self._clock.now_ms() - _NEW_MS)
            return {(mark.job, mark.hour) for mark in self._read_marks(jobs)} | {
                pair for pair in waiting if pair[0] in pairs
            }
        with self._lock:
            return {pair for pair in self._standing if pair[0] in pairs}

    def _mark(self, hours: Iterable[JobHour]) -> bool:
        """Mark the hours that have no open mark. Return False if all have one. The lock is held."""
        pairs = [pair for pair in hours if pair not in self._open]
        identity = secrets.randbits(64)
        marks = [LateHour(job, hour, identity) for job, hour in pairs]
        if not self._is_alone():
            self._insert(marks, cleared=0)
            return False
        self._unsaved += marks
        for pair in pairs:
            self._standing.setdefault(pair, set()).add(identity)
        self._open.update(pairs)
        return bool(pairs)

    def reload(self) -> None:
        """Read everything from the engine; on the first start roll-ups begin with the current hour."""
        with self._lock:
            self._standing.clear()
            self._open.clear()
            self._unsaved.clear()
        with self._saving:  # a roll-up may raise the intent meanwhile
            self._progress = self.select_progress()
            missing = [name for name in ("done", "intent") if name not in self._progress]
            if missing and self._may_write():
                self._insert_progress(dict.fromkeys(missing, self._beginning()))
            elif missing:
                self._progress |= dict.fromkeys(missing, self._beginning())
        marks = self._read_marks(None)
        with self._lock:
            for mark in marks:
                self._standing.setdefault((mark.job, mark.hour), set()).add(mark.id)

    def _beginning(self) -> int:
        """Return the hour at which roll-ups without a stored position continue: the last hour with roll-ups.

        Without roll-ups, the first hour of the samples; on the first start, the current hour.
        """
        with translate_failures("read how far roll-ups are"), self.pool.borrow_client() as client:
            times = [
                client.query(f"SELECT {which}(time) FROM {table} HAVING count() > 0").result_rows
                for which, table in (("max", "hours"), ("min", "samples"))
            ]
        times_found = [int(rows[0][0]) for rows in times if rows]
        return floor_to(times_found[0] if times_found else self._clock.now_ms(), HOUR)

    def _read_progress(self) -> dict[str, int]:
        return self._progress if self._is_alone() else self._progress | self.select_progress()

    def select_progress(self) -> dict[str, int]:
        """Read from the engine how far roll-ups are, by name."""
        with translate_failures("read how far roll-ups are"), self.pool.borrow_client() as client:
            rows = client.query("SELECT name, max(value) FROM progress GROUP BY name", settings=self._read_settings)
        return {str(name): int(value) for name, value in rows.result_rows}

    def _write_progress(self, values: dict[str, int]) -> None:
        with self._saving:
            self._insert_progress(values)

    def restrict(self, sql: str) -> str:
        """Have the engine refuse a statement once others have expelled this server."""
        fence = self.fence()
        return sql if fence is None else fence.restrict(sql)

    def _insert_progress(self, values: dict[str, int]) -> None:
        """Store progress. ``_saving`` is locked."""
        _store_progress(self.pool, values, self._write_settings, self.restrict(_PROGRESS))
        higher = {name: max(value, self._progress.get(name, 0)) for name, value in values.items()}
        self._progress = self._progress | higher

    def _insert(self, marks: Sequence[LateHour], cleared: int) -> None:
        _store_marks(self.pool, marks, cleared, self._clock.now_ms(), self._write_settings)

    def copy_to(self, pool: Pool) -> None:
        """Store all marks in another engine too."""
        _store_marks(pool, self._read_marks(None), 0, self._clock.now_ms(), {})

    def _read_marks(self, jobs: Sequence[int] | None) -> list[LateHour]:
        found: list[LateHour] = []
        with translate_failures("read which hours are marked"), self.pool.borrow_client() as client:
            for part in [None] if jobs is None else iterate_pieces(sorted(set(jobs))):
                condition = "" if part is None else "WHERE job IN {jobs:Array(UInt64)}"
                rows = client.query(
                    f"SELECT job, hour, id FROM marks {condition} GROUP BY job, hour, id HAVING max(cleared) = 0",
                    parameters={} if part is None else {"jobs": list(part)},
                    settings=self._read_settings,
                ).result_rows
                found += [LateHour(int(job), int(hour), int(identity)) for job, hour, identity in rows]
        return found


def copy_states(states: Sequence[RollupState], pool: Pool) -> None:
    """Store in another engine a state that holds for the rows of all of some engines."""
    done, intent = min(state.read_done() for state in states), max(state.read_intent() for state in states)
    _store_progress(pool, {"done": done, "intent": intent}, {})
    for state in states:
        state.copy_to(pool)


def _store_progress(pool: Pool, values: Mapping[str, int], settings: Mapping[str, Any], sql: str = _PROGRESS) -> None:
    with translate_failures("note how far roll-ups are"), pool.borrow_client() as client:
        client.command(
            sql,
            parameters={"names": list(values), "values": list(values.values())},
            settings=dict(settings),
        )


def _store_marks(pool: Pool, marks: Sequence[LateHour], cleared: int, at_ms: int, settings: Mapping[str, Any]) -> None:
    if not marks:
        return
    jobs, hours, ids = zip(*map(msgspec.structs.astuple, marks), strict=True)
    body = encode(
        [
            ("job", np.array(jobs, np.uint64)),
            ("hour", np.array(hours, np.int64)),
            ("id", np.array(ids, np.uint64)),
            ("cleared", np.full(len(marks), cleared, np.uint8)),
            ("at", np.full(len(marks), at_ms, np.int64)),
        ]
    )
    names = ["job", "hour", "id", "cleared", "at"]
    with translate_failures("mark late samples"), pool.borrow_client() as client:
        client.raw_insert("marks", names, body, fmt="Native", settings=dict(settings))
