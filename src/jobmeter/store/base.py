"""The interface of a telemetry engine. ``jobmeter.testing.store.StoreTests`` is the same contract as tests."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from jobmeter.kernel.window import Grid, LineColumns
from jobmeter.model.batch import (
    Bools,
    BucketColumns,
    References,
    SampleBatch,
    SampleColumns,
    SeriesKeys,
)
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_filter import LogFilter
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series, job_key, node_key
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.span import Span, TracePage
from jobmeter.model.time import HOUR, MINUTE, TimeRange
from jobmeter.model.trace_filter import SpanFilter, TraceFilter
from jobmeter.store.damage import DamagedPart


class Tier(IntEnum):
    """A roll-up tier; its value is the length of its buckets in milliseconds."""

    MINUTE = MINUTE
    HOUR = HOUR


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Which series. Every part that is given must match.

    ``projects`` None means every project: the caller has checked access (``jobmeter.access``).
    ``jobs`` are job keys (``NO_JOB`` for node series); ``nodes`` are (cluster, node) pairs. ``since`` leaves out
    series that were last written before that time, in epoch milliseconds; an engine may give more.
    """

    projects: frozenset[str] | None = None
    jobs: tuple[int, ...] | None = None
    nodes: tuple[tuple[str, str], ...] | None = None
    metrics: frozenset[str] | None = None
    since: int | None = None
    limit: int = 1_000_000

    def by_names(self) -> Callable[[Series], bool]:
        """Whether a series has a given metric, project and node; its job and its times are not looked at."""
        metrics, projects = self.metrics, self.projects
        nodes = None if self.nodes is None else frozenset(self.nodes)

        def matches(series: Series) -> bool:
            return (
                (metrics is None or series.metric in metrics)
                and (projects is None or series.project in projects)
                and (nodes is None or (series.cluster, series.node) in nodes)
            )

        return matches


def names_of(series: Series, part: NamePart) -> list[str]:
    """What a series has in a field that holds names; of labels all of them."""
    if part is NamePart.LABEL:
        return [name for name, _ in series.labels]
    if part is NamePart.LABEL_VALUE:
        return [value for _, value in series.labels]
    name: str = getattr(series, part.value)
    return [name]


class SeriesPage(NamedTuple):
    """Some series. ``following`` asks for the next page; None where this is the last one. A page may be empty."""

    keys: SeriesKeys
    following: "SeriesPlace | None"


SeriesPlace = tuple[int, int, int]
"""Where a page of series begins: a day since the epoch, a job key, a series id."""
NEWEST: SeriesPlace = (2**32 - 1, 0, 0)
"""Where the first page begins: no series was written as late as that day."""
PAGE_BYTES = 64 * 2**20
"""Most bytes of text in one page of log lines."""


class LogSelector(LogFilter, frozen=True, kw_only=True):
    """Which lines of one job, and which part of them in which order.

    With a ``node`` and no job: which lines of the system log of that node, of these ``projects``.
    """

    project: str = ""
    job: str = ""
    node: str = ""
    projects: frozenset[str] = frozenset()

    @property
    def keys(self) -> dict[int, str]:
        """The keys under which the lines lie, each with its project."""
        if self.job:
            return {job_key(self.project, self.job): self.project}
        return {node_key(project, self.node): project for project in sorted(self.projects)}


class ReadBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one question.

    Past ``rows`` a read raises LimitExceededError, past ``seconds`` QueryTimeoutError.
    """

    rows: int = 200_000_000
    seconds: float = 30.0


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes for operators: rows and bytes on disk by table.

    Tables are ``samples``, ``minutes``, ``hours``, ``series``, ``logs``, ``spans``,
    ``outbox``.

    ``window`` describes the samples in memory, empty where there are none: ``series``, ``bytes``, and the ``seconds``
    that they reach back. ``parts`` and ``merges``, by table where the engine has such: parts on disk that questions
    read, merges under way. ``journal`` describes samples that are durable and not yet in the engine, empty where there
    is none: ``rows`` and new ``series`` that wait, their ``bytes`` in memory and on ``disk``, ``flushes`` and
    ``failures`` since the start. ``rows`` and ``bytes`` of the tables include them.
    ``damaged``: see ``Store.damaged``.
    """

    rows: dict[str, int]
    bytes: dict[str, int]
    window: dict[str, int] = msgspec.field(default_factory=dict)
    journal: dict[str, int] = msgspec.field(default_factory=dict)
    parts: dict[str, int] = msgspec.field(default_factory=dict)
    merges: dict[str, int] = msgspec.field(default_factory=dict)
    damaged: Sequence[DamagedPart] = ()


class Memory(Protocol):
    """A store's data in memory. No method waits; each gives None when memory lacks what it needs.

    Every method may be called from any thread.
    """

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

    def lines(self, keys: SeriesKeys, grid: Grid, span: TimeRange, step_ms: int, most: int) -> LineColumns | None:
        """The means of gauges in buckets of ``step_ms``, joined by line; None too for more than ``most`` samples.

        ``grid`` says which line each series belongs to, and how those of a line are joined. What is not finite is left
        out.
        """
        ...

    def previous(self, keys: SeriesKeys, before_ms: int) -> SampleColumns | None:
        """See ``Store.previous``; None too where one of the series has no sample before."""
        ...

    def written(self, keys: SeriesKeys) -> int | None:
        """A number that grows with every write to one of these series, of any time."""
        ...


class Outbox(Protocol):
    """Lines that wait for the sinks of log shippers, by a shipper's 64-bit number and the numbers of its lines."""

    def append(self, shipper: int, rows: Sequence[OutboxRow]) -> None:
        """Store rows. On return they are durable and ``read`` finds them. After an error some may be stored."""
        ...

    def read(self, shipper: int, after: int, lines: int, size: int) -> list[OutboxRow]:
        """The rows after a number, by number, each once: so many, and so many bytes or one row."""
        ...

    def trim(self, shipper: int, until: int | None) -> None:
        """Delete the rows up to a number, None: all of them."""
        ...


class Store(Protocol):
    """A telemetry engine. Every method may be called from any thread; reads do not wait for each other or for writes.

    A sample's identity is (job key, series id, time); written again, the last write wins, in any grouping. Failure
    of the engine (disk full, read-only, connection lost) is UnavailableError, and then nothing of the call may be taken
    as stored.
    """

    @property
    def memory(self) -> Memory | None:
        """The part of it in memory; None for an engine without one."""
        ...

    @property
    def outbox(self) -> Outbox:
        """Log lines that wait for the sinks of shippers. They expire by themselves, and ``delete_job`` leaves them."""
        ...

    def append(self, batch: SampleBatch, retention: Retention = ...) -> None:
        """Store samples and the series they belong to. On return they are durable: they survive kill -9 and power loss.

        All rows or, after an error, possibly some: the caller repeats the call and each sample still counts once. Hours
        that are rolled up already and that the batch touches are marked before the samples become visible, so that no
        reader trusts a roll-up that lacks them.
        """
        ...

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = ...) -> None:
        """The same as ``append`` for each of them, in their order, and all of them durable on return."""
        ...

    def unwritten(self, keys: SeriesKeys, since_ms: int = 0) -> Bools:
        """bool[k]: the series that certainly have no samples at or after a time, without a search for any."""
        ...

    def find(self, selector: Selector) -> list[Series]:
        """The series that match, in no order. Raises LimitExceededError past ``selector.limit``."""
        ...

    def live(self, since_ms: int, most: int, place: SeriesPlace = NEWEST) -> SeriesPage:
        """Return the keys of at most ``most`` series that may have samples since a time, those of the last day first.

        ``place``: where the page begins. A series may come on several pages, and one that was written since the first
        page on none.
        """
        ...

    def names(self, selector: Selector, part: NamePart, prefix: str = "") -> list[str]:
        """What occurs as that part of the series that match: each once, sorted, those that begin with ``prefix``.

        The first ``selector.limit`` of them. A part that is empty, as it does not apply, is no name.
        """
        ...

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Iterator[SampleColumns]:
        """Raw samples with ``span.start_ms <= time < span.end_ms``, in blocks.

        Blocks are sorted by (index, time) and follow each other in that order: a series may continue in the next block.
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
        """The hour-aligned parts of ``span``, sorted, where roll-ups of all these jobs contain every stored sample."""
        ...

    def revision(self, jobs: Sequence[int]) -> Hashable | None:
        """A value that changes once the series or the roll-ups of these jobs, or what ``rolled`` says, may differ.

        None when others write to the same engine. Data that was read after the revision was taken stay valid until it
        changes.
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
        """Store log lines, for as long as raw samples. On return they are durable.

        A line that is there already counts once; which node and which level it has is what was written last. After an
        error possibly some are stored: the caller repeats the call.
        """
        ...

    def read_logs(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """One page of the lines of a job or a node.

        Only the budget's seconds count, and its rows where words are looked for: then LimitExceededError (``range``).
        Memory stays bounded by the page, whatever the offset. Raises LimitExceededError (field ``limit``) when its
        lines have more than ``PAGE_BYTES`` of text.
        """
        ...

    def append_spans(self, spans: Sequence[Span], retention: Retention = ...) -> None:
        """Store spans, for as long as raw samples. On return they are durable.

        A span that is there already counts once. After an error possibly some are stored: the caller repeats the call.
        """
        ...

    def read_traces(self, selector: TraceFilter, budget: ReadBudget) -> TracePage:
        """One page of traces. Raises LimitExceededError past the budget's rows, QueryTimeoutError past its seconds."""
        ...

    def read_spans(self, selector: SpanFilter, budget: ReadBudget) -> list[Span]:
        """One page of the spans of some traces, each once.

        Raises LimitExceededError (field ``limit``) when they have more than about ``PAGE_BYTES``, or past the budget.
        """
        ...

    def delete_job(self, job: int) -> None:
        """Delete every sample, roll-up, series, log line and span of a job key."""
        ...

    def damaged(self) -> Sequence[DamagedPart]:
        """The parts that could not be read when the engine was opened, or since: their rows are missing from answers.

        From memory, cheap enough for every answer; up to ten seconds old once there are some.
        """
        ...

    def statistics(self) -> StoreStatistics:
        """The sizes of the stored data."""
        ...

    def backup(self, directory: Path) -> None:
        """Write a copy of everything into an empty directory, while others read and write. Restored by ``restore``."""
        ...

    def restore(self, directory: Path) -> None:
        """Replace what there is (which must be nothing) with a backup. Raises ConflictError when there is something."""
        ...

    def close(self) -> None:
        """Finish running work and close the engine. A no-op the second time."""
        ...
