"""Evaluate rules over running jobs, in rotation and at a bounded cost; report findings that open and close."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count, islice

import msgspec

from jobmeter.access.decide import EVERYTHING
from jobmeter.diagnose.finding_events import make_end_event, make_opening, read_reported_findings
from jobmeter.diagnose.open import Open, OpenFindings, has_subject
from jobmeter.diagnose.running import RUNNING, JobKey, RunningEvaluation, evaluate_running
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.errors import JobmeterError
from jobmeter.model.event import Event, EventFilter, EventType
from jobmeter.model.finding import Finding
from jobmeter.model.job import Job, JobFilter, JobState, JobView
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.stacks import STACK_RULES
from jobmeter.model.time import MINUTE, Clock
from jobmeter.query.execute import Executor
from jobmeter.registry.base import Registry
from jobmeter.server.background import use_request_budget
from jobmeter.server.stacks import create_job_task

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 1.0
EVERY_SECONDS = 15.0
"""Least seconds between two evaluations of a job."""
BUDGET_SECONDS = 0.1
"""Time in seconds after which a round begins no further job. The next round continues with the rest."""
IDLE_BUDGET_SECONDS = 0.5
"""Time limit of a round while the process is almost idle."""
IDLE_CPU = 0.3
"""Largest share of a core that the other threads use while the process counts as idle."""
LIST_SECONDS = 5.0
"""Interval in seconds between listings of the running jobs."""
TOGETHER = 8
"""Most jobs whose records, events and nodes are read together; fewer after a round that could not evaluate them all."""
LEAST_JOBS = 32
"""Most jobs evaluated in a round."""
MOST_JOBS = 100_000
"""Most jobs that are watched. Further jobs are diagnosed after their end."""
LINES_SECONDS = 120.0
"""Least seconds between two reads of the newest log lines of a job."""
MOST_EVENTS = 5_000
SUSPICION_MS = 5 * MINUTE
"""Least time between two collections of the evidence of a job that may stand still; it doubles with each."""
_MOST_DOUBLINGS = 8
_HASTE = 2.0
"""Factor on a round's fair share of jobs, so that a few jobs are spread evenly and none waits for long."""


class _Watched(msgspec.Struct):
    """A running job: its last sample at the last listing and evaluation, and the (monotonic) time of the latter.

    ``waits`` is when its first new sample arrived. ``open`` is unset until the stream of events was read.
    ``requested`` is when (epoch ms) the evidence of its ranks was requested last, ``suspicions`` how often that was so
    without a finding. ``lines_read`` is the (monotonic) time since which the job's log lines were not read.
    ``is_queued`` is True while it is in the queue of jobs with new samples.
    """

    sampled: int | None
    waits: float
    evaluated_sample: int | None = None
    evaluated: float | None = None
    open: OpenFindings | None = None
    is_queued: bool = False
    requested: int = 0
    suspicions: int = 0
    lines_read: float | None = None

    @property
    def is_new(self) -> bool:
        """True if it has samples that were not evaluated."""
        return self.sampled != self.evaluated_sample


class EvaluationFigures(msgspec.Struct):
    """Counts for the server's own metrics."""

    jobs: int = 0
    evaluations: int = 0
    failures: int = 0
    opened: int = 0
    closed: int = 0
    seconds: float = 0.0


class RunningJobs:
    """Background work that evaluates running jobs with new samples, longest waiting first.

    The stream of events stores the open findings; memory caches them. ``shared``: only the server that holds the lease
    does the work.
    """

    name = "findings"
    interval = INTERVAL_SECONDS

    def __init__(
        self,
        executor: Executor,
        registry: Registry,
        thresholds: Thresholds,
        clock: Clock,
        others_cpu: Callable[[], float] = lambda: time.process_time() - time.thread_time(),
        *,
        shared: bool = False,
        task_seconds: int = 60,
    ) -> None:
        """``others_cpu`` returns the CPU seconds of the process's other threads.

        ``task_seconds`` is the time in which agents have to answer a request for the evidence of a job's ranks.
        """
        self._executor = executor
        self._registry = registry
        self._thresholds = thresholds
        self._clock = clock
        self._lease = registry.leases.prepare(self.name, clock) if shared else None
        self._task_seconds = task_seconds
        self._lock = threading.Lock()
        self._jobs: dict[JobKey, _Watched] = {}
        # Jobs with new samples only, so that other jobs cost nothing in a round: time of the last evaluation (never:
        # first), order of arrival, job.
        self._queue: list[tuple[float, int, JobKey]] = []
        self._arrivals = count()
        self._together = TOGETHER
        self._listed = float("-inf")
        self._others_cpu = others_cpu
        self.figures = EvaluationFigures()

    def round(self) -> None:
        """Evaluate the due jobs within the round's time limit."""
        if self._lease is None:
            self._evaluate_due()
        elif self._lease.take():
            with self._lease.keep_renewed():
                self._evaluate_due()
        else:
            with self._lock:
                self._jobs.clear()  # another server maintains the open findings
                self._queue.clear()
            self._listed = float("-inf")

    def _evaluate_due(self) -> None:
        began = self._clock.monotonic()
        is_over = self._budget(began)
        if began - self._listed >= LIST_SECONDS:
            self._list(began)
        share = int(_HASTE * len(self._jobs) * INTERVAL_SECONDS / EVERY_SECONDS)
        due = list(islice(self._take_due(began), max(share, LEAST_JOBS)))
        try:
            first = 0
            while first < len(due):
                some = due[first : first + self._together]
                self._evaluate(some, is_over)
                if is_over():
                    break
                first += len(some)
                self._together = min(2 * self._together, TOGETHER)
        finally:
            for key in due:  # jobs that were not begun stay in the queue
                self._enqueue(key)
        self.figures.seconds += self._clock.monotonic() - began

    def _budget(self, began: float) -> Callable[[], bool]:
        """Return a function that is True once the round is over. Requests have priority."""
        before = self._others_cpu()

        def is_over() -> bool:
            spent = self._clock.monotonic() - began
            if BUDGET_SECONDS <= spent < IDLE_BUDGET_SECONDS:
                return self._others_cpu() - before > IDLE_CPU * spent
            return spent >= IDLE_BUDGET_SECONDS

        return is_over

    @property
    def oldest_seconds(self) -> float:
        """Longest wait of a job with new samples for its evaluation; 0 without waiting jobs."""
        moment = self._clock.monotonic()
        with self._lock:
            return max((moment - one.waits for one in self._jobs.values() if one.is_new), default=0.0)

    @property
    def open_findings(self) -> int:
        """Number of open findings."""
        with self._lock:
            return sum(len(one.open) for one in self._jobs.values() if one.open is not None)

    def _list(self, moment: float) -> None:
        question = JobFilter(states=frozenset({JobState.RUNNING}), limit=MOST_JOBS)
        page = self._executor.run(question, EVERYTHING)
        if page.total > MOST_JOBS and self._listed == float("-inf"):
            _log.warning("%d jobs are running; rules are evaluated only for the newest %d", page.total, MOST_JOBS)
        with self._lock:
            self._take_in(page.jobs, moment)
        self._listed = moment
        self.figures.jobs = len(self._jobs)

    def _take_in(self, jobs: Sequence[Job], moment: float) -> None:
        names = {(job.project, job.id) for job in jobs}
        for key in [key for key in self._jobs if key not in names]:
            del self._jobs[key]
        for job in jobs:
            key = (job.project, job.id)
            one = self._jobs.get(key)
            if one is None:
                self._jobs[key] = _Watched(sampled=job.last_sample, waits=moment)
            elif one.sampled != job.last_sample:
                if not one.is_new:
                    one.waits = moment
                one.sampled = job.last_sample
            self._enqueue(key)

    def _enqueue(self, key: JobKey) -> None:
        """Put a job with new samples into the queue, once."""
        one = self._jobs.get(key)
        if one is not None and one.is_new and not one.is_queued:
            one.is_queued = True
            heappush(
                self._queue, (float("-inf") if one.evaluated is None else one.evaluated, next(self._arrivals), key)
            )

    def _take_due(self, moment: float) -> Iterator[JobKey]:
        """Take the due jobs from the queue: never evaluated ones first, then by their last evaluation."""
        while self._queue and moment - self._queue[0][0] >= EVERY_SECONDS:
            _, _, key = heappop(self._queue)
            one = self._jobs.get(key)
            if one is not None and one.is_queued:
                one.is_queued = False
                yield key

    def _evaluate(self, keys: Sequence[JobKey], is_over: Callable[[], bool]) -> None:
        """Evaluate jobs in order: the first one, and more until the time is over."""
        moment, now_ms = self._clock.monotonic(), self._clock.now_ms()
        sampled = {key: self._jobs[key].sampled for key in keys}
        evaluated = keys
        try:
            with use_request_budget(self._clock):
                self._restore(keys, now_ms)
                rules_of = {key: one.rules for key in keys if (one := self._jobs[key].open) is not None}
                lines = {key for key in rules_of if self._are_lines_due(key, moment)}
                evaluations = evaluate_running(
                    self._executor, EVERYTHING, rules_of, now_ms, self._thresholds, with_lines=lines
                )
                for evaluation in evaluations:
                    if evaluation.job in lines:
                        self._jobs[evaluation.job].lines_read = moment
                    self._take(evaluation, sampled[evaluation.job], now_ms)
                    if is_over():
                        evaluated = keys[: keys.index(evaluation.job) + 1]
                        self._together = len(evaluated)  # the next round reads data for fewer jobs
                        break
        finally:  # a job that failed waits until the others had their turn
            with self._lock:
                for key in evaluated:
                    self._jobs[key].evaluated, self._jobs[key].evaluated_sample = moment, sampled[key]

    def _are_lines_due(self, key: JobKey, moment: float) -> bool:
        """True once the log lines of a job were not read for a time, from the job's first evaluation on."""
        watched = self._jobs[key]
        if watched.lines_read is None:
            watched.lines_read = moment
        return moment - watched.lines_read >= LINES_SECONDS

    def _restore(self, keys: Sequence[JobKey], now_ms: int) -> None:
        """Read the open findings of a job from the stream of events when this server begins to watch it."""
        fresh = [key for key in keys if self._jobs[key].open is None]
        if not fresh:
            return
        question = EventFilter(
            projects=frozenset(project for project, _ in fresh),
            jobs=tuple(sorted({job for _, job in fresh})),
            types=frozenset({EventType.FINDING}),
            descending=True,
            limit=MOST_EVENTS,
        )
        events: dict[JobKey, list[Event]] = {}
        for event in reversed(self._executor.run(question, EVERYTHING).events):
            events.setdefault((event.project, event.job), []).append(event)
        for key in fresh:
            reported = read_reported_findings(events.get(key, ()))
            already = {one.key: Open(one.opened.time, now_ms, one.severity) for one in reported if one.ended is None}
            with self._lock:
                self._jobs[key].open = OpenFindings(already)

    def _take(self, evaluation: RunningEvaluation, sampled: int | None, now_ms: int) -> None:
        self.figures.evaluations += 1
        if evaluation.found is None:
            self.figures.failures += 1
            message = evaluation.error.message if evaluation.error else ""
            _log.warning(
                "evaluating the rules for job %s of project %s failed: %s",
                evaluation.job[1],
                evaluation.job[0],
                message,
            )
            return
        project, job = evaluation.job
        upto = now_ms if sampled is None else min(sampled, now_ms)
        findings = self._jobs[evaluation.job].open
        if findings is None:
            return
        view, hold = evaluation.view, self._thresholds[RUNNING]["hold"]
        has = partial(has_subject, view) if view else lambda _: False
        with self._lock:
            change = findings.update(evaluation.found, upto, now_ms, hold, has)
        if evaluation.view and self._needs_evidence(evaluation, change.opened, now_ms):
            self._request_evidence(evaluation.view, now_ms)
        events: list[EventRecord] = [make_opening(project, job, one, now_ms) for one in change.opened]
        events += [make_end_event(project, job, key, now_ms, since) for key, since in change.closed]
        if not events:
            return
        try:
            self._registry.record(project, Records(events=events), now_ms)
        except JobmeterError:
            self._jobs[evaluation.job].open = None  # report the rest next time
            raise
        self.figures.opened += len(change.opened)
        self.figures.closed += len(change.closed)

    def _needs_evidence(self, evaluation: RunningEvaluation, opened: Sequence[Finding], now_ms: int) -> bool:
        """True if a job stands still, or may do so, and the evidence of its ranks was not collected lately."""
        watched = self._jobs[evaluation.job]
        if any(one.rule in STACK_RULES for one in opened):
            recent = evaluation.suspected is not None and now_ms - watched.requested < SUSPICION_MS
            return not recent
        if evaluation.suspected is None or (watched.open is not None and watched.open.rules & STACK_RULES):
            return False
        # A job that stands still often, and goes on, has its evidence collected less and less often.
        if now_ms - watched.requested < SUSPICION_MS << min(watched.suspicions, _MOST_DOUBLINGS):
            return False
        watched.suspicions += 1
        return True

    def _request_evidence(self, view: JobView, now_ms: int) -> None:
        """Request the evidence of the job's ranks from agents, once for the findings that opened."""
        self._jobs[view.job.project, view.job.id].requested = now_ms
        try:
            create_job_task(self._executor, self._registry, view, now_ms, self._task_seconds)
        except JobmeterError as error:
            _log.info("the stacks of job %s are not collected: %s", view.job.id, error.message)
