"""Operations on a job: its details, its tasks, and changes to it.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ShowTrainingJobDetails.html and the pages beside it.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobmeter.dialects.base import DeleteJob, RecordJobs, Steps, StopJob, ask
from jobmeter.dialects.modelarts.answers import answer, iso_with_offset
from jobmeter.dialects.modelarts.job_body import attempts_of, find_start, job_body, task_body
from jobmeter.dialects.modelarts.names import NAME
from jobmeter.dialects.modelarts.requests import JOB_PATH, MAX_INTEGER, ModelArtsJobRequest, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Event, EventFilter, EventSource
from jobmeter.model.job import Job, JobState
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.defaults import job_end
from jobmeter.query.request import JobQuestion


@operation(f"GET {JOB_PATH}", "jobs:read", by_resource=True)
class ShowTrainingJobDetails(ModelArtsJobRequest, frozen=True, kw_only=True):
    """The job: `kind`, `metadata`, `status`, `algorithm`, `spec` and the parts of `extra["modelarts"]` in its record.

    `status` has the names of its tasks. Unknown fields are left out. Times are milliseconds; in `running_records` they
    are seconds.
    """

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        return answer(job_body(view, self.context.now_ms), self.context)


@operation(f"GET {JOB_PATH}/tasks", "jobs:read", by_resource=True)
class ListTrainingJobTasks(ModelArtsJobRequest, frozen=True, kw_only=True):
    """`[{task, host_ip, schedule_count}]`, a bare array with an entry for each time that a task was scheduled.

    `host_ip` is the name of the task's node.
    """

    schedule_count: Annotated[
        int | None, "Only the tasks of that scheduling. Default: all.", Meta(ge=1, le=MAX_INTEGER)
    ] = None

    def _steps(self) -> Steps:
        only = None if self.schedule_count is None else self.schedule_count - 1
        view = yield from ask(JobQuestion(self.ref))
        return answer([task_body(one) for one in attempts_of(view) if only in {None, one.attempt}], self.context)


@operation(f"POST {JOB_PATH}/actions", "jobs:write")
class StopTrainingJob(ModelArtsJobRequest, frozen=True, kw_only=True):
    """Records that the job was stopped now; 202 and the job.

    Jobmeter does not end processes: the system that runs the job does. A job that has already ended: 409.
    """

    action_type: Annotated[str, "`terminate`."]

    def _steps(self) -> Steps:
        ref = self.ref
        if self.action_type != "terminate":
            raise InvalidRequestError(f"{self.action_type[:64]!r} is not supported; only terminate is", "action_type")
        yield from ask(StopJob(ref))
        view = yield from ask(JobQuestion(ref))
        return answer(job_body(view, self.context.now_ms), self.context, 202)


@operation(f"PUT {JOB_PATH}", "jobs:write")
class ChangeTrainingJobDescription(ModelArtsJobRequest, frozen=True, kw_only=True):
    """Changes the description and returns the job. Other parts of the body are ignored."""

    description: Annotated[str | None, Meta(max_length=256)] = None

    def _steps(self) -> Steps:
        ref = self.ref
        view = yield from ask(JobQuestion(ref))
        if self.description is not None:
            extra = {NAME: {"description": self.description}}
            record = JobRecord(job_id=view.job.id, project=view.job.project, extra=extra)
            yield from ask(RecordJobs(Records(jobs=[record])))
            view = yield from ask(JobQuestion(ref))
        return answer(job_body(view, self.context.now_ms), self.context)


@operation(f"DELETE {JOB_PATH}", "jobs:delete")
class DeleteTrainingJob(ModelArtsJobRequest, frozen=True, kw_only=True):
    """Deletes the job and all its data; 202 and `{}`."""

    def _steps(self) -> Steps:
        yield from ask(DeleteJob(self.ref))
        return answer({}, self.context, 202)


MAX_CHANGES = 1000
_ORDER = {"scheduling": 1, "running": 3, "end": 4}
_ENGLISH = {"scheduling": "The job waits.", "running": "The job runs.", "end": "The job has ended"}
_CHINESE = {"scheduling": "作业调度", "running": "作业运行", "end": "作业结束"}


class _Stage(msgspec.Struct):
    name: str
    start_ms: int
    end_ms: int | None = None
    result: str = ""


class _Run(msgspec.Struct):
    stages: list[_Stage] = msgspec.field(default_factory=list)


@operation(f"GET {JOB_PATH}/stages", "jobs:read", by_resource=True)
class ListTrainingJobStages(ModelArtsJobRequest, frozen=True, kw_only=True):
    """`{total_count, running_records: [{record_order, stages}]}`: the stages `scheduling`, `running` and `end`.

    They follow from the changes of the job's state, with a record for each start. Jobmeter gets no reports of
    `preparing`, nor of stages within a stage.
    """

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        page = yield from ask(
            EventFilter(
                projects=frozenset({view.job.project}),
                jobs=(view.job.id,),
                sources=frozenset({EventSource.STATE}),
                limit=MAX_CHANGES,
            )
        )
        runs = _runs(_changes(view.job, page.events))
        records = [
            {"record_order": number, "stages": [_stage(view.job.id, stage) for stage in run.stages]}
            for number, run in enumerate(runs, 1)
        ]
        return answer({"total_count": len(records), "running_records": records}, self.context)


def _changes(job: Job, events: Sequence[Event]) -> list[tuple[int, JobState]]:
    """Return the changes of the job's state with their times, from its record if events are missing."""
    states = {state.value: state for state in JobState}
    changes = [(event.time, states[event.reason]) for event in events if not event.replica and event.reason in states]
    start, end = find_start(job), job_end(job)
    present = {state for _, state in changes}
    recorded = [(job.created, JobState.QUEUED), (start, JobState.RUNNING), (end, job.state)]
    changes += [(time, state) for time, state in recorded if time is not None and state not in present]
    rank = {JobState.QUEUED: 0, JobState.RUNNING: 1}
    return sorted(changes, key=lambda change: (change[0], rank.get(change[1], 2)))


def _runs(changes: Sequence[tuple[int, JobState]]) -> list[_Run]:
    runs: list[_Run] = []
    for time_ms, state in changes:
        name = {JobState.QUEUED: "scheduling", JobState.RUNNING: "running"}.get(state, "end")
        last = runs[-1].stages[-1] if runs else None
        if last is not None and last.name == name:
            continue
        if last is not None and last.end_ms is None:
            last.end_ms = time_ms
        if last is None or _ORDER[name] < _ORDER[last.name]:
            runs.append(_Run())
        ended = time_ms if name == "end" else None
        runs[-1].stages.append(_Stage(name, time_ms, ended, state.value if name == "end" else ""))
    return runs


def _stage(job: str, stage: _Stage) -> dict[str, Any]:
    end = {} if stage.end_ms is None else {"end_time": iso_with_offset(stage.end_ms)}
    result = f": {stage.result}." if stage.result else ""
    return {
        "job_id": job,
        "name": stage.name,
        "en_message": _ENGLISH[stage.name] + result,
        "zh_message": _CHINESE[stage.name],
        "start_time": iso_with_offset(stage.start_ms),
        **end,
        "stage_order": _ORDER[stage.name],
        "sub_stages": [],
    }
