"""An engine with a hot window in front: the same contract, the newest samples without asking the engine."""

import threading
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import BucketColumns, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, SECOND, Clock, TimeRange, floor_to
from jobmeter.store.base import LogSelector, ReadBudget, Selector, Store, StoreStatistics, Tier
from jobmeter.store.window.column import View
from jobmeter.store.window.window import Window, ascending

_DEFAULT = Retention()
_MOST_LATE = 100_000


class WindowedStore:
    """See ``Store``. Right as long as every write goes through this object (one server writes these series).

    A question that lies inside the window of all its series is answered from memory; any other one is the engine's.
    Series descriptors of jobs that were asked for are kept too, until the job gets a new series.
    """

    def __init__(self, engine: Store, clock: Clock, *, length_ms: int, bound: int, jobs: int = 10_000) -> None:
        """``length_ms``: how far back it reaches; ``bound``: its bytes; ``jobs``: how many jobs' series are kept."""
        self._engine = engine
        self._clock = clock
        self.window = Window(length_ms, bound)
        self._found: dict[Selector, list[Series]] = {}
        self._jobs = jobs
        self._appending = threading.Lock()
        self._swept_ms = 0
        self._generation = 0
        self._settled_ms = MAX_TIME_MS
        self._turns = 0
        self._late: dict[int, int] = {}
        self._rolled: dict[tuple[Hashable, tuple[int, ...], TimeRange], list[TimeRange]] = {}

    def append(self, batch: SampleBatch, retention: Retention = _DEFAULT) -> None:
        """See ``Store.append``."""
        with self._appending:
            late = self._late_jobs(batch)
            self._turn(late)
            try:
                self._engine.append(batch, retention)
            finally:
                self._turn(late)
            # First what is stale goes: a series that comes back after a day is new here, and its descriptors too.
            self._sweep()
            keys = batch.keys
            self._take_in(batch, keys)
            self.window.write(batch, keys, self._clock.now_ms())

    def find(self, selector: Selector) -> list[Series]:
        """See ``Store.find``. The list is shared: callers leave it as it is."""
        if selector.since is not None:
            # Whole days, two of them to spare: whatever the window holds is then in every list that is kept.
            selector = replace(selector, since=max(0, floor_to(selector.since, DAY) - 2 * DAY))
        known = self._found.get(selector)
        if known is not None:
            return known
        generation = self._generation
        series = self._engine.find(selector)
        if selector.jobs is not None and generation == self._generation:
            if len(self._found) >= self._jobs:
                self._found.clear()
            self._found[selector] = series
        return series

    def names(self, selector: Selector, part: NamePart, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        return self._engine.names(selector, part, prefix)

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Iterator[SampleColumns]:
        """See ``Store.read``."""
        views = self._inside(keys, span.start_ms)
        if views is None:
            yield from self._engine.read(keys, span, budget)
            return
        columns = _cut(views, span)
        if len(columns) > budget.rows:
            raise LimitExceededError("the question reads more stored rows than one may: narrow its range", "range")
        if len(columns):
            yield columns

    def previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """See ``Store.previous``."""
        views = self._inside(keys, before_ms)
        if views is None:
            return self._engine.previous(keys, before_ms, budget)
        places = [int(np.searchsorted(view.time, before_ms)) - 1 for view in views]
        if min(places, default=0) < 0:
            return self._engine.previous(keys, before_ms, budget)
        pairs = list(zip(views, places, strict=True))
        return SampleColumns(
            np.arange(len(views), dtype=np.uint32),
            np.array([view.time[place] for view, place in pairs], np.int64),
            np.array([view.value[place] for view, place in pairs], np.float64),
        )

    def read_buckets(self, keys: SeriesKeys, span: TimeRange, tier: Tier, budget: ReadBudget) -> BucketColumns:
        """See ``Store.read_buckets``."""
        return self._engine.read_buckets(keys, span, tier, budget)

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """See ``Store.rolled``."""
        name = (self.revision(jobs), tuple(jobs), span)
        known = self._rolled.get(name)
        if known is None:
            known = self._engine.rolled(jobs, span)
            if len(self._rolled) >= self._jobs:
                self._rolled.clear()
            self._rolled[name] = known
        return known

    def revision(self, jobs: Sequence[int]) -> Hashable:
        """See ``Store.revision``: it differs after every roll-up, and after samples of hours that may be rolled up."""
        return self._turns, *(self._late.get(job, 0) for job in jobs)

    def roll_up(self, until_ms: int) -> int:
        """See ``Store.roll_up``."""
        # From here on samples before that time may touch what is rolled up; until it is known which, all of them do.
        self._settled_ms = max(until_ms, 0 if self._settled_ms == MAX_TIME_MS else self._settled_ms)
        hours = 1
        try:
            hours = self._engine.roll_up(until_ms)
        finally:
            if hours:
                self._turns += 1
        return hours

    def last_times(self, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """See ``Store.last_times``."""
        return self._engine.last_times(jobs)

    def append_logs(self, lines: Sequence[LogLine], retention: Retention = _DEFAULT) -> None:
        """See ``Store.append_logs``."""
        self._engine.append_logs(lines, retention)

    def read_logs(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """See ``Store.read_logs``."""
        return self._engine.read_logs(selector, budget)

    def delete_job(self, job: int) -> None:
        """See ``Store.delete_job``."""
        with self._appending:
            try:
                self._engine.delete_job(job)
            finally:
                self._turn({job})
            self.window.drop_job(job)
            self._forget_found()

    def statistics(self) -> StoreStatistics:
        """See ``Store.statistics``."""
        seconds = self.window.length_ms // SECOND
        window = {"series": len(self.window), "bytes": self.window.bytes, "seconds": seconds}
        return replace(self._engine.statistics(), window=window)

    def backup(self, directory: Path) -> None:
        """See ``Store.backup``."""
        self._engine.backup(directory)

    def restore(self, directory: Path) -> None:
        """See ``Store.restore``."""
        self._engine.restore(directory)
        self._turns += 1

    def close(self) -> None:
        """See ``Store.close``."""
        self._engine.close()

    def _take_in(self, batch: SampleBatch, keys: SeriesKeys) -> None:
        """Bring series that the window does not hold into it, with what the engine has of the window's time."""
        pairs = zip(keys.job.tolist(), keys.series.tolist(), strict=True)
        new = np.array([pair not in self.window for pair in pairs], bool)
        if not new.any():
            return
        self._forget_found()
        since = max(0, self._clock.now_ms() - self.window.length_ms)
        live = np.zeros(len(keys), bool)
        live[batch.index[batch.time >= since]] = True
        new &= live
        if not new.any():
            return
        missing = SeriesKeys(keys.job[new], keys.series[new])
        blocks = list(self._engine.read(missing, TimeRange(since, MAX_TIME_MS), ReadBudget()))
        if not blocks:
            return
        rows = [np.concatenate([getattr(block, name) for block in blocks]) for name in ("index", "time", "value")]
        for position, time, value in ascending(rows[0], rows[1], rows[2]):
            key = int(missing.job[position]), int(missing.series[position])
            self.window.adopt(key, time.copy(), value.copy(), since)

    def _late_jobs(self, batch: SampleBatch) -> set[int]:
        """The jobs with samples of a time that may be rolled up."""
        late = np.unique(batch.index[batch.time < self._settled_ms])
        return {batch.series[at].job_key for at in late.tolist()}

    def _turn(self, jobs: Collection[int]) -> None:
        """What was known of the roll-ups of these jobs is so no longer."""
        if len(self._late) + len(jobs) > _MOST_LATE:
            self._turns += 1
            self._late.clear()
        for job in jobs:
            self._late[job] = self._late.get(job, 0) + 1

    def _forget_found(self) -> None:
        self._generation += 1
        self._found.clear()

    def _inside(self, keys: SeriesKeys, start_ms: int) -> list[View] | None:
        """The views of all keys, when each vouches for everything since ``start_ms``; else None."""
        views = self.window.views(keys)
        inside = [view for view in views if view is not None and view.since_ms <= start_ms]
        return inside if len(inside) == len(views) else None

    def _sweep(self) -> None:
        now = self._clock.now_ms()
        if now - self._swept_ms >= MINUTE:
            self._swept_ms = now
            self.window.sweep(now)


def _cut(views: Sequence[View], span: TimeRange) -> SampleColumns:
    """The samples of all views inside of a span, by position and time."""
    if not views:
        return SampleColumns.empty()
    ends = np.array((span.start_ms, span.end_ms), np.int64)
    bounds = [view.time.searchsorted(ends).tolist() for view in views]
    return SampleColumns(
        np.repeat(np.arange(len(views), dtype=np.uint32), [end - start for start, end in bounds]),
        np.concatenate([view.time[start:end] for view, (start, end) in zip(views, bounds, strict=True)]),
        np.concatenate([view.value[start:end] for view, (start, end) in zip(views, bounds, strict=True)]),
    )
