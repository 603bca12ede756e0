"""Diagnose jobs that have ended and store the findings as events."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from jobmeter.access.decide import EVERYTHING
from jobmeter.diagnose.finding_events import make_end_event, read_reported_findings
from jobmeter.diagnose.report import diagnose
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.model.event import FINDING, LEVEL_OF, EventFilter, EventSource, EventType
from jobmeter.model.finding import Finding
from jobmeter.model.job import Condition, Job, JobFilter, Operator
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.time import HOUR, SECOND, Clock
from jobmeter.query.execute import Executor
from jobmeter.query.records import ChangedJobsQuestion
from jobmeter.query.request import HeadQuestion, JobRef
from jobmeter.registry.base import Registry
from jobmeter.registry.statements import iterate_job_chunks
from jobmeter.server.background import use_request_budget

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 1.0
SETTLE_MS = 2 * SECOND
"""Delay between the reported end of a job and its diagnosis. Its last lines and samples arrive meanwhile."""
RECENT_MS = HOUR
"""Largest age of an end that is diagnosed without a request. A job that ended earlier was imported."""
JOBS_PER_ROUND, WAITING = 8, 10_000
"""Jobs diagnosed in one round; jobs that may wait or are remembered as done. The oldest are dropped first."""
MOST_TRIES, RETRY_MS = 5, 10 * SECOND
"""Attempts to diagnose a job, and the delay that each failure adds."""
_MOST = 1_000

_Key = tuple[str, str]


class Diagnosing:
    """Background work that diagnoses ended jobs. Each round reads the events since the previous round."""

    name = "diagnose"
    interval = INTERVAL_SECONDS

    def __init__(self, executor: Executor, registry: Registry, thresholds: Thresholds, clock: Clock) -> None:
        self._executor = executor
        self._registry = registry
        self._thresholds = thresholds
        self._clock = clock
        self._mark: tuple[int, int] | None = None
        self._waiting: OrderedDict[_Key, tuple[int, int]] = OrderedDict()
        """Time since which each job waits (epoch milliseconds), and the attempts made."""
        self._done: OrderedDict[_Key, int] = OrderedDict()

    def round(self) -> None:
        """Diagnose the jobs that ended before the delay."""
        now_ms = self._clock.now_ms()
        self._look(now_ms)
        due = [key for key, (since, _) in self._waiting.items() if now_ms - since >= SETTLE_MS][:JOBS_PER_ROUND]
        for key in due:
            tries = self._waiting.pop(key)[1] + 1
            try:
                self._diagnose(key)
            except JobmeterError as error:
                _log.warning("job %s of project %s was not diagnosed: %s", key[1], key[0], error.message)
                if tries < MOST_TRIES:
                    self._waiting[key] = now_ms + tries * RETRY_MS, tries

    def _look(self, now_ms: int) -> None:
        first = self._mark is None
        changed = self._executor.run(ChangedJobsQuestion(self._mark), EVERYTHING)
        if changed.jobs is None:
            self._mark = None  # read the events again from the current state
            return
        for job in self._find_ended_lately(changed.jobs, now_ms):
            key = job.project, job.id
            if self._done.get(key) != job.end and not (first and self._has_stored_findings(key)):
                self._waiting.setdefault(key, (now_ms, 0))
        self._mark = changed.mark  # after a failure above, the events are read again
        while len(self._waiting) > WAITING:
            self._waiting.popitem(last=False)

    def _find_ended_lately(self, keys: Iterable[_Key], now_ms: int) -> Iterator[Job]:
        """Yield the jobs that ended in the last hour. Thousands of imported jobs cost a few queries."""
        lately = Condition("end", Operator.BETWEEN, (now_ms - RECENT_MS + 1, None))
        for project, ids in iterate_job_chunks(dict.fromkeys(keys)):
            question = JobFilter(
                projects=frozenset({project}), ids=tuple(ids), conditions=(lately,), sort="id", limit=len(ids)
            )
            page = self._executor.run(question, EVERYTHING)
            yield from (job for job in page.jobs if job.recorded and job.state.finished)

    def _head(self, key: _Key) -> Job | None:
        try:
            return self._executor.run(HeadQuestion(JobRef(key[1], key[0])), EVERYTHING)
        except NotFoundError:
            return None

    def _has_stored_findings(self, key: _Key) -> bool:
        """True if an earlier process has stored the job's findings."""
        kinds = frozenset({EventType.FINDING})
        question = EventFilter(projects=frozenset({key[0]}), jobs=(key[1],), types=kinds, limit=_MOST)
        page = self._executor.run(question, EVERYTHING)
        # Findings with a subject were reported while the job ran.
        return any(event.reason == FINDING and not event.subject for event in page.events)

    def _diagnose(self, key: _Key) -> None:
        job = self._head(key)
        if job is None or job.end is None:
            return
        with use_request_budget(self._clock):
            made = diagnose(self._executor, JobRef(key[1], key[0]), EVERYTHING, self._clock, self._thresholds)
        reported = read_reported_findings(made.case.events)
        already = {one.key for one in reported}
        events = [_event(job, one) for one in made.findings if (one.rule, one.subject) not in already]
        events += [
            make_end_event(job.project, job.id, one.key, job.end, one.opened.time, over=True)
            for one in reported
            if not one.ended
        ]
        if events:
            self._registry.record(key[0], Records(events=events), self._clock.now_ms())
        self._done[key] = job.end
        while len(self._done) > WAITING:
            self._done.popitem(last=False)


def _event(job: Job, one: Finding) -> EventRecord:
    replica = one.subject.name if one.subject.kind == "replica" else ""
    return EventRecord(
        time=one.end,
        project=job.project,
        job=job.id,
        replica=replica,
        source=EventSource.REPLICA if replica else EventSource.JOB,
        level=LEVEL_OF[one.severity],
        reason=FINDING,
        message=one.opening_message,
    )
