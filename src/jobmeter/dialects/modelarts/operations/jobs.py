"""Operations on a job: its details, its tasks, and changes to it.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ShowTrainingJobDetails.html and the pages beside it.
"""

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, DeleteJob, Parameter, RecordJobs, Steps, StopJob, execute
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.arguments import job_of, json_body, query_integer, query_text
from jobmeter.dialects.modelarts.job_body import attempts_of, job_body, task_body
from jobmeter.dialects.modelarts.names import NAME
from jobmeter.dialects.modelarts.operations.common import JOB_PATH, operation
from jobmeter.errors import InvalidRequestError
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.request import JobQuestion

MAX_DESCRIPTION = 256


class ActionBody(msgspec.Struct):
    """The body of StopTrainingJob."""

    action_type: str = ""


class UpdateBody(msgspec.Struct):
    """The body of ChangeTrainingJobDescription, with the fields that are read."""

    description: str | None = None


def show_training_job_details(call: Call, context: Context) -> Steps:
    """Return a job, complete."""
    view = yield from execute(JobQuestion(job_of(call, context)))
    return answer(job_body(view, context.now_ms), context)


def list_training_job_tasks(call: Call, context: Context) -> Steps:
    """Return a bare array of tasks, with an entry for each time that a task was scheduled."""
    ref = job_of(call, context)
    count = query_integer(call, "schedule_count", 1, 1)
    only = count - 1 if query_text(call, "schedule_count") else None
    view = yield from execute(JobQuestion(ref))
    return answer([task_body(one) for one in attempts_of(view) if only in {None, one.attempt}], context)


def stop_training_job(call: Call, context: Context) -> Steps:
    """Record that the job was stopped; 202, because another system stops it."""
    ref = job_of(call, context)
    action = json_body(call, ActionBody).action_type
    if action != "terminate":
        raise InvalidRequestError(f"{action[:64]!r} is not supported; only terminate is", "action_type")
    yield from execute(StopJob(ref))
    view = yield from execute(JobQuestion(ref))
    return answer(job_body(view, context.now_ms), context, 202)


def change_training_job_description(call: Call, context: Context) -> Steps:
    """Store a description with the job's record."""
    ref = job_of(call, context)
    text = json_body(call, UpdateBody).description
    if text is not None and len(text) > MAX_DESCRIPTION:
        raise InvalidRequestError(f"it may have {MAX_DESCRIPTION} characters", "description")
    view = yield from execute(JobQuestion(ref))
    if text is not None:
        record = JobRecord(job_id=view.job.id, project=view.job.project, extra={NAME: {"description": text}})
        yield from execute(RecordJobs(Records(jobs=[record])))
        view = yield from execute(JobQuestion(ref))
    return answer(job_body(view, context.now_ms), context)


def delete_training_job(call: Call, context: Context) -> Steps:
    """Delete the job."""
    yield from execute(DeleteJob(job_of(call, context)))
    return answer({}, context, 202)


OPERATIONS = (
    operation(
        "ShowTrainingJobDetails",
        "GET",
        JOB_PATH,
        show_training_job_details,
        (
            "The job: `kind`, `metadata`, `status` (with the names of its tasks), `algorithm`, `spec` and the parts "
            'of `extra["modelarts"]` in its record. Unknown fields are left out. Times are milliseconds; in '
            "`running_records` they are seconds."
        ),
        by_resource=True,
    ),
    operation(
        "ListTrainingJobTasks",
        "GET",
        f"{JOB_PATH}/tasks",
        list_training_job_tasks,
        "`[{task, host_ip, schedule_count}]`, a bare array; `host_ip` is the name of the task's node.",
        Parameter("schedule_count", "query", "Only the tasks of that scheduling, counted from 1. Default: all."),
        by_resource=True,
    ),
    operation(
        "StopTrainingJob",
        "POST",
        f"{JOB_PATH}/actions",
        stop_training_job,
        (
            "Records that the job was stopped now; 202 and the job. Jobmeter does not end processes: the system that "
            "runs the job does. A job that has already ended: 409."
        ),
        Parameter("action_type", "body", "`terminate`.", required=True),
        action="jobs:write",
    ),
    operation(
        "ChangeTrainingJobDescription",
        "PUT",
        JOB_PATH,
        change_training_job_description,
        "Changes the description and returns the job. Other parts of the body are ignored.",
        Parameter("description", "body", f"Up to {MAX_DESCRIPTION} characters."),
        action="jobs:write",
    ),
    operation(
        "DeleteTrainingJob",
        "DELETE",
        JOB_PATH,
        delete_training_job,
        "Deletes the job and all its data; 202 and `{}`.",
        action="jobs:delete",
    ),
)
