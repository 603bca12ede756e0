"""What a telemetry engine must do. ``jobmeter.testing.store.StoreTests`` is the same contract as tests."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from jobmeter.model.batch import (
    Bools,
    BucketColumns,
    Int64s,
    LineColumns,
    References,
    SampleBatch,
    SampleColumns,
    SeriesKeys,
    Uint8s,
)
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series
from jobmeter.model.time import HOUR, MINUTE, TimeRange
from jobmeter.store.damage import DamagedPart


class Tier(IntEnum):
    """A roll-up tier; its value is the length of its buckets in milliseconds."""

    MINUTE = MINUTE
    HOUR = HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which series. Every part that is given must match.

    ``projects`` None means every project: whoever calls has settled what the asker may see (``jobmeter.access``).
    ``jobs`` holds job keys (``NOBODY`` for node series); ``nodes`` holds (cluster, node) pairs. ``since`` leaves out
    series that were last written before that time, in epoch milliseconds, as far as the engine knows (it may keep
    more).
    """

    projects: frozenset[str] | None = None
    jobs: tuple[int, ...] | None = None
    nodes: tuple[tuple[str, str], ...] | None = None
    metrics: frozenset[str] | None = None
    since: int | None = None
    limit: int = 1_000_000


PAGE_BYTES = 64 * 2**20
"""Most bytes of text in one page of log lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelector:
    """Which lines of one job, and which part of them in which order: see ``jobmeter.query.request.LogQuestion``."""

    project: str
    job: str
    replicas: frozenset[str] = frozenset()
    attempt: int | None = None
    stream: str = ""
    min_level: Level | None = None
    contains: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    descending: bool = False
    offset: int = 0
    limit: int = 100
    count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBudget:
    """How much one question may cost.

    Past ``rows`` a read raises LimitExceededError, past ``seconds`` QueryTimeoutError.
    """

    rows: int = 200_000_000
    seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """Sizes for operators: rows and bytes on disk by table (``samples``, ``minutes``, ``hours``, ``series``, ``logs``).

    ``window`` tells of the samples in memory, empty where there are none: ``series``, ``bytes``, and the ``seconds``
    that they reach back. ``parts`` and ``merges``, by table where the engine has such: parts on disk that questions
    read, merges under way. ``journal`` tells of samples that are durable and on their way into the engine, empty where
    there are none: ``rows`` and ``bytes`` that wait, ``flushes`` and ``failures`` since the start.
    ``damaged``: see ``Store.damaged``.
    """

    rows: dict[str, int]
    bytes: dict[str, int]
    window: dict[str, int] = field(default_factory=dict)
    journal: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    merges: dict[str, int] = field(default_factory=dict)
    damaged: Sequence[DamagedPart] = ()


class Memory(Protocol):
    """What a store holds in memory. Nothing here waits; None is whatever memory cannot tell.

    Every method may be called from any thread.
    """

    def series(self, selector: Selector) -> list[Series] | None:
        """See ``Store.find``."""
        ...

    def buckets(
        self,
        keys: SeriesKeys,
        span: TimeRange,
        step_ms: int,
        counters: Bools,
        references: References,
        most: int | None = None,
    ) -> BucketColumns | None:
        """The samples of a span in buckets of ``step_ms``; None too where there are more than ``most`` samples.

        ``counters`` bool[k] says which series have increases. These are counted from ``references``, the last samples
        before; where an answer is given they become the last samples of the span.
        """
        ...

    def lines(
        self, keys: SeriesKeys, line: Int64s, how: Uint8s, span: TimeRange, step_ms: int, most: int
    ) -> LineColumns | None:
        """The means of gauges in buckets of ``step_ms``, joined by line; None too for more than ``most`` samples.

        ``line`` int64[k] is the line of each series; ``how`` uint8[lines] says how its series are joined, by
        ``jobmeter.kernel.window``.
        """
        ...

    def previous(self, keys: SeriesKeys, before_ms: int) -> SampleColumns | None:
        """See ``Store.previous``."""
        ...

    def written(self, keys: SeriesKeys) -> int | None:
        """A number that grows with every write to one of these series, of any time."""
        ...

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange] | None:
        """See ``Store.rolled``."""
        ...


class NoMemory:
    """See ``Memory``: of an engine that holds nothing in memory."""

    def series(self, selector: Selector) -> None:
        """See ``Memory.series``."""

    def buckets(
        self,
        keys: SeriesKeys,
        span: TimeRange,
        step_ms: int,
        counters: Bools,
        references: References,
        most: int | None = None,
    ) -> None:
        """See ``Memory.buckets``."""

    def lines(self, keys: SeriesKeys, line: Int64s, how: Uint8s, span: TimeRange, step_ms: int, most: int) -> None:
        """See ``Memory.lines``."""

    def previous(self, keys: SeriesKeys, before_ms: int) -> None:
        """See ``Memory.previous``."""

    def written(self, keys: SeriesKeys) -> None:
        """See ``Memory.written``."""

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> None:
        """See ``Memory.rolled``."""


class Store(Protocol):
    """A telemetry engine. Every method may be called from any thread; reads do not wait for each other or for writes.

    A sample is known by (job key, series id, time); written again, the last write wins, whatever the grouping. Failure
    of the engine (disk full, read-only, connection lost) is UnavailableError, and then nothing of the call may be taken
    as kept.
    """

    @property
    def memory(self) -> Memory:
        """What of it is in memory."""
        ...

    def append(self, batch: SampleBatch, retention: Retention = ...) -> None:
        """Keep samples and the series they belong to. On return they are durable: they survive kill -9 and power loss.

        All rows or, after an error, possibly some: the caller repeats the call and each sample still counts once. Hours
        that are rolled up already and that the batch touches are marked before the samples become visible, so that no
        reader trusts a roll-up that lacks them.
        """
        ...

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = ...) -> None:
        """The same as ``append`` for each of them, in their order, and all of them durable at once."""
        ...

    def unwritten(self, keys: SeriesKeys) -> Bools:
        """bool[k]: the series that certainly have no samples, as far as that is known without looking for any."""
        ...

    def find(self, selector: Selector) -> list[Series]:
        """The series that match, in no order. Raises LimitExceededError past ``selector.limit``."""
        ...

    def names(self, selector: Selector, part: NamePart, prefix: str = "") -> list[str]:
        """What occurs as that part of the series that match: each once, sorted, those that begin with ``prefix``.

        The first ``selector.limit`` of them. A part that is empty, as it does not apply, is no name.
        """
        ...

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Iterator[SampleColumns]:
        """Raw samples with ``span.start_ms <= time < span.end_ms``, in blocks.

        Blocks are sorted by (index, time) and follow each other in that order: one series may go on in the next block.
        Duplicates are already gone. Memory stays bounded by the block size. Closing the iterator early stops the
        engine's work.
        """
        ...

    def read_buckets(self, keys: SeriesKeys, span: TimeRange, tier: Tier, budget: ReadBudget) -> BucketColumns:
        """Roll-up rows whose bucket start lies in ``span``. Only what ``rolled`` vouches for may be trusted."""
        ...

    def previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """For each series the last sample before that time, at most one row each; series without one are left out."""
        ...

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """The hour-aligned parts of ``span``, sorted, where roll-ups of all these jobs hold every sample there is."""
        ...

    def revision(self, jobs: Sequence[int]) -> Hashable | None:
        """Something that differs once the series or the roll-ups of these jobs, or what ``rolled`` says, may differ.

        None where the store cannot tell, because others write to the same engine. What was read after the revision
        was taken holds until it changes.
        """
        ...

    def roll_up(self, until_ms: int) -> int:
        """Compute what is missing: hours that end at or before ``until_ms``, and marked hours.

        Gives the number of hours done. One roll-up runs at a time: where several servers share an engine, one of them
        calls this.
        """
        ...

    def last_times(self, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """For each job key that has samples: the times of its first and its last one, in milliseconds."""
        ...

    def append_logs(self, lines: Sequence[LogLine], retention: Retention = ...) -> None:
        """Keep log lines, as long as raw samples are kept. On return they are durable.

        A line that is there already counts once; which node and which level it has is what was written last. After an
        error possibly some are kept: the caller repeats the call.
        """
        ...

    def read_logs(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """One page of the lines of a job; only the budget's seconds count.

        Memory stays bounded by the page, whatever the offset. Raises LimitExceededError (field ``limit``) when its
        lines have more than ``PAGE_BYTES`` of text.
        """
        ...

    def delete_job(self, job: int) -> None:
        """Forget every sample, roll-up, series and log line of a job key."""
        ...

    def damaged(self) -> Sequence[DamagedPart]:
        """The parts that could not be read when the engine was opened, or since: their rows are missing from answers.

        From memory, so that every answer may ask; up to ten seconds late once there are some.
        """
        ...

    def statistics(self) -> StoreStatistics:
        """How much there is."""
        ...

    def backup(self, directory: Path) -> None:
        """Write a copy of everything into an empty directory, while others read and write. Restored by ``restore``."""
        ...

    def restore(self, directory: Path) -> None:
        """Replace what there is (which must be nothing) with a backup. Raises ConflictError when there is something."""
        ...

    def close(self) -> None:
        """Finish what is under way and let go of the engine. A no-op the second time."""
        ...
