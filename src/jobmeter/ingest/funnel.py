"""The one way in: check everything, keep it durably, tell the registry, acknowledge."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jobmeter.access.decide import write_project
from jobmeter.access.principal import Principal
from jobmeter.errors import LimitExceededError, NotAtOnceError
from jobmeter.ingest.check import check_shape, check_times, check_values
from jobmeter.ingest.commit import Committer, LogCommitter
from jobmeter.ingest.join import join, numbered, select, series_of, used
from jobmeter.ingest.keep import Retentions
from jobmeter.ingest.known import MAX_UNKNOWN, Facts, KnownSeries
from jobmeter.ingest.lines import by_project, prepared
from jobmeter.ingest.observe import Observer
from jobmeter.ingest.receipt import Coming, Receipt
from jobmeter.model.batch import SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.memory import Take, unlimited
from jobmeter.model.record import Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY, SECOND, Clock
from jobmeter.registry.base import Registry
from jobmeter.settings import Limits
from jobmeter.store.base import Store
from jobmeter.wire.native.decode import decode

_Part = tuple[SampleBatch, Retention]
_NS = 1_000_000
_LogPart = tuple[list[LogLine], Retention]


class Funnel:
    """Takes samples, log lines and records for the store and the registry.

    Every method may be called from any thread, and returns when what it took is durable or gives a receipt that comes
    then. A request is taken as a whole or, with an error, not at all; samples that are too far ahead, too old for their
    project, or of a metric that the catalogue does not have, are left out and counted.
    """

    def __init__(self, store: Store, registry: Registry, clock: Clock, limits: Limits) -> None:
        self._registry = registry
        self._clock = clock
        self._limits = limits
        self._retentions = Retentions(registry, clock)
        self._series = KnownSeries(clock, limits.project_series)
        self._observer = Observer(registry, clock)
        self._committer = Committer(store, self._observer.observe_all, self._observer.flush)
        self._log_committer = LogCommitter(store, self._observer.observe_lines)

    @property
    def queue_bytes(self) -> int:
        """About how much memory the requests take that wait to be written."""
        return self._committer.waiting_bytes + self._log_committer.waiting_bytes

    def submit(self, body: bytes, principal: Principal, take: Take = unlimited) -> Coming:
        """Take a body of the native wire format. Its records are durable on return, and all of it with the receipt.

        ``take`` is asked for the memory that reading it needs, and may raise. Raises InvalidRequestError
        (LimitExceededError for what is too large), ForbiddenError, ThrottledError or UnavailableError; then the same
        bytes may be sent again.
        """
        decoded = decode(body, write_project(principal, None), self._limits, take)
        grouped = [self._by_project(records, principal) for records in decoded.records]
        batch = join(decoded.batches)
        checked = self._check(batch, principal)
        parts = checked.parts
        logs, rejected_lines = self._check_lines(decoded.lines, principal)
        self._admit(parts)
        for lines, _ in logs:
            self._log_committer.admit(lines)
        receipt = Receipt(
            accepted=sum(len(part) for part, _ in parts),
            records=sum(self._record(groups) for groups in grouped),
            rejected=checked.rejected,
            lines=sum(len(lines) for lines, _ in logs),
            rejected_lines=rejected_lines,
            unknown=tuple(dict.fromkeys((*checked.unknown, *decoded.unknown)))[:MAX_UNKNOWN],
        )
        kept = [self._committer.submit(*part) for part in parts]
        return Coming(receipt, kept + [self._log_committer.submit(*part) for part in logs])

    def begin(self, body: bytes, principal: Principal) -> Awaitable[Receipt]:
        """Take a body as ``submit`` does, in a moment; the receipt comes when what it took is durable.

        To be called, and what it gives awaited, on an event loop's thread. Raises as ``submit``, and NotAtOnceError
        where anything needs more than a moment: series that were not seen lately, records, log lines, several projects.
        """
        batch = decode(body, write_project(principal, None), self._limits, known=True).batches
        checked = self._check(join(batch), principal, at_once=True)
        if len(checked.parts) != 1:
            raise NotAtOnceError
        ((part, retention),) = checked.parts
        self._observer.admit(part)
        receipt = Receipt(accepted=len(part), rejected=checked.rejected, unknown=checked.unknown)
        return _durable(self._committer.begin(part, retention), receipt)

    def samples(self, batch: SampleBatch, principal: Principal) -> Receipt:
        """Take samples whose series name their projects. Raises as ``submit``."""
        check_shape(batch)
        checked = self._check(numbered(batch), principal)
        self._admit(checked.parts)
        accepted = sum(len(part) for part, _ in checked.parts)
        receipt = Receipt(accepted=accepted, rejected=checked.rejected, unknown=checked.unknown)
        return Coming(receipt, [self._committer.submit(*part) for part in checked.parts]).wait()

    def logs(self, lines: Sequence[LogLine], principal: Principal) -> Receipt:
        """Take log lines that name their projects. Raises as ``submit``."""
        parts, rejected = self._check_lines(lines, principal)
        receipt = Receipt(lines=sum(len(own) for own, _ in parts), rejected_lines=rejected)
        return Coming(receipt, [self._log_committer.submit(*part) for part in parts]).wait()

    def records(self, records: Records, principal: Principal) -> int:
        """Take records; gives their number. A job or an event that names no project is for the key's own."""
        return self._record(self._by_project(records, principal))

    def forget(self, project: str, job: str) -> None:
        """Take it that a job was deleted from the registry: samples that still arrive make it known again."""
        self._observer.forget(project, job)

    def close(self) -> None:
        """Refuse what comes from now on and finish what is under way."""
        self._log_committer.close()
        self._committer.close()

    def _admit(self, parts: Sequence[_Part]) -> None:
        """Raise ThrottledError where the queue is full, UnavailableError where the registry cannot hear of them."""
        for part, _ in parts:
            self._committer.admit(part)
            self._observer.admit(part)

    def _check(self, batch: SampleBatch, principal: Principal, *, at_once: bool = False) -> "_Checked":
        if len(batch.series) > self._limits.request_series:
            raise LimitExceededError(
                f"a request may name {self._limits.request_series} series, this one names {len(batch.series)}", "series"
            )
        known = self._series.look_up(series_of(batch))
        own = _by_project(batch, known)
        for project, _ in own:
            write_project(principal, project)
        check_times(batch)
        check_values(batch, known.lowest, known.highest, known.floor, known.ceiling)
        parts, rejected = self._drop(own, at_once=at_once)
        unknown = len(batch) - sum(len(part) for _, part in own) if known.unknown else 0
        return _Checked(parts, {**rejected, "unknown_metric": unknown} if unknown else rejected, known.unknown)

    def _drop(self, own: Sequence[tuple[str, SampleBatch]], *, at_once: bool) -> tuple[list[_Part], dict[str, int]]:
        """The samples that are neither too far ahead nor too old, by project, and the count of the others."""
        now_ms = self._clock.now_ms()
        counts = {"future": 0, "expired": 0}
        parts: list[_Part] = []
        for project, part in own:
            retention = self._retentions.known(project) if at_once else self._retentions.of(project)
            latest = now_ms + self._limits.future_seconds * SECOND
            earliest = now_ms - retention.raw_days * DAY
            kept = part
            if len(part) and (int(part.time.max()) > latest or int(part.time.min()) < earliest):
                future, expired = part.time > latest, part.time < earliest
                counts["future"] += int(np.count_nonzero(future))
                counts["expired"] += int(np.count_nonzero(expired))
                kept = _rows(part, ~(future | expired))
            if len(kept):
                parts.append((kept, retention))
        return parts, {reason: count for reason, count in counts.items() if count}

    def _check_lines(self, lines: Sequence[LogLine], principal: Principal) -> tuple[list[_LogPart], dict[str, int]]:
        """The lines that are neither too far ahead nor too old, by project, and the count of the others."""
        now_ms = self._clock.now_ms()
        latest = (now_ms + self._limits.future_seconds * SECOND) * _NS
        counts = {"future": 0, "expired": 0}
        parts: list[_LogPart] = []
        for project, own in by_project(prepared(lines, self._limits.request_lines)):
            retention = self._retentions.of(write_project(principal, project))
            earliest = (now_ms - retention.raw_days * DAY) * _NS
            kept = [line for line in own if earliest <= line.time_ns <= latest]
            counts["future"] += sum(line.time_ns > latest for line in own)
            counts["expired"] += sum(line.time_ns < earliest for line in own)
            if kept:
                parts.append((kept, retention))
        return parts, {reason: count for reason, count in counts.items() if count}

    def _by_project(self, records: Records, principal: Principal) -> dict[str, Records]:
        self._count(records.count)
        groups: dict[str, Records] = {}
        if records.nodes:
            groups[write_project(principal, None)] = Records(nodes=records.nodes)
        for job in records.jobs:
            groups.setdefault(write_project(principal, job.project), Records()).jobs.append(job)
        for event in records.events:
            groups.setdefault(write_project(principal, event.project or None), Records()).events.append(event)
        for renewal in records.leases:
            groups.setdefault(write_project(principal, renewal.project or None), Records()).leases.append(renewal)
        return groups

    def _count(self, records: int) -> None:
        most = self._limits.request_records
        if records > most:
            raise LimitExceededError(
                f"a request may bring {most} records (JOBMETER_LIMIT_REQUEST_RECORDS), this one brings {records}",
                "records",
            )

    def _record(self, groups: dict[str, Records]) -> int:
        now_ms = self._clock.now_ms()
        return sum(self._registry.record(project, records, now_ms) for project, records in groups.items())


@dataclass(frozen=True, slots=True)
class _Checked:
    """What may be kept of a batch, the count of the rest by reason, and the metrics that are unknown."""

    parts: list[_Part]
    rejected: dict[str, int]
    unknown: tuple[str, ...]


async def _durable(kept: Awaitable[None], receipt: Receipt) -> Receipt:
    await kept
    return receipt


def _by_project(batch: SampleBatch, known: Facts) -> list[tuple[str, SampleBatch]]:
    return [(name, batch if places is None else select(batch, places)) for name, places in known.projects]


def _rows(batch: SampleBatch, keep: NDArray[np.bool_]) -> SampleBatch:
    """The rows to keep, and of the series only those that still have one."""
    return used(replace(batch, index=batch.index[keep], time=batch.time[keep], value=batch.value[keep]))
