"""Operations on a job: its details, its tasks, and changes to it.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ShowTrainingJobDetails.html and the pages beside it.
"""

from typing import Annotated

from msgspec import Meta

from jobmeter.dialects.base import DeleteJob, RecordJobs, Steps, StopJob, ask
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.job_body import list_attempts, make_job_body, make_task_body
from jobmeter.dialects.modelarts.names import NAME
from jobmeter.dialects.modelarts.requests import JOB_PATH, MAX_INTEGER, ModelArtsJobRequest, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.request import JobQuestion


@operation(f"GET {JOB_PATH}", "jobs:read", by_resource=True)
class ShowTrainingJobDetails(ModelArtsJobRequest, frozen=True, kw_only=True):
    """The job: `kind`, `metadata`, `status`, `algorithm`, `spec` and the parts of `extra["modelarts"]` in its record.

    `status` has the names of its tasks. Unknown fields are left out. Times are milliseconds; in `running_records` they
    are seconds.
    """

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        return answer(make_job_body(view, self.context.now_ms), self.context)


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
        return answer([make_task_body(one) for one in list_attempts(view) if only in {None, one.attempt}], self.context)


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
        return answer(make_job_body(view, self.context.now_ms), self.context, 202)


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
        return answer(make_job_body(view, self.context.now_ms), self.context)


@operation(f"DELETE {JOB_PATH}", "jobs:delete")
class DeleteTrainingJob(ModelArtsJobRequest, frozen=True, kw_only=True):
    """Deletes the job and all its data; 202 and `{}`."""

    def _steps(self) -> Steps:
        yield from ask(DeleteJob(self.ref))
        return answer({}, self.context, 202)
