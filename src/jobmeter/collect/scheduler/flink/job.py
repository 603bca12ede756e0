"""State of one job of Flink, and its records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from jobmeter.collect.scheduler.flink.answers import TERMINAL, Details, FlinkFailure, Subtask, Summary
from jobmeter.collect.text import escape_invalid, shorten_text
from jobmeter.model.event import Level
from jobmeter.model.job import JobState
from jobmeter.model.record import MAX_REASON, EventRecord, JobRecord, ReplicaRecord
from jobmeter.model.series import is_name

_STATES = {
    "INITIALIZING": JobState.QUEUED,
    "CREATED": JobState.QUEUED,
    "FINISHED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "CANCELED": JobState.STOPPED,
    "SUSPENDED": JobState.UNKNOWN,
}
_DONE = frozenset({"CANCELING", "CANCELED", "FAILED", "FINISHED"})
_MOST_ATTEMPTS = 32
"""Attempts whose task managers are remembered."""
_MOST_TRACE = 8_192


def convert_state(state: str) -> JobState:
    """Convert a state of Flink; a transitional state counts as running."""
    return _STATES.get(state, JobState.RUNNING)


@dataclass(slots=True, eq=False)
class FlinkJob:
    """Job since it was first listed.

    ``failures`` are oldest first. ``counted`` is Flink's own count of restarts, which is delayed.
    """

    listed: Summary
    details: Details | None = None
    subtasks: Mapping[str, Sequence[Subtask]] = field(default_factory=dict)
    failures: Sequence[FlinkFailure] = ()
    counted: int = 0
    read_ms: int | None = None
    changed_ms: int = 0
    replicas: dict[tuple[str, int], ReplicaRecord] = field(default_factory=dict)
    sent: dict[tuple[str, int], ReplicaRecord] = field(default_factory=dict)
    record: JobRecord | None = None
    reported: set[int] = field(default_factory=set)
    _restarts: int = 0

    @property
    def over(self) -> bool:
        """True if the job has reached a final state."""
        return self.listed.state in TERMINAL

    @property
    def restarts(self) -> int:
        """Number of restarts: the number of its current or last attempt."""
        last = len(self.failures) - (1 if self.failed else 0)
        self._restarts = max(self._restarts, self.counted, last)
        return self._restarts

    @property
    def failed(self) -> bool:
        """True if the newest failure ended the job."""
        return self.details is not None and self.details.state == "FAILED"

    def list_failures(self) -> Iterator[tuple[int, FlinkFailure]]:
        """Yield each remembered failure, with the number of the attempt that it ended."""
        first = self.restarts + (1 if self.failed else 0) - len(self.failures)
        for at, failure in enumerate(self.failures):
            yield max(first + at, 0), failure


def take_job_records(job: FlinkJob, cluster: str) -> list[JobRecord]:
    """Return the record of changes since the last call; empty without any."""
    _attempts(job, cluster)
    full = _record(job, cluster)
    fresh = [one for key, one in job.replicas.items() if job.sent.get(key) != one]
    if full == job.record and not fresh:
        return []
    job.record, job.sent = full, dict(job.replicas)
    return [replace(full, replicas=list(fresh))]


def take_job_events(job: FlinkJob) -> list[EventRecord]:
    """Return the failures that were not reported yet."""
    found = []
    for attempt, failure in job.list_failures():
        if failure.timestamp not in job.reported:
            job.reported.add(failure.timestamp)
            found.append(_event(job, attempt, failure))
    return found


def make_lost_record(job: FlinkJob, reported_ms: int) -> JobRecord:
    """Return the record of a job that the job manager no longer lists: its end is unknown."""
    return JobRecord(
        job_id=job.listed.jid,
        state=JobState.UNKNOWN,
        end=reported_ms,
        error="Flink no longer has the job: its job manager was restarted",
    )


def parse_host(endpoint: str) -> str:
    """Return the host of ``host:port`` as a node name; empty for any other text, such as ``(unassigned)``."""
    host = endpoint.rpartition(":")[0].strip("[]")
    return host if host and is_name(host) else ""


def name_task_manager(subtask: Subtask) -> str:
    """Return the task manager of a subtask as a replica's name; empty without one."""
    return subtask.taskmanager_id if is_name(subtask.taskmanager_id) else ""


def _record(job: FlinkJob, cluster: str) -> JobRecord:
    listed, details = job.listed, job.details
    state = convert_state(listed.state)
    widest = max((vertex.parallelism for vertex in details.vertices), default=0) if details else 0
    labels = {
        "cluster": cluster,
        "flink.state": listed.state,
        "flink.parallelism": str(widest) if widest else "",
        "flink.restarts": str(job.restarts),
    }
    return JobRecord(
        job_id=listed.jid,
        name=shorten_text(listed.name) or None,
        type="FlinkBatch" if details and details.job_type == "BATCH" else "FlinkStream",
        state=state,
        created=listed.start_time,
        start=None if state is JobState.QUEUED else listed.start_time,
        end=listed.end_time if job.over and listed.end_time >= 0 else None,
        error=_cause(job.failures[-1])[:_MOST_TRACE] if job.failed and job.failures else None,
        labels={name: value for name, value in labels.items() if value},
    )


def _attempts(job: FlinkJob, cluster: str) -> None:
    """Update the replicas: the task managers of each attempt."""
    if job.details is None:
        return
    began = job.listed.start_time
    for attempt, failure in job.list_failures():
        _record_failure(job, cluster, attempt, failure, began)
        began = failure.timestamp
    now = job.restarts
    state = convert_state(job.listed.state)
    since = max((one.timestamp for attempt, one in job.list_failures() if attempt < now), default=0)
    for subtasks in job.subtasks.values():
        for one in subtasks:
            if name_task_manager(one) and one.start_time >= 0 and (job.over or one.status not in _DONE):
                _add_subtask(job, cluster, one, since)
    for key, replica in list(job.replicas.items()):
        if replica.end is None and job.over:
            outcome = JobState.STOPPED if state is JobState.FAILED else state
            job.replicas[key] = _end_replica(replica, outcome, job.listed.end_time)
        if key[1] < now - _MOST_ATTEMPTS:
            del job.replicas[key]


def _add_subtask(job: FlinkJob, cluster: str, subtask: Subtask, since: int) -> None:
    """Add the subtask to the latest attempt, which began at ``since``. A restart may not affect every subtask."""
    key = (name_task_manager(subtask), job.restarts)
    start = max(subtask.start_time, since)
    reported = job.replicas.get(key)
    if reported is not None and (reported.end is not None or int(reported.start or 0) <= start):
        return
    job.replicas[key] = ReplicaRecord(
        name=key[0],
        attempt=key[1],
        cluster=cluster,
        node=parse_host(subtask.endpoint),
        state=JobState.RUNNING,
        start=start,
    )


def _record_failure(job: FlinkJob, cluster: str, attempt: int, failure: FlinkFailure, began: int) -> None:
    """Record the failure of an attempt on its replica if known, else on all."""
    where = _place(failure)
    if where and (where, attempt) not in job.replicas:
        job.replicas[where, attempt] = ReplicaRecord(name=where, attempt=attempt, cluster=cluster, start=began)
    for key, replica in list(job.replicas.items()):
        if key[1] == attempt and replica.end is None:
            state = JobState.FAILED if key[0] == where else JobState.STOPPED
            reason = _cause(failure)[:MAX_REASON] if key[0] == where else "the job was restarted"
            job.replicas[key] = _end_replica(replica, state, failure.timestamp, reason)


def _end_replica(replica: ReplicaRecord, state: JobState, end_ms: int, reason: str = "") -> ReplicaRecord:
    return replace(replica, state=state, end=end_ms, reason=reason)


def _event(job: FlinkJob, attempt: int, failure: FlinkFailure) -> EventRecord:
    final = job.failed and failure is job.failures[-1]
    task = f" in {failure.task_name}" if failure.task_name else ""
    trace = escape_invalid(failure.stacktrace)[:_MOST_TRACE]
    return EventRecord(
        time=failure.timestamp,
        job=job.listed.jid,
        replica=_place(failure),
        attempt=attempt,
        level=Level.ERROR if final else Level.WARNING,
        reason="JobFailed" if final else "Restarted",
        message=f"{_cause(failure)}{task}\n{trace}",
    )


def _place(failure: FlinkFailure) -> str:
    """Return the task manager of the failure; empty if unknown."""
    for one in (failure, *failure.concurrent_exceptions):
        if one.task_manager_id and is_name(one.task_manager_id):
            return one.task_manager_id
    return ""


def _cause(failure: FlinkFailure) -> str:
    """Return the last cause of the trace, the root exception."""
    lines = [line for line in failure.stacktrace.splitlines() if line and not line.startswith(("\t", " "))]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return escape_invalid((causes or lines[:1] or [failure.exception_name])[-1])
