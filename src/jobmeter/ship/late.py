"""Jobs whose resource group becomes known after they wrote lines: those are shipped, too, before any later one."""

import logging
from collections.abc import Sequence

from jobmeter.model.log import LogLine
from jobmeter.model.record import JobRecord
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import Progress, Shipper
from jobmeter.model.time import Clock
from jobmeter.registry.base import Registry
from jobmeter.ship import events
from jobmeter.ship.outbox import Outbox
from jobmeter.store.base import LogSelector, ReadBudget, Store

MOST_LINES = 100_000
"""Most lines of one job that are shipped in this way, the newest: new lines wait meanwhile."""
MOST_BYTES = 64 * 2**20
"""Most bytes of their texts."""
PAGE_LINES = 1_000
"""Lines of one read, whatever their length."""
_TOGETHER = 5_000
_TRIES = 5
_NS = 1_000_000
_log = logging.getLogger("jobmeter.ship")


class LateGroups:
    """Called before records with groups are written. Thread safe."""

    def __init__(self, store: Store, registry: Registry, clock: Clock, outbox: Outbox) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._outbox = outbox

    def grouped(self, project: str, jobs: Sequence[JobRecord]) -> Sequence[JobRecord]:
        """Those of the records that give a shipped group to a job without one."""
        if not jobs:
            return ()
        groups = {one.resource_group for one in self._outbox.shippers() if one.project in {"", project}}
        named = {job.job_id: job for job in jobs if job.resource_group in groups}
        return [job for job in named.values() if not any(self._groups(project, job.job_id))]

    def ship(self, project: str, jobs: Sequence[JobRecord], retention: Retention) -> None:
        """Put what such jobs wrote since their shippers were made into the outboxes, in the order of their times.

        To be called while no line is written, and before the records are. Raises as ``Outbox.put``, and what the store
        raises.
        """
        for job in self.grouped(project, jobs):
            if not self._groups(project, job.job_id):  # nothing was ever heard of it
                continue
            for shipper in self._outbox.shippers():
                if shipper.resource_group == job.resource_group and shipper.project in {"", project}:
                    self._catch_up(shipper, project, job.job_id, retention)

    def _groups(self, project: str, job: str) -> Sequence[str]:
        """The group of a job, empty where it has none; nothing for a job that is unknown."""
        heads = self._registry.job_head(frozenset({project}), job, self._clock.now_ms())
        return [head.resource_group for head in heads]

    def _catch_up(self, shipper: Shipper, project: str, job: str, retention: Retention) -> None:
        lines, total = self._newest(project, job, shipper.created * _NS)
        for start in range(0, len(lines), _TOGETHER):
            self._outbox.append(shipper, lines[start : start + _TOGETHER], retention)
        if total > len(lines):
            self._count(shipper, job, total - len(lines))

    def _newest(self, project: str, job: str, start_ns: int) -> tuple[list[LogLine], int]:
        """The newest lines, oldest first, and how many there are in all."""
        found: list[LogLine] = []
        total, size = 0, 0
        while len(found) < MOST_LINES:
            page = self._store.read_logs(
                LogSelector(
                    project=project,
                    job=job,
                    start_ns=start_ns,
                    descending=True,
                    offset=len(found),
                    limit=PAGE_LINES,
                    count=not found,
                ),
                ReadBudget(),
            )
            total = page.total or total
            for line in page.lines:
                size += len(line.text.encode())
                if size > MOST_BYTES:
                    return found[::-1], total
                found.append(line)
            if len(page.lines) < PAGE_LINES:
                break
        return found[::-1], total

    def _count(self, shipper: Shipper, job: str, lines: int) -> None:
        """Count lines that are too many as dropped. Retries where the shipper wrote its position meanwhile."""
        _log.warning("shipper %s: %d lines of a job are too many to be shipped late", shipper.id, lines)
        events.too_many(self._registry, self._clock.now_ms(), shipper, job, lines)
        for _ in range(_TRIES):
            now = next((one for one in self._registry.shippers.all() if one.id == shipper.id), None)
            if now is None:
                return
            dropped = Progress(before=now.cursor, cursor=now.cursor, dropped=lines, error=now.error, oldest=now.oldest)
            if self._registry.shippers.advance(shipper.id, dropped, self._clock.now_ms()):
                return
        _log.warning("shipper %s: lines that are not shipped could not be counted", shipper.id)
