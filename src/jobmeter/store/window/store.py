"""An engine with a hot window in front: the same contract, with the newest samples in memory."""

import itertools
import threading
from collections.abc import Generator, Hashable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from jobmeter.errors import LimitExceededError, UnavailableError
from jobmeter.model.batch import SampleBatch, SampleColumns, SeriesKeys, Uint64s, mark_first_rows
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, MINUTE, SECOND, Clock, TimeRange, floor_to, read_clock
from jobmeter.store.base import NEWEST, ReadBudget, SeriesPage, SeriesSelector, Store, StoreMemory, StoreStatistics
from jobmeter.store.cache import Cache
from jobmeter.store.meter import BudgetMeter
from jobmeter.store.shards.away import get_missing_shards
from jobmeter.store.window.window import Window

_DEFAULT = Retention()
_SERIES_BYTES = 600
"""Memory of a series in a list, about."""
_TOGETHER = 1_024
"""Series that are looked up in the window together."""
_PAGE_SERIES = 65_536
"""Series whose keys are read at a time to fill the window."""
_MOST_WANTED = 1_000_000
"""Most series of followed writes that wait for the window, about."""
_ADOPTED_ROWS = 8_000_000
"""Most samples of new series that are read together, 160 MB: the more samples each has, the fewer series."""
_NO_SERIES = SeriesKeys(np.empty(0, np.uint64), np.empty(0, np.uint64))
_UNREADABLE_SECONDS = 300.0
"""Seconds after a failed read in which writes add no series to the window."""
BLOCK_ROWS = 65_536
"""Most samples that are copied from the window while writers wait, and that a reader holds."""


class WindowedStore:
    """A ``Store`` with a window. Correct if every write goes through this object (one server writes these series).

    If the engine reports that other servers use it, answers come from memory while this server leads them or follows
    one of them (``EngineUse``).
    A query inside the window of all its series is answered from memory; any other query goes to the engine. The series
    of requested jobs and their rolled-up ranges are cached until the job's revision changes.
    """

    def __init__(self, engine: Store, clock: Clock, *, length_ms: int, bound: int, cache: Cache | None = None) -> None:
        """``length_ms``: how far the window reaches back; ``bound``: its bytes, without the cache."""
        self._engine = engine
        self.logs, self.spans, self.outbox = engine.logs, engine.spans, engine.outbox
        self.check_writable = engine.check_writable
        self.use_series, self.lacks_descriptor = engine.use_series, engine.lacks_descriptor
        self.list_live_series, self.list_names = engine.list_live_series, engine.list_names
        self.read_buckets, self.read_last_times = engine.read_buckets, engine.read_last_times
        self.read_imported_buckets = engine.read_imported_buckets
        self.list_damaged, self.backup = engine.list_damaged, engine.backup
        self._clock = clock
        self.window = Window(length_ms, bound)
        engine.use_series(self.window.series)
        self.engine_use = engine.engine_use
        self._is_trusted = engine.engine_use is None
        self.cache = cache or Cache()
        self._appending = threading.Lock()
        self._sharing = threading.Lock()  # for moments: guards ``_is_trusted`` and who may answer from the window
        self._swept_ms = 0
        self._immutable_ms = self._find_rolled_end()
        self._adopts_after = clock.monotonic()
        self._unfilled: SeriesPage | None = SeriesPage(_NO_SERIES, NEWEST) if self._is_trusted else None
        self._wanted: dict[int, int] = {}  # series of followed writes that are not in the window, and their jobs
        self._meanwhile: list[SampleBatch] | None = None  # followed writes since a read for the window began
        if engine.engine_use is not None:
            engine.engine_use.mirror(self)

    @property
    def memory(self) -> StoreMemory | None:
        """The window; None while it may lack samples of other servers."""
        return self.window if self._is_current else None

    @property
    def _is_current(self) -> bool:
        """True if the window has every sample of its series that was acknowledged before."""
        return self._is_trusted and (self.engine_use is None or self.engine_use.get_valid_until() >= read_clock())

    def _find_rolled_end(self) -> int:
        """Return the end of the last hour that may be rolled up by another process.

        The end is at most the last full hour, or later if the clock was set back.
        """
        over_ms = floor_to(self._clock.now_ms(), HOUR)
        try:
            rolled = self._engine.find_rolled_up_ranges((), TimeRange(over_ms, floor_to(MAX_TIME_MS, HOUR)))
        except UnavailableError:
            return over_ms + HOUR
        return max((part.end_ms for part in rolled), default=over_ms)

    def trust(self, *, trusted: bool) -> None:
        """Empty the memory, and answer from it or not from now on. See ``MirroredMemory``."""
        immutable_ms = self._find_rolled_end() if trusted else 0
        with self._appending:
            with self._sharing:
                self._is_trusted = trusted
                self.window.share(float("-inf"))
            self.window.clear()
            self.window.revisions.raise_all()
            self._unfilled = SeriesPage(_NO_SERIES, NEWEST) if trusted else None
            self._wanted, self._meanwhile = {}, None
            self._immutable_ms = max(self._immutable_ms, immutable_ms)
        self.renew()

    def renew(self) -> None:
        """Let worker processes answer from the window as long as it counts now. See ``MirroredMemory``."""
        with self._sharing:
            if self._is_trusted and self.engine_use is not None:
                self.window.share(self.engine_use.get_valid_until())

    def apply(self, batches: Sequence[SampleBatch], immutable_ms: int) -> None:
        """Take samples that the leader has stored. See ``MirroredMemory``."""
        with self._appending:
            self._immutable_ms = max(self._immutable_ms, immutable_ms)
            if not self._is_trusted or not batches:
                return
            self._sweep()
            changed = _find_late_jobs(batches, self._immutable_ms) | self._want(batches)
            self._write(batches)
            self.window.revisions.raise_some(changed)

    def _want(self, batches: Sequence[SampleBatch]) -> set[int]:
        """Note series that are not in the window: ``fill`` adds them. Return their jobs."""
        jobs = set[int]()
        for batch in batches:
            if not self.window.has_all(batch.keys):
                new = batch.keys.select(self.window.find_missing(batch.keys))
                jobs.update(new.job.tolist())
                if len(self._wanted) < _MOST_WANTED:
                    self._wanted.update(zip(new.series.tolist(), new.job.tolist(), strict=True))
        return jobs

    def invalidate(self, jobs: Sequence[int] | None, *, dropped: bool) -> None:
        """Note that other data of some jobs changed. See ``MirroredMemory``."""
        with self._appending:
            if dropped:
                self._meanwhile = None  # a read for the window may have begun before the change
                for job in jobs or ():
                    self.window.drop_job(job)
                if jobs is None:
                    self.window.clear()
            if jobs is None:
                self.window.revisions.raise_all()
            else:
                self.window.revisions.raise_some(set(jobs))

    def close(self) -> None:
        """Close the engine. Other processes see that the window has ended."""
        with self._sharing:
            self._is_trusted = False  # ``renew`` would open it again
            self.window.close()
        self._engine.close()

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = _DEFAULT) -> None:
        """Append each batch in order. On return all of them are durable."""
        if self.engine_use is None:
            self._store(batches, retention)
        elif batches := self.engine_use.forward(batches, retention):
            # No server waits for others with its lock: their ``apply`` needs it.
            with self.engine_use.confirm():
                self._store(batches, retention)

    def _store(self, batches: Sequence[SampleBatch], retention: Retention) -> None:
        with self._appending:
            if not self._is_trusted:
                self._engine.append_all(batches, retention)
                return
            self.check_writable()  # before the window changes: a refusal below costs its series a read
            immutable_ms = self._immutable_ms
            late = _find_late_jobs(batches, immutable_ms)
            # Sweep stale series first: a series that returns after a day is new here, and its descriptors too.
            self._sweep()
            changed = late | self._take_in(batches)
            self.window.revisions.raise_some(changed)
            try:
                self._engine.append_all(batches, retention)
            except BaseException:
                self._meanwhile = None
                for batch in batches:
                    self.window.drop(batch.keys)  # it is unknown which of it the engine has
                raise
            finally:
                # A roll-up may have run since: its hours may lack these samples.
                if self._immutable_ms != immutable_ms:
                    changed |= _find_late_jobs(batches, self._immutable_ms)
                # Again: a reader may meanwhile have found some of it, and not the rest.
                self.window.revisions.raise_some(changed)
            self._write(batches)

    def _write(self, batches: Sequence[SampleBatch]) -> None:
        self.window.write_all(batches, self._clock.now_ms())
        if self._meanwhile is not None:
            self._meanwhile += batches

    def fill(self, most: int) -> bool:
        """Add some series that have samples in the engine inside the window. Return True if more are left.

        For the time after a start: writes add their series. The series of the last day come first. Ends early if the
        window is full: queries about a series outside of it go to the engine.
        """
        page = self._unfilled
        if page is None:
            return self._adopt_followed(most)
        since = max(0, self._clock.now_ms() - self.window.length_ms)
        keys, following = page
        while not len(keys) and following is not None:
            keys, following = self._engine.list_live_series(since, _PAGE_SERIES, following)
        some = keys.select(slice(most))
        follows = self.engine_use is not None and self.engine_use.is_following
        if follows:
            self._adopt_beside(some, since)
        with self._appending:
            if self._unfilled is not page:
                return True  # other servers came or went
            new = self.window.find_missing(some)
            if new.any() and not follows:
                self._adopt(some.select(new), since)
            # Only after the read: after an error the next round tries these series again.
            left = SeriesPage(keys.select(slice(most, None)), following)
            self._unfilled = None if self.window.full or not (len(left.keys) or left.following) else left
            return self._unfilled is not None or bool(self._wanted)

    def _adopt_followed(self, most: int) -> bool:
        """Add some series whose writes this server followed. Return True if more are left."""
        with self._appending:
            some = dict(itertools.islice(self._wanted.items(), most))
            if not some or self.window.full:
                self._wanted = {}
                return False
        since = max(0, self._clock.now_ms() - self.window.length_ms)
        self._adopt_beside(SeriesKeys(np.array(list(some.values()), np.uint64), np.array(list(some), np.uint64)), since)
        with self._appending:
            for series in some:
                self._wanted.pop(series, None)
            return bool(self._wanted)

    def _adopt_beside(self, keys: SeriesKeys, since_ms: int) -> None:
        """Add series to the window while writes go on: a follower must not let the leader wait for the engine."""
        parts = [keys]
        while parts:
            some = parts.pop()
            with self._appending:
                if not self._is_trusted:
                    return
                some = some.select(self.window.find_missing(some))
                self._meanwhile = []
            if not len(some):
                continue
            try:
                blocks = self._engine.read(some, TimeRange(since_ms, MAX_TIME_MS), ReadBudget(rows=_ADOPTED_ROWS))
                columns = SampleColumns.concatenate(list(blocks))
            except LimitExceededError:
                half = len(some) // 2
                parts += [some.select(slice(half)), some.select(slice(half, None))] if half else []
                continue
            with self._appending:
                written = self._pop_meanwhile()
                if written is None:
                    return  # data were dropped, or the role changed
                self.window.adopt(some, columns, since_ms)
                if written:
                    self.window.write_all([_select(batch, some) for batch in written], self._clock.now_ms())

    def _pop_meanwhile(self) -> list[SampleBatch] | None:
        """Return the writes since the read began; None if the read is void."""
        written, self._meanwhile = self._meanwhile, None
        return written

    def find(self, selector: SeriesSelector) -> list[Series]:
        """Return the series that match. The list is shared: callers must not change it."""
        revision = self.get_revision(selector.jobs)
        if revision is None:
            return self._engine.find(_widen_selector(selector))
        # A list for each node: questions about several nodes seldom name the same ones again.
        parts = [selector] if selector.nodes is None else [replace(selector, nodes=(one,)) for one in selector.nodes]
        lists: dict[Hashable, list[Series] | None] = {
            part.nodes: self.cache.get(_name_of(part), revision) for part in parts
        }
        missing = [part for part in parts if lists[part.nodes] is None]
        if missing:
            nodes = None if selector.nodes is None else tuple(one for part in missing for one in part.nodes or ())
            found = self._engine.find(_widen_selector(replace(selector, nodes=nodes)))
            for part, own in zip(missing, _split(found, missing), strict=True):
                lists[part.nodes] = own
                self.cache.put(_name_of(part), revision, own, _SERIES_BYTES * (len(own) + 1))
        joined = [own for own in lists.values() if own]
        series = joined[0] if len(joined) == 1 else list(itertools.chain.from_iterable(joined))
        if len(series) > selector.limit:
            raise LimitExceededError(f"more than {selector.limit} series match: narrow the query", "metrics")
        return series

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Generator[SampleColumns]:
        """Yield raw samples in blocks. The budget's time starts with the first block.

        Blocks are copied from the window one by one, on demand. If the window has dropped samples in between, the rest
        is read from the engine.
        """
        left = BudgetMeter.start(budget)
        for begin in range(0, len(keys), _TOGETHER):
            some = keys.select(slice(begin, begin + _TOGETHER))
            first, first_ms, full = 0, span.start_ms, True
            while full:
                columns = (
                    self.window.read(some, span, first=first, first_ms=first_ms, most=BLOCK_ROWS)
                    if self._is_current
                    else None
                )
                if columns is None:
                    # All of them from here on: an engine reads many series as fast as some.
                    yield from self._read_rest(keys, span, begin + first, first_ms, left)
                    return
                left.take(len(columns))
                full = len(columns) == BLOCK_ROWS
                if len(columns):
                    first, first_ms = int(columns.index[-1]), int(columns.time[-1]) + 1
                    yield SampleColumns(columns.index + np.uint32(begin), columns.time, columns.value)

    def _read_rest(
        self, keys: SeriesKeys, span: TimeRange, first: int, first_ms: int, left: BudgetMeter
    ) -> Iterator[SampleColumns]:
        """Yield from the engine the samples of a series from a time on, and all samples of the series behind it."""
        parts = [(first, len(keys), span)]
        if first_ms > span.start_ms:
            own = TimeRange(min(first_ms, span.end_ms), span.end_ms)
            parts = [(first, first + 1, own), (first + 1, len(keys), span)]
        for begin, end, part in parts:
            if begin < end:
                for block in self._engine.read(keys.select(slice(begin, end)), part, left.compute_rest()):
                    left.take(len(block))
                    yield SampleColumns(block.index + np.uint32(begin), block.time, block.value)

    def read_previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """Return for each series its last sample before that time."""
        found = self.window.read_previous(keys, before_ms) if self._is_current else None
        return self._engine.read_previous(keys, before_ms, budget) if found is None else found

    def find_rolled_up_ranges(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """Return the hour-aligned parts of ``span`` with complete roll-ups of all these jobs."""
        name, revision = (WindowedStore, tuple(jobs), span), self.get_revision(jobs)
        if revision is None:
            return self._engine.find_rolled_up_ranges(jobs, span)
        cached: list[TimeRange] | None = self.cache.get(name, revision)
        if cached is None:
            cached = self._engine.find_rolled_up_ranges(jobs, span)
            self.cache.put(name, revision, cached, 100 * (len(jobs) + len(cached)))
        return cached

    def get_revision(self, jobs: Sequence[int] | None) -> Hashable | None:
        """Return a value that changes when data of these jobs may have changed; None while other servers may change it.

        ``jobs`` is None for every job.

        It changes after every roll-up, after samples of hours that may be rolled up, and after new series of a job.
        None also where answers may lack rows: they must not be cached.
        """
        return self.window.revisions.get_revision(jobs) if self._is_current and get_missing_shards() is None else None

    def roll_up(self, until_ms: int) -> int:
        """Compute missing roll-ups up to a time, and marked hours. Return the number of hours."""
        # Until the rolled-up hours are known, each earlier sample counts as late.
        self._immutable_ms = max(until_ms, self._immutable_ms)
        hours = 1
        try:
            hours = self._engine.roll_up(until_ms)
        finally:
            if hours:
                self.window.revisions.raise_all()
        return hours

    def delete_job(self, job: int) -> None:
        """Delete every sample, roll-up, series, log line and span of a job key."""
        try:
            self._engine.delete_job(job)  # without the lock: see ``append_all``
        finally:
            self.invalidate((job,), dropped=True)

    def read_statistics(self) -> StoreStatistics:
        """Return the sizes of the stored data, and of the window."""
        seconds = self.window.length_ms // SECOND
        window = {"series": len(self.window), "bytes": self.window.bytes, "seconds": seconds}
        return replace(self._engine.read_statistics(), window=window)

    def restore(self, directory: Path) -> None:
        """Restore a backup into an empty store."""
        self._engine.restore(directory)
        self.window.revisions.raise_all()

    def move(self, order: MoveOrder) -> Iterator[MoveLine]:
        """Move all data to another engine, or compare both."""
        return self._engine.move(order)

    def _take_in(self, batches: Sequence[SampleBatch]) -> set[int]:
        """Add series that are not in the window, with their samples in the engine. Return their jobs.

        A single query serves all batches. A server that also follows adds them later: its leader must not wait.
        """
        if self.engine_use is not None and self.engine_use.is_following:
            return self._want(batches)
        since = max(0, self._clock.now_ms() - self.window.length_ms)
        jobs = set[int]()
        job, series = list[Uint64s](), list[Uint64s]()
        for batch in batches:
            if not self.window.has_all(batch.keys):
                new = self.window.find_missing(batch.keys)
                jobs.update(batch.keys.job[new].tolist())
                live = np.zeros(len(new), bool)
                live[batch.index[batch.time >= since]] = True
                new &= live
                job.append(batch.keys.job[new])
                series.append(batch.keys.series[new])
        if sum(map(len, series)):
            ids, first = np.unique(np.concatenate(series), return_index=True)
            self._adopt_if_possible(SeriesKeys(np.concatenate(job)[first], ids), since)
        return jobs

    def _adopt_if_possible(self, keys: SeriesKeys, since_ms: int) -> None:
        """Add new series, unless the engine cannot be read: writes do not wait for the engine, answers do."""
        if self._clock.monotonic() < self._adopts_after:
            return
        try:
            self._adopt(keys, since_ms, self._clock.now_ms())
        except UnavailableError:
            self._adopts_after = self._clock.monotonic() + _UNREADABLE_SECONDS

    def _adopt(self, keys: SeriesKeys, since_ms: int, now_ms: int | None = None) -> None:
        """Add new series to the window. No appends may run meanwhile. See ``Window.adopt``."""
        new = self._engine.lacks_descriptor(keys, since_ms)
        if new.any():
            fresh = keys.select(new)
            self.window.adopt(fresh, SampleColumns.make_empty(), since_ms, now_ms)
            keys = keys.select(~new)
        parts = [keys] if len(keys) else []
        while parts:
            some = parts.pop()
            blocks = self._engine.read(some, TimeRange(since_ms, MAX_TIME_MS), ReadBudget(rows=_ADOPTED_ROWS))
            try:
                self.window.adopt(some, SampleColumns.concatenate(list(blocks)), since_ms, now_ms)
            except LimitExceededError:
                # A single series with too many samples stays outside: queries about it go to the engine.
                half = len(some) // 2
                parts += [some.select(slice(half)), some.select(slice(half, None))] if half else []

    def _sweep(self) -> None:
        now = self._clock.now_ms()
        if now - self._swept_ms >= MINUTE:
            self._swept_ms = now
            self.window.sweep(now)


def _find_late_jobs(batches: Sequence[SampleBatch], before_ms: int) -> set[int]:
    """Return the jobs with samples before a time: in hours that may be rolled up."""
    jobs = set[int]()
    for batch in batches:
        if len(batch) and batch.span[0] < before_ms:
            job = batch.keys.job[batch.index[batch.time < before_ms]]
            # Rows come in runs of one job.
            jobs.update(job[mark_first_rows(job)].tolist())
    return jobs


def _select(batch: SampleBatch, keys: SeriesKeys) -> SampleBatch:
    """Return the samples of some series."""
    own = np.isin(batch.keys.series, keys.series)[batch.index]
    return SampleBatch((), batch.index[own], batch.time[own], batch.value[own], batch.keys, existing_single=False)


def _widen_selector(selector: SeriesSelector) -> SeriesSelector:
    """Return the selector for the engine, widened so that the list may be cached."""
    return selector if selector.since is None else replace(selector, since=_find_first_day(selector.since))


def _split(found: list[Series], parts: Sequence[SeriesSelector]) -> list[list[Series]]:
    """Return the series of each part: of its only node, or all of them."""
    if parts[0].nodes is None:
        return [found]
    by_node: dict[Hashable, list[Series]] = {}
    for one in found:
        by_node.setdefault(((one.cluster, one.node),), []).append(one)
    return [by_node.get(part.nodes, []) for part in parts]


def _find_first_day(time_ms: int) -> int:
    # Whole days, two of them to spare: every cached list then has all series of the window.
    return max(0, floor_to(time_ms, DAY) - 2 * DAY)


def _name_of(selector: SeriesSelector) -> Hashable:
    since = None if selector.since is None else _find_first_day(selector.since)
    names = selector.metrics, selector.projects, selector.nodes, selector.special
    return selector.jobs, names, since, selector.limit
