"""The interface of a telemetry engine. `tests/store_contract/store.py` states the same contract as tests."""

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from jobmeter.kernel.window import LineColumns, WindowGrid
from jobmeter.model.batch import Bools, BucketColumns, References, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_filter import LogFilter
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.record_group import RecordGroup
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series, compute_job_key, compute_node_key
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.span import Span, TracePage
from jobmeter.model.special import is_special
from jobmeter.model.time import HOUR, MINUTE, TimeRange
from jobmeter.model.trace_filter import SpanFilter, TraceFilter
from jobmeter.store.damage import DamagedPart
from jobmeter.store.mirror import MirroredMemory


class Tier(IntEnum):
    """A roll-up tier; its value is the length of its buckets in milliseconds."""

    MINUTE = MINUTE
    HOUR = HOUR


class SeriesSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Selects series. Every given part must match.

    ``projects`` None means every project: the caller has checked access (``jobmeter.access``). ``jobs`` are job keys
    (``NO_JOB`` for node series); ``nodes`` are (cluster, node) pairs. ``since`` leaves out series whose last write was
    before that time, in epoch ms; an engine may return more. ``special``: without ``metrics``, series of special values
    (see ``model.special``) are selected too.
    """

    projects: frozenset[str] | None = None
    jobs: tuple[int, ...] | None = None
    nodes: tuple[tuple[str, str], ...] | None = None
    metrics: frozenset[str] | None = None
    since: int | None = None
    special: bool = False
    limit: int = 1_000_000

    def make_name_filter(self) -> Callable[[Series], bool]:
        """Return a function that is True for series with a selected metric, project and node.

        It ignores job and times.
        """
        metrics, projects, plain = self.metrics, self.projects, not self.special
        nodes = None if self.nodes is None else frozenset(self.nodes)

        def matches(series: Series) -> bool:
            return (
                (not (plain and is_special(series.metric)) if metrics is None else series.metric in metrics)
                and (projects is None or series.project in projects)
                and (nodes is None or (series.cluster, series.node) in nodes)
            )

        return matches


def list_names(series: Series, part: NamePart) -> list[str]:
    """Return the names that a series has in a field; for labels all of them."""
    if part is NamePart.LABEL:
        return [name for name, _ in series.labels]
    if part is NamePart.LABEL_VALUE:
        return [value for _, value in series.labels]
    name: str = getattr(series, part.value)
    return [name]


class SeriesPage(NamedTuple):
    """Page of the keys of series, which may be empty. ``following`` is the start of the next page; None for none."""

    keys: SeriesKeys
    following: "SeriesPlace | None"


SeriesPlace = tuple[int, int, int]
"""Start of a page of series: a day since the epoch, a job key, a series id."""
NEWEST: SeriesPlace = (2**32 - 1, 0, 0)
"""Start of the first page: later than the last write of any series."""
PAGE_BYTES = 64 * 2**20
"""Most bytes of text in one page of log lines."""


class LogSelector(LogFilter, frozen=True, kw_only=True):
    """Filter of the log lines of one job, with the order and the page.

    Without a job: filter of the system log of ``node``, whose lines are in one of ``projects``.
    """

    project: str = ""
    job: str = ""
    node: str = ""
    projects: frozenset[str] = frozenset()

    @property
    def keys(self) -> dict[int, str]:
        """The keys under which the lines are stored, each with its project."""
        if self.job:
            return {compute_job_key(self.project, self.job): self.project}
        return {compute_node_key(project, self.node): project for project in sorted(self.projects)}


class ReadBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one query.

    Past ``rows`` a read raises LimitExceededError, past ``seconds`` QueryTimeoutError.
    """

    rows: int = 200_000_000
    seconds: float = 30.0


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes for operators: rows and bytes on disk by table.

    Tables are ``samples``, ``minutes``, ``hours``, ``series``, ``logs``, ``spans``, ``outbox``.

    ``window`` describes the samples in memory: ``series``, ``bytes``, and the ``seconds`` that they reach back. It is
    empty without a window. ``parts`` and ``merges`` count active parts on disk and running merges by table, if the
    engine has any. ``journal`` describes durable samples that are not yet in the engine: waiting ``rows`` and new
    ``series``, their ``bytes`` in memory and on ``disk``, ``flushes`` and ``failures`` since the start. It is empty
    without a journal. ``rows`` and ``bytes`` of the tables include it. ``damaged``: see ``Store.list_damaged``.

    ``replicas`` has for each replica 1 if it answers and has all data, else 0. It is empty without replicas. ``shards``
    has for each shard, by its number from 1, 1 if it can be read, else 0: the other sizes lack its rows. It is empty
    without shards. ``role`` describes this server among those that use the same engine; empty if none can.
    """

    rows: dict[str, int]
    bytes: dict[str, int]
    window: dict[str, int] = msgspec.field(default_factory=dict)
    journal: dict[str, int] = msgspec.field(default_factory=dict)
    parts: dict[str, int] = msgspec.field(default_factory=dict)
    merges: dict[str, int] = msgspec.field(default_factory=dict)
    damaged: Sequence[DamagedPart] = ()
    replicas: dict[str, int] = msgspec.field(default_factory=dict)
    shards: dict[str, int] = msgspec.field(default_factory=dict)
    role: str = ""


class StoreMemory(Protocol):
    """A store's data in memory. No method waits: each returns None if memory lacks the data.

    Every method may be called from any thread.
    """

    def read(self, keys: SeriesKeys, span: TimeRange, *, most: int) -> SampleColumns | None:
        """Return the first ``most`` samples of a span, sorted by (index, time)."""
        ...

    def read_buckets(
        self,
        keys: SeriesKeys,
        span: TimeRange,
        step_ms: int,
        counters: Bools,
        references: References,
        most: int | None = None,
    ) -> BucketColumns | None:
        """Return the samples of a span in buckets of ``step_ms``; None also for more than ``most`` samples.

        ``counters`` bool[k] marks the series that have increases. Increases count from ``references``, the last samples
        before the span. If the result is not None, ``references`` become the last samples of the span.
        """
        ...

    def average_lines(
        self, keys: SeriesKeys, grid: WindowGrid, span: TimeRange, step_ms: int, most: int
    ) -> LineColumns | None:
        """Return the means of gauges in buckets of ``step_ms``, joined by line.

        None also for more than ``most`` samples. ``grid`` has the line of each series, and the function that joins the
        series of a line. Values that are not finite are left out.
        """
        ...

    def read_previous(self, keys: SeriesKeys, before_ms: int) -> SampleColumns | None:
        """Return the last samples before a time; None also if any series has none. See ``Store.read_previous``."""
        ...

    def write_revision(self, keys: SeriesKeys) -> int | None:
        """Return a number that grows with every write to one of these series, at any time."""
        ...


class OutboxStore(Protocol):
    """Lines that wait for the sinks of log shippers, by a shipper's 64-bit number and the numbers of its lines."""

    def append(self, shipper: int, rows: Sequence[OutboxRow]) -> None:
        """Store rows. On return they are durable and ``read`` finds them. After an error some may be stored."""
        ...

    def read(self, shipper: int, after: int, lines: int, size: int) -> list[OutboxRow]:
        """Return the rows after a number, in order, each once.

        At most ``lines`` rows and ``size`` bytes, but at least one row.
        """
        ...

    def trim(self, shipper: int, until: int | None) -> None:
        """Delete the rows up to a number; None: all of them."""
        ...


class LogStore(Protocol):
    """Log lines. Every method may be called from any thread."""

    def append(self, lines: Sequence[LogLine], retention: Retention = ...) -> None:
        """Store log lines, for as long as raw samples. On return they are durable.

        A line that is already stored counts once, with the node and the level of its last write. After an error some
        lines may be stored: the caller repeats the call.
        """
        ...

    def read(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """Return one page of the lines of a job or a node.

        The budget limits the seconds of every read. Its rows limit searches for words, which raise LimitExceededError
        (``range``).
        Memory stays bounded by the page, whatever the offset. Raises LimitExceededError (field ``limit``) if the page
        has more than ``PAGE_BYTES`` of text.
        """
        ...


class SpanStore(Protocol):
    """Spans of traces. Every method may be called from any thread."""

    def append(self, spans: Sequence[Span], retention: Retention = ...) -> None:
        """Store spans, for as long as raw samples. On return they are durable.

        A span that is already stored counts once. After an error some spans may be stored: the caller repeats the call.
        """
        ...

    def list_traces(self, selector: TraceFilter, budget: ReadBudget) -> TracePage:
        """Return one page of traces.

        Raises LimitExceededError past the budget's rows, QueryTimeoutError past its seconds.
        """
        ...

    def read(self, selector: SpanFilter, budget: ReadBudget) -> list[Span]:
        """Return one page of the spans of some traces, each once.

        Raises LimitExceededError (field ``limit``) for more than about ``PAGE_BYTES``, or past the budget.
        """
        ...


class SampleStore(Protocol):
    """Samples and their series. Every method may be called from any thread.

    Reads wait neither for each other nor for writes. A sample's identity is (job key, series id, time). Written again,
    the last write wins, in any grouping.
    """

    @property
    def memory(self) -> StoreMemory | None:
        """The samples in memory; None for an engine without a window."""
        ...

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = ...) -> None:
        """Store the samples of each batch, in order, and their series. On return they survive kill -9 and power loss.

        After an error some rows may be stored: the caller repeats the call, and each sample still counts once. If
        samples belong to hours that are already rolled up, these hours are marked before the samples become visible. So
        no reader trusts a roll-up that lacks them.
        """
        ...

    def check_writable(self) -> None:
        """Raise UnavailableError while every write is refused, as in the last seconds of a move."""
        ...

    def use_series(self, table: SeriesTable) -> None:
        """Use this table of series, which other parts of the process share."""
        ...

    def lacks_descriptor(self, keys: SeriesKeys, since_ms: int = 0) -> Bools:
        """Return bool[k]: True for series that certainly have no samples at or after a time. Searches no samples."""
        ...

    def find(self, selector: SeriesSelector) -> list[Series]:
        """Return the series that match, in no order. Raises LimitExceededError past ``selector.limit``."""
        ...

    def list_live_series(self, since_ms: int, most: int, place: SeriesPlace = NEWEST) -> SeriesPage:
        """Return the keys of at most ``most`` series that may have samples since a time, latest day first.

        ``place`` is the start of the page. A series may be on several pages. A series that is written after the first
        page was read may be on none.
        """
        ...

    def list_names(self, selector: SeriesSelector, part: NamePart, prefix: str = "") -> list[str]:
        """Return the distinct names of a field in the matching series, sorted, that begin with ``prefix``.

        At most ``selector.limit`` names. Empty fields are left out.
        """
        ...

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Generator[SampleColumns]:
        """Yield raw samples with ``span.start_ms <= time < span.end_ms``, in blocks.

        Blocks are sorted by (index, time) and follow each other in that order: a series may continue in the next block.
        Duplicates are already removed. Memory stays bounded by the block size. Closing the iterator early stops the
        engine's work.
        """
        ...

    def read_buckets(self, keys: SeriesKeys, span: TimeRange, tier: Tier, budget: ReadBudget) -> BucketColumns:
        """Return roll-up rows whose bucket start lies in ``span``. Only ``find_rolled_up_ranges`` are reliable."""
        ...

    def read_imported_buckets(self, keys: SeriesKeys, span: TimeRange, step_ms: int) -> BucketColumns | None:
        """Return all samples of a span in buckets of ``step_ms``, without the increases of counters.

        None unless this process imported all samples of the series, and they wait for their roll-up.
        """
        ...

    def read_previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """Return for each series its last sample before that time; series without such a sample are left out."""
        ...

    def find_rolled_up_ranges(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """Return the hour-aligned parts of ``span``, sorted, with complete roll-ups of all these jobs.

        Complete roll-ups include every stored sample.
        """
        ...

    def get_revision(self, jobs: Sequence[int] | None) -> Hashable | None:
        """Return a value that changes when the series, roll-ups or rolled-up ranges of these jobs may have changed.

        ``jobs`` is None for every job. Return None if others write to the same engine. Data that was read after the
        revision was taken stays valid until the revision changes.
        """
        ...

    def roll_up(self, until_ms: int) -> int:
        """Compute missing roll-ups: hours that end at or before ``until_ms``, and marked hours.

        Return the number of hours computed. One roll-up runs at a time. If several servers share an engine, only one of
        them calls this.
        """
        ...

    def read_last_times(self, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the times of the first and the last sample of each job key that has samples, in milliseconds."""
        ...


class EngineUse(RecordGroup, Protocol):
    """Use of the engine by other servers, which may begin and end while the engine is open."""

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call a function with True while no other server uses the engine, now and after each change.

        The call comes before new servers may read or write, and after the last other server has gone. The function must
        not append samples.
        """
        ...

    @property
    def is_following(self) -> bool:
        """True while samples go to a leading server, which sends them back to the memory."""
        ...

    def forward(self, batches: Sequence[SampleBatch], retention: Retention) -> Sequence[SampleBatch]:
        """Have leading servers store batches, which come back to the memory meanwhile.

        Return the batches that this server has to store itself.
        """
        ...

    def confirm(self) -> AbstractContextManager[None]:
        """Wait at the end of the block until every follower of this server has what was stored inside.

        Raises UnavailableError if one may lack it. Hold no lock that the memory of another server may wait for.
        """
        ...

    def mirror(self, memory: MirroredMemory) -> None:
        """Set the memory that answers while this server is alone, leads or follows."""
        ...

    def get_valid_until(self) -> float:
        """Return the time (``read_clock``) until which a trusted memory has every sample that any server acknowledged.

        The memory may count longer if ``renew`` is called. It counts no more once it is not trusted.
        """
        ...

    def check(self) -> None:
        """Raise UnavailableError while the other servers may have expelled this one."""
        ...


class StoreAdministration(Protocol):
    """The care of all stored data. Every method may be called from any thread."""

    @property
    def engine_use(self) -> EngineUse | None:
        """Use of the engine by other servers; None if this use never changes."""
        ...

    def delete_job(self, job: int) -> None:
        """Delete every sample, roll-up, series, log line and span of a job key."""
        ...

    def list_damaged(self) -> Sequence[DamagedPart]:
        """Return the unreadable parts that were found when the engine was opened, or since. Answers lack their rows.

        From memory, cheap enough for every answer. A list with parts is up to ten seconds old.
        """
        ...

    def read_statistics(self) -> StoreStatistics:
        """Return the sizes of the stored data."""
        ...

    def backup(self, directory: Path) -> None:
        """Write a copy of everything into an empty directory, during reads and writes. ``restore`` reads it."""
        ...

    def restore(self, directory: Path) -> None:
        """Restore a backup into an empty store. Raises ConflictError if the store is not empty."""
        ...

    def move(self, order: MoveOrder) -> Iterator[MoveLine]:
        """Move all data to another engine during reads and writes, or compare both engines. Yield steps and the report.

        For the last seconds writes raise UnavailableError, and after the report they always do. Closing the iterator
        earlier stops the move; writes are accepted again. The same order continues a move that was stopped or killed.
        Raises InvalidRequestError (``to``) for a wrong address, ConflictError for a target that has other data,
        ConfigurationError for a target with other tables.
        """
        ...

    def close(self) -> None:
        """Finish running work and close the engine. A no-op the second time."""
        ...


class Store(SampleStore, StoreAdministration, Protocol):
    """A telemetry engine: samples, and the stores of everything else.

    A failure of the engine (disk full, read-only, connection lost) is UnavailableError; the caller may then assume
    nothing of the call stored.
    """

    @property
    def logs(self) -> LogStore:
        """Log lines of jobs and nodes."""
        ...

    @property
    def spans(self) -> SpanStore:
        """Spans of traces."""
        ...

    @property
    def outbox(self) -> OutboxStore:
        """Log lines that wait for the sinks of shippers. They expire; ``delete_job`` leaves them."""
        ...
