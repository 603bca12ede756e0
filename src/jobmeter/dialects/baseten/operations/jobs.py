"""Operations on a job: its details, priority and end.

https://docs.baseten.co/reference/training-api/get-training-job
"""

from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, DeleteJob, Parameter, RecordJobs, Steps, StopJob, execute
from jobmeter.dialects.baseten.arguments import Arguments
from jobmeter.dialects.baseten.bodies import view_body
from jobmeter.dialects.baseten.names import NAME
from jobmeter.dialects.baseten.operations.common import JOB_PATH, answer, job_ref, operation
from jobmeter.dialects.baseten.operations.projects import project
from jobmeter.errors import ConflictError
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.request import JobQuestion

MOST_PRIORITY = 2**31 - 1
_MODELS = {"dedicated": "dedicated", "spot": "spot"}


def get_job(call: Call, context: Context) -> Steps:  # noqa: ARG001 - the shape of every operation
    """Return a job and its project."""
    view = yield from execute(JobQuestion(job_ref(context)))
    body = yield from project(view.job.project, context)
    return answer({"training_project": body, "training_job": view_body(view)})


def update_job(call: Call, context: Context) -> Steps:
    """Store a new priority or availability model, for the system that runs the job."""
    arguments, ref = Arguments(call), job_ref(context)
    changes: dict[str, Any] = {
        "priority": arguments.integer("priority", -MOST_PRIORITY, MOST_PRIORITY),
        "availability_model": arguments.choice("availability_model", _MODELS),
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    view = yield from execute(JobQuestion(ref))
    if changes:
        if view.job.state is not JobState.QUEUED:
            raise ConflictError(f"Only a pending job can be changed; job {view.job.id} is not pending.")
        record = JobRecord(job_id=view.job.id, project=view.job.project, extra={NAME: changes})
        yield from execute(RecordJobs(Records(jobs=[record])))
        view = yield from execute(JobQuestion(ref))
    return answer({"training_job": view_body(view)})


def stop_job(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Record that the job was stopped."""
    yield from execute(StopJob(job_ref(context)))
    view = yield from execute(JobQuestion(job_ref(context)))
    return answer({"training_job": view_body(view)})


def delete_job(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Delete the job and all its data."""
    job = yield from execute(DeleteJob(job_ref(context)))
    return answer({"id": job.id, "deleted": True, "training_project_id": job.project})


def auth_codes(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return an empty list of sessions on the job's machines."""
    yield from execute(JobQuestion(job_ref(context)))
    return answer({"auth_codes": []})


def download(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return an empty list of download addresses."""
    yield from execute(JobQuestion(job_ref(context)))
    return answer({"artifact_presigned_urls": []})


OPERATIONS = (
    operation(
        "get_training_projects_jobs_training_job_id",
        "GET",
        JOB_PATH,
        get_job,
        (
            "One job and its project. `instance_type` comes from the job's record, else from its limits and "
            "allocations; unknown fields are null if null is allowed, else empty texts or 0. `current_status` is "
            "`extra.baseten.current_status` of the record if that word fits the job's state. `user` is absent if it "
            "is unknown."
        ),
        by_resource=True,
    ),
    operation(
        "patch_training_projects_jobs",
        "PATCH",
        JOB_PATH,
        update_job,
        "Stores the fields in `extra.baseten` of the job's record, while the job is pending.",
        Parameter("priority", "body", "A whole number."),
        Parameter("availability_model", "body", "`dedicated` or `spot`."),
        action="jobs:write",
    ),
    operation(
        "delete_training_projects_jobs",
        "DELETE",
        JOB_PATH,
        delete_job,
        "Deletes the job, its samples, its logs and its events. Needs an administrator's key.",
        action="jobs:delete",
    ),
    operation(
        "post_training_projects_jobs_stop",
        "POST",
        f"{JOB_PATH}/stop",
        stop_job,
        (
            "Marks the job as stopped. Jobmeter does not end processes: the system that runs the job does. "
            "A job that has ended is refused with `CONFLICT`."
        ),
        action="jobs:write",
    ),
    operation(
        "get_training_projects_jobs_auth_codes",
        "GET",
        f"{JOB_PATH}/auth_codes",
        auth_codes,
        "`auth_codes` is empty: Jobmeter opens no sessions.",
        by_resource=True,
    ),
    operation(
        "get_training_projects_jobs_download",
        "GET",
        f"{JOB_PATH}/download",
        download,
        "`artifact_presigned_urls` is empty: Jobmeter stores no uploads.",
        by_resource=True,
    ),
)
