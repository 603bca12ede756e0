"""Operations on a job: its details, priority and end.

https://docs.baseten.co/reference/training-api/get-training-job
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from jobmeter.dialects.base import DeleteJob, RecordJobs, Steps, StopJob, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.dialects.baseten.bodies import make_view_body
from jobmeter.dialects.baseten.names import NAME
from jobmeter.dialects.baseten.operations.projects import read_project
from jobmeter.dialects.baseten.requests import JOB_PATH, BasetenJobRequest, answer, operation, path_operation
from jobmeter.errors import ConflictError
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.request import JobQuestion

MOST_PRIORITY = 2**31 - 1


@operation(f"GET {JOB_PATH}", "jobs:read", name="get_training_projects_jobs_training_job_id", by_resource=True)
class GetTrainingJob(BasetenJobRequest, frozen=True, kw_only=True):
    """The job and its project.

    `instance_type` comes from the job's record, else from its limits and allocations; unknown fields are null if null
    is allowed, else empty texts or 0. `current_status` is `extra.baseten.current_status` of the record if that word
    fits the job's state. `user` is absent if it is unknown.
    """

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        body = yield from read_project(view.job.project, self.context)
        return answer({"training_project": body, "training_job": make_view_body(view)})


@operation(f"PATCH {JOB_PATH}", "jobs:write", name="patch_training_projects_jobs")
class UpdateTrainingJob(BasetenJobRequest, frozen=True, kw_only=True):
    """Stores the fields in `extra.baseten` of the job's record, while the job is pending."""

    priority: Annotated[int | None, "A whole number.", Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] = None
    availability_model: Annotated[Literal["dedicated", "spot"] | None, Choice(("dedicated", "spot"))] = None

    def _steps(self) -> Steps:
        changes: dict[str, Any] = {"priority": self.priority, "availability_model": self.availability_model}
        changes = {name: value for name, value in changes.items() if value is not None}
        view = yield from ask(JobQuestion(self.ref))
        if changes:
            if view.job.state is not JobState.QUEUED:
                raise ConflictError(f"Only a pending job can be changed; job {view.job.id} is not pending.")
            record = JobRecord(job_id=view.job.id, project=view.job.project, extra={NAME: changes})
            yield from ask(RecordJobs(Records(jobs=[record])))
            view = yield from ask(JobQuestion(self.ref))
        return answer({"training_job": make_view_body(view)})


@path_operation(f"DELETE {JOB_PATH}", "jobs:delete", name="delete_training_projects_jobs")
class DeleteJobWithData(BasetenJobRequest, frozen=True, kw_only=True):
    """Deletes the job, its samples, its logs and its events. Needs an administrator's key."""

    def _steps(self) -> Steps:
        job = yield from ask(DeleteJob(self.ref))
        return answer({"id": job.id, "deleted": True, "training_project_id": job.project})


@path_operation(f"POST {JOB_PATH}/stop", "jobs:write", name="post_training_projects_jobs_stop")
class MarkJobStopped(BasetenJobRequest, frozen=True, kw_only=True):
    """Marks the job as stopped.

    Jobmeter does not end processes: the system that runs the job does. A job that has ended is refused with `CONFLICT`.
    """

    def _steps(self) -> Steps:
        yield from ask(StopJob(self.ref))
        view = yield from ask(JobQuestion(self.ref))
        return answer({"training_job": make_view_body(view)})


@operation(f"GET {JOB_PATH}/auth_codes", "jobs:read", name="get_training_projects_jobs_auth_codes", by_resource=True)
class ListAuthCodes(BasetenJobRequest, frozen=True, kw_only=True):
    """`auth_codes` is empty: Jobmeter opens no sessions."""

    def _steps(self) -> Steps:
        yield from ask(JobQuestion(self.ref))
        return answer({"auth_codes": []})


@operation(f"GET {JOB_PATH}/download", "jobs:read", name="get_training_projects_jobs_download", by_resource=True)
class ListUploads(BasetenJobRequest, frozen=True, kw_only=True):
    """`artifact_presigned_urls` is empty: Jobmeter stores no uploads."""

    def _steps(self) -> Steps:
        yield from ask(JobQuestion(self.ref))
        return answer({"artifact_presigned_urls": []})
