"""The cached part of the registry: the job and the project of every query, with expiry."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from jobmeter.model.job import Job, JobView
from jobmeter.model.retention import Retention
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.registry.interval_cache import IntervalCache, IntervalChanges, JobKey

if TYPE_CHECKING:
    from jobmeter.model.shipper import Shipper

JOB_SECONDS = 60.0
"""Lifetime of a cached job. A change drops it sooner, see ``CacheRefresh``."""
SHARED_SECONDS = 1.0
"""Lifetime of another entry, which other processes may write."""
GROUPS_SECONDS = 10.0
"""Lifetime of the resource groups of nodes."""
_LAST_SHARE = 0.25
"""Last part of an entry's lifetime, in which a reader who may wait reads it again ahead of time."""
MOST_PARTS = 500_000
"""Most database rows in all cached answers together, at some hundred bytes each."""

T = TypeVar("T")


class Expiring(msgspec.Struct, Generic[T], frozen=True):
    """A cached value that is valid from ``since_ms`` until before ``until_ms``, unless its job is written.

    ``parts`` is the number of rows behind it.
    """

    answer: T
    since_ms: int = 0
    until_ms: int = MAX_TIME_MS
    parts: int = 1

    def is_valid(self, now_ms: int) -> bool:
        """Return True if the value is valid at that time."""
        return self.since_ms <= now_ms < self.until_ms


class _Entry(msgspec.Struct, Generic[T]):
    """The answers about one job by query, and when each expires (monotonic seconds)."""

    answers: dict[Hashable, tuple[float, Expiring[T]]] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> int:
        return sum(cached.parts for _, cached in self.answers.values())


class TtlCache(Generic[T]):
    """A cache of values by job and kind of query. Safe for several threads.

    A write of this process invalidates its job immediately; another write shows within ``seconds``, unless its job is
    invalidated sooner. Past the bound the least recently read jobs are evicted.
    """

    def __init__(self, seconds: float = SHARED_SECONDS, most: int = MOST_PARTS, *, caches_absence: bool = True) -> None:
        """``caches_absence``: empty values are cached too."""
        self._caches_absence = caches_absence
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._generation = 0
        self._parts = 0
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()

    def get(self, job: str, question: Hashable, now_ms: int) -> tuple[T | None, int]:
        """Return the value that is valid at a time, else None; and the generation for ``put`` after reading it."""
        with self._lock:
            entry = self._entries.get(job)
            until, cached = (entry and entry.answers.get(question)) or (0.0, None)
            if cached is None or until <= time.monotonic() or not cached.is_valid(now_ms):
                return None, self._generation
            self._entries.move_to_end(job)
            return cached.answer, self._generation

    def get_or_read(self, job: str, question: Hashable, now_ms: int, read: Callable[[], Expiring[T]]) -> T:
        """Return the value that is valid at a time; without one, or if it is about to expire, read and cache it."""
        found, generation = self.get(job, question, now_ms)
        if found is None or self.is_expiring(job, question):
            fresh = read()
            self.put(job, question, fresh, generation)
            found = fresh.answer
        return found

    def is_expiring(self, job: str, question: Hashable) -> bool:
        """Return True if there is a cached value that is about to expire."""
        cached = self.get_entry(job, question)
        return cached is not None and 0 < cached[0] - time.monotonic() < self._seconds * _LAST_SHARE

    def get_entry(self, job: str, question: Hashable) -> tuple[float, Expiring[T]] | None:
        """Return the cached value and its expiry (monotonic seconds); None without a cached value."""
        with self._lock:
            entry = self._entries.get(job)
            return None if entry is None else entry.answers.get(question)

    def get_last(self, job: str, question: Hashable) -> T | None:
        """Return the last value read, even after its expiry; None if the value was written or evicted since."""
        cached = self.get_entry(job, question)
        return cached[1].answer if cached else None

    def put(self, job: str, question: Hashable, cached: Expiring[T], generation: int) -> None:
        """Cache a value that was read, unless its job was written since."""
        if not (cached.answer or self._caches_absence):
            return
        now = time.monotonic()
        with self._lock:
            if generation != self._generation:
                return
            entry = self._pop(job) or _Entry()
            entry.answers = {key: answer for key, answer in entry.answers.items() if answer[0] > now}
            entry.answers[question] = now + self._seconds, cached
            self._entries[job] = entry
            self._parts += entry.parts
            while self._parts > self._most and len(self._entries) > 1:
                self._pop(next(iter(self._entries)))

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._generation += 1
            self._parts = 0
            self._entries.clear()

    def invalidate(self, jobs: Iterable[str]) -> None:
        """Drop these jobs. Call it after the commit of the change."""
        with self._lock:
            self._generation += 1
            for job in jobs:
                self._pop(job)

    def _pop(self, job: str) -> _Entry[T] | None:
        entry = self._entries.pop(job, None)
        if entry is not None:
            self._parts -= entry.parts
        return entry


class CachedAnswers:
    """Cached answers of the registry. No method waits: each returns None for an answer that is not cached.

    Every method may be called from any thread.
    """

    def __init__(self, *, alone: bool) -> None:
        """``alone``: no other process writes jobs. A new job of another process is found at once."""
        self.is_current: Callable[[], bool] = lambda: True
        """Returns False while cached jobs may miss changes of other servers."""
        self.views: TtlCache[list[JobView]] = TtlCache(JOB_SECONDS, caches_absence=alone)
        self.heads: TtlCache[list[Job]] = TtlCache(JOB_SECONDS, caches_absence=alone)
        self.retentions: TtlCache[Retention] = TtlCache()
        self.shippers: TtlCache[Sequence[Shipper]] = TtlCache()
        self.node_groups: TtlCache[Mapping[tuple[str, str], str]] = TtlCache(GROUPS_SECONDS)
        self.intervals = IntervalCache(alone=alone)
        self.changed: Callable[[Collection[str] | None], object] = lambda _: None
        """Callback for the ids of changed jobs (None: all), called after their cached answers were dropped."""

    def get_job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView] | None:
        """Return the cached jobs of that id; None without a valid entry."""
        return self.views.get(job, projects, now_ms)[0] if self.is_current() else None

    def get_job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job] | None:
        """Return the cached jobs of that id, without replicas and allocations; None without a valid entry."""
        return self.heads.get(job, projects, now_ms)[0] if self.is_current() else None

    def get_retention(self, project: str) -> Retention | None:
        """Return the cached retention of a project; None without one."""
        return self.retentions.get(project, None, 0)[0]

    def is_retention_expiring(self, project: str) -> bool:
        """Return True if the cached retention of a project is about to expire."""
        return self.retentions.is_expiring(project, None)

    def invalidate(self, jobs: Collection[JobKey], observed: IntervalChanges | None = None) -> None:
        """Drop these jobs. Call it after the commit of the change.

        ``observed`` are the changes of intervals, if samples changed the jobs; else the jobs' intervals are dropped.
        """
        if observed is None:
            self.intervals.forget(jobs)
        else:
            self.intervals.commit(observed)
        self.drop_jobs({job for _, job in jobs})

    def drop_jobs(self, ids: Collection[str]) -> None:
        """Drop the jobs with these ids."""
        self.heads.invalidate(ids)
        self.views.invalidate(ids)
        self.changed(ids)

    def forget_groups(self) -> None:
        """Drop the shippers and the groups of nodes, after a change of either."""
        self.shippers.clear()
        self.node_groups.clear()

    def clear(self) -> None:
        """Drop everything."""
        self.forget_groups()
        self.retentions.clear()
        self.intervals.clear()
        self.clear_jobs()

    def clear_jobs(self) -> None:
        """Drop all jobs."""
        self.heads.clear()
        self.views.clear()
        self.changed(None)
