"""The job records that ``jobmeter run`` sends: one when the job starts, one when it has ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from jobmeter.collect.base import Place
from jobmeter.collect.launch.plan import Plan
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, Records, ReplicaRecord

_LONGEST_COMMAND = 8_192


@dataclass(slots=True)
class ReplicaLife:
    """What became of one replica: ``exit_code`` as a shell shows it, None while it runs."""

    name: str
    rank: int
    start: int
    end: int | None = None
    exit_code: int | None = None
    reason: str = ""


class JobRecorder:
    """Makes the records of one job."""

    def __init__(self, plan: Plan, place: Place, limits: Mapping[str, float], start: int) -> None:
        self._plan = plan
        self._place = place
        self._limits = dict(limits)
        self._start = start

    def started(self, lives: list[ReplicaLife]) -> Records:
        """The job as it begins."""
        return self._records(JobState.RUNNING, lives)

    def ended(self, lives: list[ReplicaLife], end: int, *, stopped: bool) -> Records:
        """The job as it ended. ``stopped``: because somebody sent a signal that ends things."""
        code = exit_status(lives)
        state = JobState.SUCCEEDED if code == 0 else JobState.STOPPED if stopped else JobState.FAILED
        reasons = [f"{life.name}: {life.reason}" if len(lives) > 1 else life.reason for life in lives if life.reason]
        return self._records(state, lives, end=end, exit_code=code, error="; ".join(reasons))

    def _records(
        self,
        state: JobState,
        lives: list[ReplicaLife],
        end: int | None = None,
        exit_code: int | None = None,
        error: str | None = None,
    ) -> Records:
        plan = self._plan
        job = JobRecord(
            job_id=plan.job,
            project=self._place.project or None,
            name=plan.name,
            type=plan.kind,
            state=state,
            user=plan.user,
            created=self._start,
            start=self._start,
            end=end,
            exit_code=exit_code,
            error=error,
            command=" ".join(plan.command)[:_LONGEST_COMMAND],
            limits=self._limits,
            replicas=[self._replica(life) for life in lives],
        )
        return Records(jobs=[job])

    def _replica(self, life: ReplicaLife) -> ReplicaRecord:
        state = JobState.RUNNING
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


def exit_status(lives: list[ReplicaLife]) -> int:
    """The exit status of a job: that of the first replica, in the order in which they ended, that is not 0."""
    ended = sorted((life for life in lives if life.exit_code), key=lambda life: (life.end or 0, life.rank))
    return (ended[0].exit_code or 0) if ended else 0
