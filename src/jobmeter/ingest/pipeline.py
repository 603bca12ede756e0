"""The ingest pipeline: check a request, store it durably, report it to the registry, acknowledge it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from jobmeter.access.decide import write_project
from jobmeter.access.principal import Principal
from jobmeter.errors import JobmeterError, LimitExceededError
from jobmeter.ingest.commit import LogCommitter, SampleCommitter, SpanCommitter
from jobmeter.ingest.join import drop_unused, join, select
from jobmeter.ingest.lines import prepare, split_by_project
from jobmeter.ingest.observe import Observer
from jobmeter.ingest.receipt import PendingReceipt, Receipt
from jobmeter.ingest.sender_cache import SenderCache
from jobmeter.ingest.series_cache import MAX_UNKNOWN, SeriesBounds, SeriesCache, check_shape, check_times, check_values
from jobmeter.model.batch import SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.log_batch import LogBatch
from jobmeter.model.memory import Take, reserve_unlimited
from jobmeter.model.record import Records
from jobmeter.model.retention import Retention
from jobmeter.model.series_table import list_series
from jobmeter.model.span import Span
from jobmeter.model.time import DAY, NS_PER_MS, SECOND, Clock
from jobmeter.registry.base import Registry
from jobmeter.settings import Limits
from jobmeter.store.base import Store
from jobmeter.wire.native.decode import FrameColumns, decode, read_columns, resolve_columns

_Part = tuple[SampleBatch, Retention]
_Checked = tuple[list[_Part], Receipt]
Forward = Callable[[Sequence[LogLine], Retention], None]
_LogPart = tuple[LogBatch, Retention]


class LateGroupSink(Protocol):
    """Ships the lines of jobs and nodes whose resource group becomes known; see ``jobmeter.ship.late``."""

    def names_shipped_group(self, project: str, records: Records) -> bool:
        """Return True if any of the records names a shipped group."""
        ...

    def ship(self, project: str, records: Records, retention: Retention) -> None:
        """Ship the earlier lines of these jobs and nodes, while no line is written."""
        ...

    def note_recorded(self) -> None:
        """Update the groups after the records are written, and before any line is."""
        ...


class IngestPipeline:
    """Stores samples and log lines in the store, and records in the registry.

    Every method may be called from any thread. It returns when its content is durable, or returns a receipt that is
    true then. Samples that are too far ahead, too old for their project, or of an unknown metric are left out and
    counted.

    Nothing of an invalid or forbidden request is stored. A request that fails later may be stored in part: if the store
    or the registry fails or has no room (UnavailableError, ThrottledError), or if a record conflicts with stored ones
    (see ``Registry.record``). The same bytes may always be sent again.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        limits: Limits,
        senders: SenderCache | None = None,
        forward: Forward | None = None,
        late: LateGroupSink | None = None,
    ) -> None:
        """``forward`` stores the lines for log shipping too (see ``LogCommitter``); ``late`` ships earlier lines."""
        self.senders = SenderCache() if senders is None else senders
        self._registry = registry
        self._clock = clock
        self._limits = limits
        self._late = late
        self._renewing: set[str] = set()
        """Projects whose retention is being read."""
        self._lists = self.senders.series_lists
        self._series = SeriesCache(self.senders.series_table, clock, limits.project_series)
        self._observer = Observer(registry, clock, self.senders.series_table)
        self.committer = SampleCommitter(store, self._observer.observe_all, self._observer.flush)
        self._log_committer = LogCommitter(store, self._observer.observe_lines, forward)
        self._span_committer = SpanCommitter(store, self._observer.observe_lines)

    @property
    def queue_bytes(self) -> int:
        """Bytes of the requests that wait to be written, about."""
        return sum(one.waiting_bytes for one in (self.committer, self._log_committer, self._span_committer))

    def submit(self, body: bytes, principal: Principal, take: Take = reserve_unlimited) -> PendingReceipt:
        """Take a body of the native wire format. Its records are durable on return, the rest with the receipt.

        ``take`` is called with the memory that reading the body needs, and may raise. Raises InvalidRequestError
        (LimitExceededError for content that is too large), ForbiddenError, ThrottledError or UnavailableError; then the
        same bytes may be sent again.
        """
        decoded = decode(body, write_project(principal, None), self._limits, take, self._lists)
        grouped = [self._by_project(records, principal) for records in decoded.records]
        parts, receipt = self._check_or_raise(join(decoded.batches), principal)
        logs, rejected_lines = self._check_lines(decoded.lines, principal)
        self._admit(parts)
        for lines, _ in logs:
            self._log_committer.check_room(lines)
        receipt = replace(
            receipt,
            records=sum(self._record(groups) for groups in grouped),
            lines=sum(len(lines) for lines, _ in logs),
            rejected_lines=rejected_lines,
            unknown=tuple(dict.fromkeys((*receipt.unknown, *decoded.unknown)))[:MAX_UNKNOWN],
        )
        accepted = [self.committer.append(*part) for part in parts]
        return PendingReceipt(receipt, accepted + [self._log_committer.append(*part) for part in logs])

    def submit_from_memory(self, body: bytes, principal: Principal) -> Awaitable[Receipt] | None:
        """Take a body if memory holds everything needed; else return None and store nothing. See ``submit``.

        None for series that are not cached, records, log lines, several projects, or a retention that is not cached.
        Call it, and await its result, on the thread of an event loop. Raises as ``submit``.
        """
        frames = read_columns(body, self._limits, self._lists.digester)
        begun = None if frames is None else self.submit_columns(frames, principal)
        return None if begun is None else _await_durable(*begun)

    def submit_columns(
        self, frames: Sequence[FrameColumns], principal: Principal
    ) -> tuple[asyncio.Future[None], Receipt] | None:
        """Take columns of frames from memory: as ``submit_from_memory``, for a body that another process has read.

        Returns a future that is done when the receipt is true, and the receipt.
        """
        batches = resolve_columns(frames, write_project(principal, None), self._lists)
        return None if batches is None else self._begin(batches, principal)

    def _begin(
        self, batches: Sequence[SampleBatch], principal: Principal
    ) -> tuple[asyncio.Future[None], Receipt] | None:
        """Queue batches of one project on the thread of an event loop; None unless its retention is cached."""
        checked = self._check(join(batches), principal, self._get_cached_retention)
        if checked is None or len(checked[0]) != 1:
            return None
        ((part, retention),), receipt = checked
        self._observer.admit(part)
        return self.committer.append_from_loop(part, retention), receipt

    def submit_samples(self, batch: SampleBatch, principal: Principal, sent: SampleBatch | None = None) -> Receipt:
        """Take samples whose series name their projects. Raises as ``submit``. The receipt does not count ``sent``."""
        check_shape(batch)
        parts, receipt = self._check_or_raise(join([batch]), principal)
        if sent is not None:
            parts += self._check_or_raise(sent, principal)[0]
        self._admit(parts)
        return PendingReceipt(receipt, [self.committer.append(*part) for part in parts]).wait()

    def submit_logs(self, lines: Sequence[LogLine], principal: Principal) -> Receipt:
        """Take log lines that name their projects. Raises as ``submit``."""
        parts, rejected = self._check_lines(lines, principal)
        receipt = Receipt(lines=sum(len(own) for own, _ in parts), rejected_lines=rejected)
        return PendingReceipt(receipt, [self._log_committer.append(*part) for part in parts]).wait()

    def submit_spans(self, spans: Sequence[Span], principal: Principal) -> Receipt:
        """Take spans of one project, which they name. Raises as ``submit``."""
        if not spans:
            return Receipt()
        retention = self._registry.get_retention(write_project(principal, spans[0].project))
        earliest, latest = (moment * NS_PER_MS for moment in self._bounds_ms(retention))
        accepted = [span for span in spans if earliest <= span.start_ns <= latest]
        counts = {
            "future": sum(span.start_ns > latest for span in spans),
            "expired": sum(span.start_ns < earliest for span in spans),
        }
        receipt = Receipt(spans=len(accepted), rejected_spans=_drop_zeros(counts))
        return PendingReceipt(receipt, [self._span_committer.append(accepted, retention)] if accepted else []).wait()

    def submit_records(self, records: Records, principal: Principal) -> int:
        """Take records. Return their number. A job or an event without a project belongs to the key's project."""
        return self._record(self._by_project(records, principal))

    def forget(self, project: str, job: str) -> None:
        """Forget a deleted job, so that later samples create it in the registry again."""
        self._observer.forget(project, job)

    def close(self) -> None:
        """Reject new requests and finish the current ones."""
        self._log_committer.close()
        self._span_committer.close()
        self.committer.close()

    def _get_cached_retention(self, project: str) -> Retention | None:
        """Return the cached retention; None without one. A thread reads it again before it expires: no body waits."""
        if project not in self._renewing and self._registry.memory.is_retention_expiring(project):
            self._renewing.add(project)
            _ = asyncio.get_running_loop().run_in_executor(None, self._renew_retention, project)
        return self._registry.memory.get_retention(project)

    def _renew_retention(self, project: str) -> None:
        try:
            self._registry.get_retention(project)
        except JobmeterError:
            pass  # the next body without a cached retention reports it
        finally:
            self._renewing.discard(project)

    def _admit(self, parts: Sequence[_Part]) -> None:
        """Raise ThrottledError if the queue is full, UnavailableError if the registry cannot take new entities."""
        for part, _ in parts:
            self.committer.check_room(part)
            self._observer.admit(part)

    def _check_or_raise(self, batch: SampleBatch, principal: Principal) -> _Checked:
        checked = self._check(batch, principal, self._registry.get_retention)
        if checked is None:
            raise TypeError("a project has no retention")
        return checked

    def _check(
        self, batch: SampleBatch, principal: Principal, retention_of: Callable[[str], Retention | None]
    ) -> _Checked | None:
        """Return the valid part of a batch, and its receipt; None if ``retention_of`` returns None."""
        if len(batch.series) > self._limits.request_series:
            raise LimitExceededError(
                f"a request may name at most {self._limits.request_series} series, not {len(batch.series)}", "series"
            )
        bounds = self._series.look_up(list_series(batch))
        own, default = _by_project(batch, bounds), write_project(principal, None)
        for project, _ in own:
            if project != default:
                write_project(principal, project)
        check_times(batch)
        check_values(batch, bounds)
        counts: dict[str, int] = {}
        parts: list[_Part] = []
        for project, part in own:
            retention = retention_of(project)
            if retention is None:
                return None
            timely = self._select_timely(part, retention, counts)
            if len(timely):
                parts.append((timely, retention))
        if bounds.unknown:
            counts["unknown_metric"] = len(batch) - sum(len(part) for _, part in own)
        accepted = sum(len(part) for part, _ in parts)
        return parts, Receipt(accepted=accepted, rejected=_drop_zeros(counts), unknown=bounds.unknown)

    def _select_timely(self, part: SampleBatch, retention: Retention, counts: dict[str, int]) -> SampleBatch:
        """Return the samples that are neither too far ahead nor too old. Count the others."""
        earliest, latest = self._bounds_ms(retention)
        if not len(part) or (part.span[1] <= latest and part.span[0] >= earliest):
            return part
        future, expired = part.time > latest, part.time < earliest
        for reason, late in (("future", future), ("expired", expired)):
            counts[reason] = counts.get(reason, 0) + int(np.count_nonzero(late))
        return _rows(part, ~(future | expired))

    def _check_lines(self, lines: Iterable[LogLine], principal: Principal) -> tuple[list[_LogPart], dict[str, int]]:
        """Return the lines that are neither too far ahead nor too old, by project, and the number of the others."""
        counts = {"future": 0, "expired": 0}
        parts: list[_LogPart] = []
        for project, own in split_by_project(prepare(lines, self._limits.request_lines)):
            retention = self._registry.get_retention(write_project(principal, project))
            earliest, latest = (moment * NS_PER_MS for moment in self._bounds_ms(retention))
            future, expired = own.time_ns > latest, own.time_ns < earliest
            counts["future"] += int(np.count_nonzero(future))
            counts["expired"] += int(np.count_nonzero(expired))
            accepted = own.select(~(future | expired))
            if len(accepted):
                parts.append((accepted, retention))
        return parts, _drop_zeros(counts)

    def _bounds_ms(self, retention: Retention) -> tuple[int, int]:
        """Return the earliest and the latest time that is stored."""
        now_ms = self._clock.now_ms()
        return now_ms - retention.raw_days * DAY, now_ms + self._limits.future_seconds * SECOND

    def _by_project(self, records: Records, principal: Principal) -> dict[str, Records]:
        most = self._limits.request_records
        if records.count > most:
            raise LimitExceededError(
                f"a request may have at most {most} records (JOBMETER_LIMIT_REQUEST_RECORDS), not {records.count}",
                "records",
            )
        groups: dict[str, Records] = {}
        if records.nodes or records.schedulers:
            own = Records(nodes=records.nodes, schedulers=records.schedulers)
            groups[write_project(principal, None)] = own
        for job in records.jobs:
            groups.setdefault(write_project(principal, job.project), Records()).jobs.append(job)
        for event in records.events:
            groups.setdefault(write_project(principal, event.project or None), Records()).events.append(event)
        for renewal in records.leases:
            groups.setdefault(write_project(principal, renewal.project or None), Records()).leases.append(renewal)
        return groups

    def _record(self, groups: dict[str, Records]) -> int:
        now_ms = self._clock.now_ms()
        return sum(self._record_of(project, records, now_ms) for project, records in groups.items())

    def _record_of(self, project: str, records: Records, now_ms: int) -> int:
        """Write records. Before a record first names the shipped group of a job or node, ship its earlier lines."""
        if self._late is None or not self._late.names_shipped_group(project, records):
            return self._registry.record(project, records, now_ms)
        retention = self._registry.get_retention(project)
        with self._log_committer.paused:
            self._late.ship(project, records, retention)
            count = self._registry.record(project, records, now_ms)
            self._late.note_recorded()
            return count


async def _await_durable(durable: asyncio.Future[None], receipt: Receipt) -> Receipt:
    await durable
    return receipt


def _drop_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in counts.items() if count}


def _by_project(batch: SampleBatch, bounds: SeriesBounds) -> list[tuple[str, SampleBatch]]:
    return [(name, batch if places is None else select(batch, places)) for name, places in bounds.projects]


def _rows(batch: SampleBatch, keep: NDArray[np.bool_]) -> SampleBatch:
    """Return the selected rows, and only the series that still have rows."""
    columns = batch.index[keep], batch.time[keep], batch.value[keep]
    return drop_unused(SampleBatch(batch.series, *columns, batch.existing_keys))
