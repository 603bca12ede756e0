"""Slurm cluster as a ``Scheduler``: the controller is polled for all jobs, the database for changed ones."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.collect.scheduler.slurm.components import Components
from jobmeter.collect.scheduler.slurm.records import build_records, iterate_allocation_events, iterate_job_events
from jobmeter.collect.scheduler.slurm.slurm_job import Attempt, SlurmJob
from jobmeter.collect.state_file import StateFile
from jobmeter.errors import UnavailableError
from jobmeter.model.record import EventRecord, JobRecord, Records

_BACK_MS = 24 * 3_600_000
"""Range of the first query."""
_MARGIN_MS = 600_000
"""Time before the last answer from which a restarted program queries, because the database is updated late."""
_LONGEST_BACK_MS = 30 * 24 * 3_600_000
_TRIES_RUNNING = 3
_TRIES_ENDED = 60
"""Queries of the database for a job whose end it does not have yet."""
_STATE = "slurm.json"

_log = logging.getLogger(__name__)

JobsByNumber = Mapping[int, SlurmJob]


class AccountingDatabase(msgspec.Struct, frozen=True):
    """Queries of the accounting: for given jobs, or for all of the last seconds."""

    of_jobs: Callable[[list[int]], JobsByNumber]
    of_seconds: Callable[[int], JobsByNumber]


class _SavedState(msgspec.Struct):
    answered_ms: int


@dataclass(slots=True)
class _Job:
    """Last state of a job, reported or not. ``tries`` limits further queries of the accounting."""

    current: SlurmJob
    accounted: SlurmJob | None = None
    tries: int = _TRIES_RUNNING
    sent: bytes = b""
    events: set[bytes] = field(default_factory=set)
    """Reported events."""

    @property
    def final(self) -> bool:
        """True if its state is final."""
        return self.current.over or (self.accounted is not None and self.accounted.over)


class SlurmScheduler(Scheduler):
    """Scheduler of a Slurm cluster. ``queue`` returns the controller's jobs; ``database`` may be absent."""

    def __init__(
        self,
        cluster: str,
        queue: Callable[[], list[SlurmJob]],
        database: AccountingDatabase | None,
        state: Path | None = None,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._database = database
        self._state = StateFile(state / _STATE if state else None, msgspec.json.Decoder(_SavedState))
        self._jobs: dict[int, _Job] = {}
        self._answered_ms: int | None = None
        self._silent = ""

    def poll(self, now_ms: int) -> Records:
        """Return the changes since the last call."""
        listed = {facts.number: facts for facts in self._queue()}
        if self._answered_ms is not None:
            # The records of the last answer are in the outbox by now.
            self._state.save(_SavedState(self._answered_ms))
        accounted = self._read_accounts(listed, now_ms)
        for number, facts in listed.items():
            self._observe(number, facts)
        for number, facts in accounted.items():
            self._update_accounting(number, facts, listed=number in listed)
        whole = {number: _merge_accounting(job.current, job.accounted) for number, job in sorted(self._jobs.items())}
        components = Components(whole.values())
        found = [record for number, facts in whole.items() for record in self._take_changes(number, components, facts)]
        events = [event for number, facts in whole.items() for event in self._take_events(self._jobs[number], facts)]
        self._forget(listed)
        if not self._silent:
            self._answered_ms = now_ms
        return Records(jobs=found, events=events)

    def close(self) -> None:
        """Do nothing: each command has ended with its call."""

    def _observe(self, number: int, facts: SlurmJob) -> None:
        job = self._jobs.get(number)
        if job is None or _identity(job.current) != _identity(facts):
            job = self._jobs[number] = _Job(facts, sent=job.sent if job else b"")
        elif _moment(job.current) != _moment(facts):
            job.tries = _TRIES_ENDED if facts.over else _TRIES_RUNNING
        # The controller drops the GPUs of a job as soon as it has ended.
        job.current = (
            facts if facts.gpus or facts.now.start != job.current.now.start else replace(facts, gpus=job.current.gpus)
        )

    def _update_accounting(self, number: int, facts: SlurmJob, *, listed: bool) -> None:
        if not listed and not facts.over:
            return  # the controller has dropped it, and the accounting does not have its end yet
        job = self._jobs.setdefault(number, _Job(facts))
        job.accounted = facts
        if not listed:
            same = facts.now.start == job.current.now.start
            job.current = replace(facts, gpus=job.current.gpus, restarts=job.current.restarts) if same else facts
        if _agree(job.current, facts):
            job.tries = 0

    def _read_accounts(self, listed: Mapping[int, SlurmJob], now_ms: int) -> JobsByNumber:
        """Return jobs from the accounting; empty while it does not answer, which is logged once."""
        if self._database is None:
            return {}
        try:
            if self._answered_ms is None:
                accounted = self._database.of_seconds(self._measure_absence_ms(now_ms) // 1000)
            else:
                numbers = self._select_jobs_to_account(listed)
                accounted = self._database.of_jobs(numbers) if numbers else {}
                for number in numbers:
                    if number in self._jobs:
                        self._jobs[number].tries -= 1
        except UnavailableError as error:
            if error.message != self._silent:
                _log.warning("%s; only the controller's data is reported meanwhile", error.message)
            self._silent = error.message
            return {}
        if self._silent:
            _log.info("the accounting answers again")
            self._silent = ""
        return accounted

    def _select_jobs_to_account(self, listed: Mapping[int, SlurmJob]) -> list[int]:
        """Return the jobs to query: changed and incomplete ones, and those that the controller dropped."""
        numbers = set()
        for number, facts in listed.items():
            job = self._jobs.get(number)
            changed = job is None or _moment(job.current) != _moment(facts)
            if facts.now.start is None and not facts.restarts and not facts.over:
                continue  # it waits, and never ran
            if changed or (job is not None and job.tries > 0):
                numbers.add(number)
        gone = self._jobs.keys() - listed.keys()
        numbers |= {number for number in gone if not self._jobs[number].final}
        # The ranks of a component's tasks depend on simultaneous steps of the others.
        whole = {_find_heterogeneous_job(listed[number]) for number in numbers & listed.keys()} - {None}
        return sorted(numbers | {number for number, facts in listed.items() if _find_heterogeneous_job(facts) in whole})

    def _take_changes(self, number: int, components: Components, facts: SlurmJob) -> Iterable[JobRecord]:
        job = self._jobs[number]
        fresh = build_records(components.add_ranks(facts), self._cluster)
        body = msgspec.json.encode(fresh[-1:])
        if body == job.sent:
            return []
        first_time, job.sent = not job.sent, body
        return fresh if first_time else fresh[-1:]

    def _take_events(self, job: _Job, facts: SlurmJob) -> list[EventRecord]:
        """Return new events; a step's state comes from the accounting and is final."""
        events = [*iterate_allocation_events(facts, self._cluster), *iterate_job_events(facts, self._cluster)]
        fresh = {body: event for event in events if (body := msgspec.json.encode(event)) not in job.events}
        job.events |= fresh.keys()
        return list(fresh.values())

    def _forget(self, listed: Mapping[int, SlurmJob]) -> None:
        for number in self._jobs.keys() - listed.keys():
            job = self._jobs[number]
            if job.final or job.tries < -_TRIES_ENDED:
                del self._jobs[number]

    def _measure_absence_ms(self, now_ms: int) -> int:
        memory = self._state.load()
        back = _BACK_MS if memory is None else now_ms - memory.answered_ms + _MARGIN_MS
        return min(max(back, _MARGIN_MS), _LONGEST_BACK_MS)


def _identity(facts: SlurmJob) -> tuple[object, ...]:
    """Return the identity of a job besides its number, which Slurm may reuse."""
    return facts.user, facts.restarts is not None and not facts.restarts and facts.now.submit


def _find_heterogeneous_job(facts: SlurmJob) -> int | None:
    """Return the number of the heterogeneous job to which a job belongs."""
    return facts.component[0] if facts.component else None


def _moment(facts: SlurmJob) -> tuple[object, ...]:
    return facts.now.state, facts.now.start, facts.now.end, facts.restarts, facts.now.nodes


def _agree(current: SlurmJob, accounted: SlurmJob) -> bool:
    """Return True if the accounting is as current as the controller, including steps."""
    if current.over:
        return accounted.over and accounted.now.end is not None and bool(accounted.name)
    return bool(accounted.now.steps) and accounted.now.start == current.now.start


def _merge_accounting(current: SlurmJob, accounted: SlurmJob | None) -> SlurmJob:
    """Merge the controller's state of the job with the accounting's attempts and steps."""
    if accounted is None or accounted is current:
        return current
    if current.restarts is None:
        return accounted
    return replace(
        current,
        user=current.user or accounted.user,
        account=current.account or accounted.account,
        requested=current.requested or accounted.requested,
        attempts=_join_attempts(current, accounted),
    )


def _join_attempts(current: SlurmJob, accounted: SlurmJob) -> tuple[Attempt, ...]:
    now, earlier = current.now, accounted.attempts
    same = next((one for one in earlier if one.start == now.start and one.submit == now.submit), None)
    if same is None:
        same = next((one for one in earlier if one.start == now.start), None) if now.start is not None else None
    before = tuple(
        one
        for one in earlier
        if one is not same
        and one.start is not None
        and (now.start is None or one.start < now.start)
        and current.restarts
    )
    if same is None:
        return (*before, now)
    if same.state != now.state:
        return (*before, replace(now, steps=same.steps))
    # For a cancelled job the controller gives the signal, the accounting 0:0, which is used.
    return (*before, replace(now, steps=same.steps, by=same.by, exit=same.exit or now.exit))
