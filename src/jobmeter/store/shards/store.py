"""A store whose rows are spread over shards. Each shard is a store with its own journal, roll-ups and replicas.

A call about one job goes to the shard of the job alone. A call about several goes to their shards at the same time,
and their results are merged. Each row is on one shard, so the merged answer equals that of a single engine.
``jobmeter.store.shards.placement`` decides where a row is.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import reduce, update_wrapper
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from msgspec.structs import replace

from jobmeter.errors import LimitExceededError, UnavailableError
from jobmeter.model.batch import Bools, BucketColumns, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.retention import Retention
from jobmeter.model.series import NO_JOB, NamePart, Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import TimeRange, intersect_ranges
from jobmeter.store.base import (
    NEWEST,
    EngineUse,
    ReadBudget,
    SeriesPage,
    SeriesPlace,
    SeriesSelector,
    StoreMemory,
    StoreStatistics,
    Tier,
)
from jobmeter.store.damage import DamagedPart
from jobmeter.store.meter import BudgetMeter
from jobmeter.store.shards.away import AwayShard
from jobmeter.store.shards.placement import find_shard
from jobmeter.store.shards.shard import Shard, ShardEngine, ShardOpening, ShardSet, ask_all, ask_some
from jobmeter.store.shards.split import KeyPart, merge_blocks, merge_columns, renumber, split_batches, split_keys
from jobmeter.store.shards.tables import ShardedLogs, ShardedOutbox, ShardedSpans
from jobmeter.store.shards.use import ShardUse

_RETENTION = Retention()
_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")
_Part = TypeVar("_Part")
_Columns = TypeVar("_Columns", bound=SampleColumns | BucketColumns)


def _while_placed(
    method: "Callable[Concatenate[ShardedStore, _Arguments], _Found]",
) -> "Callable[Concatenate[ShardedStore, _Arguments], _Found]":
    """Run a method while rows keep their shards."""

    def run(self: "ShardedStore", /, *arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Found:
        with self.placement.keep_placement():
            return method(self, *arguments, **options)

    update_wrapper(run, method)
    return run


class PlacementWork(Protocol):
    """Places the rows on more or fewer shards beside traffic."""

    def start(self) -> None:
        """Begin on a thread."""
        ...

    def stop(self) -> None:
        """End. The next start continues."""
        ...


class ShardedStore:
    """``jobmeter.store.base.Store`` over the shards of one store."""

    memory: StoreMemory | None = None
    """Always None: this engine has no window."""

    def __init__(
        self, placement: ShardSet, move: Callable[[MoveOrder], Iterator[MoveLine]], work: PlacementWork | None = None
    ) -> None:
        """Shards that are not open yet are opened in the background. ``move`` moves the rows of all shards.

        ``work`` places rows on more or fewer shards.
        """
        self.placement = placement
        self.shards = placement.shards
        self.move = move
        self._placing = work
        self.logs, self.spans, self.outbox = ShardedLogs(placement), ShardedSpans(placement), ShardedOutbox(placement)
        self._use = ShardUse(placement)
        self.engine_use: EngineUse | None = self._use
        self._series: SeriesTable | None = None
        for shard in self.shards:
            self._use.add(shard)
        self._opening = ShardOpening([one for one in self.shards if one.engine is None], self._take_in)
        if work is not None:
            work.start()

    def _take_in(self, shard: Shard) -> None:
        """Use a shard that was away at the start."""
        if self._series is not None and shard.engine is not None:
            shard.engine.use_series(self._series)
        self._use.add(shard)

    def use_series(self, table: SeriesTable) -> None:
        """Use a table of series that others use, too."""
        self._series = table
        for shard in self.shards:
            if shard.engine is not None:
                shard.engine.use_series(table)

    @property
    def count(self) -> int:
        """The number of shards that have rows, inside ``placement.keep_placement``."""
        return self.placement.count

    def _ask(self, parts: Mapping[int, _Part], work: Callable[[ShardEngine, _Part], _Found]) -> list[_Found]:
        return list(ask_some(self.shards, parts, work).values())

    def _ask_everyone(self, work: Callable[[ShardEngine, None], _Found]) -> list[_Found]:
        return self._ask(dict.fromkeys(range(self.count)), work)

    def _change_everyone(self, work: Callable[[ShardEngine, None], _Found]) -> list[_Found]:
        return list(ask_all(self.shards, dict.fromkeys(range(self.count)), work).values())

    def _ask_keys(
        self, keys: SeriesKeys, work: Callable[[ShardEngine, SeriesKeys], _Found]
    ) -> list[tuple[KeyPart, _Found]]:
        parts = {part.shard: part for part in split_keys(keys, self.count)}
        found = ask_some(self.shards, parts, lambda engine, part: work(engine, part.keys))
        return [(parts[shard], one) for shard, one in found.items()]

    def _group_jobs(self, jobs: Sequence[int]) -> dict[int, list[int]]:
        """Group jobs by shard. What belongs to no job is on every shard."""
        found: dict[int, list[int]] = {}
        for job in dict.fromkeys(jobs):
            for shard in range(self.count) if job == NO_JOB else (find_shard(job, self.count),):
                found.setdefault(shard, []).append(job)
        return found

    @_while_placed
    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = _RETENTION) -> None:
        """Append each batch in order. On return all of them are durable."""
        parts = split_batches(batches, self.count)
        ask_all(self.shards, parts, lambda engine, some: engine.append_all(some, retention), journaled=True)

    def check_writable(self) -> None:
        """Raise UnavailableError while every write is refused."""
        for shard in self.shards:
            if shard.engine is not None:
                shard.engine.check_writable()

    @_while_placed
    def lacks_descriptor(self, keys: SeriesKeys, since_ms: int = 0) -> Bools:
        """Return bool[k]: series that certainly have no samples since a time, because they have no descriptor."""
        lacking = np.zeros(len(keys), np.bool_)
        for part, found in self._ask_keys(keys, lambda engine, some: engine.lacks_descriptor(some, since_ms)):
            lacking[part.places] = found
        return lacking

    @_while_placed
    def find(self, selector: SeriesSelector) -> list[Series]:
        """Return the series that match. Raises LimitExceededError past the selector's limit."""
        found = self._ask(self._split_selector(selector), lambda engine, one: engine.find(one))
        if len(found) == 1:
            return found[0]
        series = [one for some in found for one in some]
        if len(series) > selector.limit:
            raise LimitExceededError(f"more than {selector.limit} series match: narrow the query", "metrics")
        return series

    @_while_placed
    def list_names(self, selector: SeriesSelector, part: NamePart, prefix: str = "") -> list[str]:
        """Return the distinct names of a field in the matching series, sorted."""
        parts = self._split_selector(selector)
        found = self._ask(parts, lambda engine, one: engine.list_names(one, part, prefix))
        return found[0] if len(found) == 1 else sorted({name for names in found for name in names})[: selector.limit]

    def _split_selector(self, selector: SeriesSelector) -> dict[int, SeriesSelector]:
        if selector.jobs is None:
            return dict.fromkeys(range(self.count), selector)
        parts = self._group_jobs(selector.jobs) or {0: []}
        return {shard: replace(selector, jobs=tuple(jobs)) for shard, jobs in parts.items()}

    @_while_placed
    def list_live_series(self, since_ms: int, most: int, place: SeriesPlace = NEWEST) -> SeriesPage:
        """Return a page of series that may have samples since a time."""
        pages = self._ask_everyone(lambda engine, _: engine.list_live_series(since_ms, most, place))
        job, series = (np.concatenate([getattr(page.keys, name) for page in pages]) for name in ("job", "series"))
        keys = SeriesKeys(job, series)
        keys = keys.select(np.lexsort((keys.series, keys.job)))
        following = [page.following for page in pages if page.following is not None]
        # The rest of this day, else the latest earlier day.
        nexts = [(job, series) for day, job, series in following if day == place[0]]
        if len(keys) > most:
            nexts.append((int(keys.job[most]), int(keys.series[most])))
        if nexts:
            return SeriesPage(keys.select(slice(most)), (place[0], *min(nexts)))
        return SeriesPage(keys, max(following, default=None))

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Generator[SampleColumns]:
        """Yield raw samples in blocks, sorted by (index, time)."""
        if not len(keys):
            return
        with self.placement.keep_placement() as count:
            parts = {part.shard: part for part in split_keys(keys, count)}
            if len(parts) == 1:
                ((shard, _),) = parts.items()
                yield from self.shards[shard].stream(lambda engine: engine.read(keys, span, budget))
            else:
                yield from self._read_parts(parts, span, budget)

    def _read_parts(self, parts: Mapping[int, KeyPart], span: TimeRange, budget: ReadBudget) -> Iterator[SampleColumns]:
        left = BudgetMeter.start(budget)
        with ExitStack() as stack:
            streams = ask_some(self.shards, parts, lambda engine, part: engine.read(part.keys, span, budget))
            for stream in streams.values():
                stack.enter_context(closing(stream))

            def fill(some: Mapping[int, Iterator[SampleColumns]]) -> Mapping[int, SampleColumns | None]:
                found = ask_all(self.shards, some, lambda _, stream: next(stream, None))
                return {
                    shard: None if block is None else renumber(block, parts[shard]) for shard, block in found.items()
                }

            for block in merge_blocks(streams, fill):
                left.take(len(block))
                yield block

    @_while_placed
    def read_buckets(self, keys: SeriesKeys, span: TimeRange, tier: Tier, budget: ReadBudget) -> BucketColumns:
        """Return roll-up rows whose bucket start lies in ``span``."""
        return self._merge(keys, lambda engine, some: engine.read_buckets(some, span, tier, budget))

    @_while_placed
    def read_previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """Return for each series its last sample before that time."""
        return self._merge(keys, lambda engine, some: engine.read_previous(some, before_ms, budget))

    def _merge(self, keys: SeriesKeys, work: Callable[[ShardEngine, SeriesKeys], _Columns]) -> _Columns:
        if not len(keys):
            return self.shards[0].call(lambda engine: work(engine, keys))
        return merge_columns([renumber(found, part) for part, found in self._ask_keys(keys, work)])

    def read_imported_buckets(self, keys: SeriesKeys, span: TimeRange, step_ms: int) -> BucketColumns | None:
        """Return None: a ClickHouse server has no statistics of imported samples."""

    @_while_placed
    def find_rolled_up_ranges(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """Return the hour-aligned parts of ``span`` with complete roll-ups of all these jobs.

        Without jobs: the parts with roll-ups of any job.
        """
        parts = self._group_jobs(jobs)
        if not parts:
            found = self._ask_everyone(lambda engine, _: engine.find_rolled_up_ranges((), span))
            return max(found, key=lambda ranges: max((one.end_ms for one in ranges), default=0))
        return reduce(intersect_ranges, self._ask(parts, lambda engine, some: engine.find_rolled_up_ranges(some, span)))

    def get_revision(self, jobs: Sequence[int] | None) -> None:
        """Return None: this engine does not count changes."""

    def roll_up(self, until_ms: int) -> int:
        """Compute missing roll-ups up to a time, and marked hours, on each shard. Return the number of hours.

        A shard that is away does not stop the roll-ups of the others; its error is raised afterwards.
        """
        return sum(self._change_everyone(lambda engine, _: engine.roll_up(until_ms)))

    @_while_placed
    def read_last_times(self, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the times of the first and the last sample of each job key that has samples."""
        parts = self._group_jobs(jobs)
        times: dict[int, tuple[int, int]] = {}
        for found in self._ask(parts, lambda engine, some: engine.read_last_times(some)):
            for job, (first, last) in found.items():
                span = times.get(job, (first, last))
                times[job] = (min(first, span[0]), max(last, span[1]))
        return times

    @_while_placed
    def delete_job(self, job: int) -> None:
        """Delete every sample, roll-up, series, log line and span of a job key. Its spans may be on every shard.

        Deletes nothing while a shard is away.
        """
        self._change_everyone(lambda engine, _: engine.check_writable())
        self._change_everyone(lambda engine, _: engine.delete_job(job))

    def list_damaged(self) -> Sequence[DamagedPart]:
        """Return the shards that cannot be read, and the unreadable parts of the others."""
        found: list[DamagedPart] = []
        for number, shard in enumerate(self.shards[: self.count]):
            if shard.engine is None or not shard.is_up:
                found.append(AwayShard.describe(number, self.count))
            else:
                found += shard.engine.list_damaged()
        return found

    def read_statistics(self) -> StoreStatistics:
        """Return the sizes of the stored data on the shards that answer."""
        found: dict[int, StoreStatistics] = {}
        for number, shard in enumerate(self.shards):
            with suppress(UnavailableError):
                found[number] = shard.call(lambda engine: engine.read_statistics())
        names = ("rows", "bytes", "parts", "merges", "journal", "replicas")
        sums = {name: _add_up([getattr(one, name) for one in found.values()]) for name in names}
        states = {str(number + 1): int(number in found) for number in range(len(self.shards))}
        damaged = [part for one in found.values() for part in one.damaged]
        roles = dict.fromkeys(one.role for one in found.values())
        role = "; ".join(roles if len(roles) < 2 else (f"shard {n + 1}: {one.role}" for n, one in found.items()))
        return replace(StoreStatistics(rows={}, bytes={}), **sums, damaged=damaged, shards=states, role=role)

    @_while_placed
    def backup(self, directory: Path) -> None:
        """Write a copy of each shard into a folder of its own, on the machine of its server."""
        ask_all(self.shards, self._make_folders(directory), lambda engine, folder: engine.backup(folder))

    @_while_placed
    def restore(self, directory: Path) -> None:
        """Restore a copy of a store with as many shards."""
        ask_all(self.shards, self._make_folders(directory), lambda engine, folder: engine.restore(folder))

    def _make_folders(self, directory: Path) -> dict[int, Path]:
        return {number: directory / f"shard-{number + 1}" for number in range(self.count)}

    def cancel_move(self) -> str:
        """Let servers use the shards again after a move. Return the name of the other store; empty without a move."""
        return max(self._change_everyone(lambda engine, _: engine.cancel_move()))

    def close(self) -> None:
        """Finish running work, and close all shards."""
        if self._placing is not None:
            self._placing.stop()
        self._opening.stop()
        for shard in self.shards:
            shard.close()


def _add_up(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, number in part.items():
            found[name] = found.get(name, 0) + number
    return found
