"""State of a cluster's scheduler: logged on changes, and reported to the server."""

import logging
from dataclasses import dataclass

from jobmeter.collect.outbox import Outbox
from jobmeter.model.record import MAX_TEXT, Records, SchedulerRecord
from jobmeter.model.time import MINUTE, Clock, format_iso
from jobmeter.wire.native.encode import make_records_frame

REPORT_MS = MINUTE
"""Milliseconds between two reports without changes. A much longer silence means the end of this program."""
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class SchedulerHealth:
    """Health of a scheduler of a ``kind``, for example ``slurm``. For one thread."""

    kind: str
    cluster: str
    interval_ms: int
    outbox: Outbox
    clock: Clock
    _problem: str = ""
    _since: int | None = None
    _logged_ms: int = 0
    _reported_ms: int | None = None

    def update(self, problem: str) -> None:
        """Note the result of a poll. ``problem`` describes missing data, empty without any."""
        now_ms = self.clock.now_ms()
        changed = bool(problem) != bool(self._problem)
        if changed and self._since is not None:
            _log.info("the scheduler answers again, after %d s", (now_ms - self._since) // 1000)
        if changed:
            self._since = now_ms if problem else None
        if self._since is not None and problem != self._problem and (changed or now_ms - self._logged_ms >= REPORT_MS):
            _log.warning("%s; since %s, retrying until it answers", problem, format_iso(self._since))
            self._logged_ms = now_ms
        self._problem = problem
        if changed or self._reported_ms is None or not 0 <= now_ms - self._reported_ms < REPORT_MS:
            self._report(now_ms)

    def _report(self, now_ms: int) -> None:
        record = SchedulerRecord(
            kind=self.kind,
            cluster=self.cluster,
            time=now_ms,
            interval_ms=self.interval_ms,
            problem=self._problem[:MAX_TEXT],
            since=self._since,
        )
        # In its own frame: a server of an earlier release may refuse it.
        self.outbox.put(make_records_frame(Records(schedulers=[record])))
        self._reported_ms = now_ms
