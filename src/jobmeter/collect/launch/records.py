"""Job records that ``jobmeter run`` sends."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from signal import Signals

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.launch.plan import LaunchPlan
from jobmeter.collect.text import escape_invalid, shorten_text
from jobmeter.model.event import Level
from jobmeter.model.job import JobState
from jobmeter.model.record import EventRecord, JobRecord, Lease, Records, ReplicaRecord

_LONGEST_COMMAND = 8_192
_SIGNALS = 128


MASK = "***"
_WORDS = frozenset(
    {"key", "apikey", "token", "secret", "password", "passwd", "passphrase", "credential", "credentials"}
)
"""Last words of names of options and variables that contain a credential."""
_PARTS = re.compile(r"[-_.]+")
_NAMED = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)=(?P<value>.+)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_USER = re.compile(r"(?<=://)(?P<user>[^/@:\s]*):[^/@\s]+(?=@)")
_TOKEN = re.compile(r"\bjms?_[A-Za-z0-9_-]{16,}")


def redact_command(words: Sequence[str]) -> list[str]:
    """Replace credentials in a command by ``***``, because readers of the job see the command.

    These are the values of ``--api-key VALUE``, ``--token=VALUE`` or ``DB_PASSWORD=VALUE``, by the last word of the
    name, the passwords of addresses (``://user:password@``), and tokens of Jobmeter.
    """
    found: list[str] = []
    follows = False
    for word in words:
        is_option = bool(_OPTION.fullmatch(word))
        named = _NAMED.fullmatch(word)
        if follows and not is_option:
            found.append(MASK)
        elif named is not None and _is_secret(named["name"]):
            found.append(f"{named['name']}={MASK}")
        else:
            found.append(_TOKEN.sub(MASK, _USER.sub(rf"\g<user>:{MASK}", word)))
        follows = is_option and _is_secret(word)
    return found


def _is_secret(name: str) -> bool:
    return _PARTS.split(name.lower())[-1] in _WORDS


@dataclass(slots=True)
class ReplicaLife:
    """Process of one replica and its end. ``exit_code`` is as a shell shows it, None while it runs."""

    name: str
    rank: int
    start: int
    end: int | None = None
    exit_code: int | None = None
    reason: str = ""


class JobRecorder:
    """Makes the records of one job."""

    def __init__(
        self, plan: LaunchPlan, place: NodeIdentity, limits: Mapping[str, float], start: int, lease: Lease | None = None
    ) -> None:
        self._plan = plan
        self._lease = lease
        self._place = place
        self._limits = dict(limits)
        self._start = start

    def record_start(self, lives: list[ReplicaLife]) -> Records:
        """Return the record of the job's start."""
        records = self._make_records(JobState.RUNNING, lives)
        if self._plan.attempt:
            message = f"Started again, attempt {self._plan.attempt}."
            records.events.extend(
                self._make_event(life, life.start, Level.WARNING, "Restarted", message) for life in lives
            )
        return records

    def record_end(self, lives: list[ReplicaLife], end: int, *, stopped: bool) -> Records:
        """Return the record of the job's end. ``stopped``: by a terminating signal."""
        code = exit_status(lives)
        state = end_state(code, stopped=stopped)
        reasons = [f"{life.name}: {life.reason}" if len(lives) > 1 else life.reason for life in lives if life.reason]
        records = self._make_records(state, lives, end=end, exit_code=code, error="; ".join(reasons))
        level = Level.WARNING if stopped else Level.ERROR
        for life in lives:
            if life.exit_code:
                time_ms = end if life.end is None else life.end
                records.events.append(
                    self._make_event(life, time_ms, level, *describe_exit(life.exit_code, life.reason))
                )
        return records

    def record_attach(self, life: ReplicaLife, time_ms: int, pid: int) -> Records:
        """Return the record of a running process's job, which is measured from ``time_ms`` on.

        Its state is left open.
        """
        records = self._make_records(None, [life])
        message = f"Measured from here on: attached to process {pid}, which was already running."
        records.events.append(self._make_event(life, time_ms, Level.INFO, "Attached", message))
        return records

    def record_detach(self, life: ReplicaLife, time_ms: int, pid: int) -> Records:
        """Return the event that a running job is no longer measured."""
        message = f"No longer measured: detached from process {pid}, which is still running."
        return Records(events=[self._make_event(life, time_ms, Level.WARNING, "Detached", message)])

    def end_unknown(self, life: ReplicaLife, end: int) -> Records:
        """Return the record of the end of a job whose exit status is unknown."""
        error = "its exit status is unknown: it was not a child of the process that measured it"
        records = self._make_records(JobState.UNKNOWN, [life], end=end, error=error)
        records.events.append(self._make_event(life, end, Level.WARNING, "Ended", f"The process ended; {error}."))
        return records

    def _make_event(self, life: ReplicaLife, time_ms: int, level: Level, reason: str, message: str) -> EventRecord:
        owner = Owner(self._plan.job, life.name, self._plan.attempt)
        return self._place.make_event(time_ms, level, reason, message, owner=owner)

    def _make_records(
        self,
        state: JobState | None,
        lives: list[ReplicaLife],
        end: int | None = None,
        exit_code: int | None = None,
        error: str | None = None,
    ) -> Records:
        plan = self._plan
        job = JobRecord(
            job_id=plan.job,
            project=self._place.project or None,
            name=shorten_text(plan.name) if plan.named or not plan.attempt else None,
            type=shorten_text(plan.kind) if plan.kind or not plan.attempt else None,
            state=state,
            user=escape_invalid(plan.user),
            created=self._start,
            start=self._start,
            end=end,
            exit_code=exit_code,
            error=error,
            command=escape_invalid(" ".join(redact_command(plan.command)))[:_LONGEST_COMMAND],
            limits=self._limits,
            lease=self._lease if state is JobState.RUNNING else None,
            replicas=[self._make_replica(life, state) for life in lives],
        )
        return Records(jobs=[job])

    def _make_replica(self, life: ReplicaLife, job: JobState | None) -> ReplicaRecord:
        state: JobState | None = job if job in {None, JobState.UNKNOWN} else JobState.RUNNING
        if life.exit_code is not None:
            state = JobState.SUCCEEDED if life.exit_code == 0 else JobState.FAILED
        return ReplicaRecord(
            name=life.name,
            attempt=self._plan.attempt,
            rank=life.rank,
            cluster=self._place.cluster,
            node=self._place.node,
            state=state,
            start=life.start,
            end=life.end,
            exit_code=life.exit_code,
            reason=life.reason,
        )


def end_state(status: int, *, stopped: bool) -> JobState:
    """Return the state of a job by its exit status. ``stopped``: by a terminating signal."""
    return JobState.SUCCEEDED if status == 0 else JobState.STOPPED if stopped else JobState.FAILED


def describe_exit(exit_code: int, evidence: str) -> tuple[str, str]:
    """Return a word and a sentence for an exit status as a shell shows it: above 128 it is a signal."""
    number = exit_code - _SIGNALS
    try:
        name = Signals(number).name
    except ValueError:
        return "Exited", f"Exited with status {exit_code}."
    text = f"Ended by signal {number} ({name}), exit status {exit_code}."
    return ("OOMKilled", f"{text} Evidence: {evidence}.") if evidence else ("Killed", text)


def exit_status(lives: list[ReplicaLife]) -> int:
    """Return the exit status of a job: the first one, in order of ends, that is not 0."""
    ended = sorted((life for life in lives if life.exit_code), key=lambda life: (life.end or 0, life.rank))
    return (ended[0].exit_code or 0) if ended else 0
