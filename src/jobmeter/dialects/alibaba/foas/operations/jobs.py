"""Jobs: ListJob, GetJob, and CreateJob and StartJob, which register a job that another system runs.

Fields: the types of the vendor's SDK for Go (``services/foas/struct_job.go``, ``start_job.go``).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from jobmeter.dialects.alibaba.common.operation import Arguments, in_body, in_query
from jobmeter.dialects.alibaba.foas.answers import reply
from jobmeter.dialects.alibaba.foas.bodies import json_object, operation
from jobmeter.dialects.alibaba.foas.instances import (
    BATCH,
    OUR_TYPES,
    STREAM,
    instance_id,
    job_name,
    job_not_found,
    job_type,
    jobs_named,
    jobs_of,
    own,
)
from jobmeter.dialects.alibaba.foas.names import NAME, project_of
from jobmeter.dialects.alibaba.foas.operations.instances import JOB_NAME, PAGES, PROJECT, STORED_FIELDS, page_of, paging
from jobmeter.dialects.base import Context, RecordJobs, Steps, execute
from jobmeter.errors import ConflictError
from jobmeter.model.job import Job, JobState
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.defaults import job_created

MAX_ID = 128


@operation(
    "GET /api/v2/projects/{projectName}/jobs",
    "jobs:read",
    PROJECT,
    in_query("jobName", "A part of the name."),
    in_query("jobType", f"`{STREAM}` or `{BATCH}`."),
    in_query("apiType", "As it was registered."),
    in_query("engineVersion", "As it was registered."),
    in_query("clusterId", "As it was registered."),
    in_query("isShowFullField", "`false` leaves out code, properties, packages and plan."),
    *PAGES,
    by_resource=True,
)
def list_job(arguments: Arguments) -> Steps:
    """Lists the Flink jobs of a project, each once, newest first."""
    project = arguments.required("projectName")
    kind, name = arguments.word("jobType", OUR_TYPES), arguments.text("jobName").casefold()
    full = arguments.flag("isShowFullField", default=True)
    exact = {key: _text(arguments, key).casefold() for key in ("ApiType", "EngineVersion", "ClusterId")}
    index, size = page_of(arguments)
    newest: dict[str, Job] = {}
    for job in (yield from jobs_of(project)):
        newest.setdefault(job_name(job), job)
    matching = [
        job
        for job in newest.values()
        if kind in {"", job_type(job)}
        and name in job_name(job).casefold()
        and all(not want or str(own(job).get(key, "")).casefold() == want for key, want in exact.items())
    ]
    members = [described(project, job, full=full) for job in matching[(index - 1) * size : index * size]]
    return reply(arguments, "ListJob", {**paging(index, size, len(matching)), "Jobs": {"Job": members}})


@operation("GET /api/v2/projects/{projectName}/jobs/{jobName}", "jobs:read", PROJECT, JOB_NAME, by_resource=True)
def get_job(arguments: Arguments) -> Steps:
    """Returns one job."""
    project, name = arguments.required("projectName"), arguments.required("jobName")
    jobs = yield from jobs_named(project, name)
    if not jobs:
        raise job_not_found(project, name)
    return reply(arguments, "GetJob", {"Job": described(project, jobs[0], full=True)})


@operation(
    "POST /api/v2/projects/{projectName}/jobs",
    "jobs:write",
    PROJECT,
    in_body("jobName", "Its name, and the id under which its samples come.", required=True),
    in_body("jobType", f"`{STREAM}` or `{BATCH}`.", required=True),
    in_body("queueName", "The resource group."),
    *(
        in_body(name, "Given back as it is.")
        for name in (
            "apiType",
            "code",
            "properties",
            "packages",
            "planJson",
            "engineVersion",
            "clusterId",
            "description",
        )
    ),
)
def create_job(arguments: Arguments) -> Steps:
    """Registers a job that another system is going to run: it waits."""
    project, name = arguments.required("projectName"), arguments.required("jobName")
    arguments.required("jobType")
    kind = OUR_TYPES[arguments.word("jobType", OUR_TYPES, STREAM)]
    if (yield from jobs_named(project, name)):
        raise ConflictError(f"project {project} has a job {name} already")
    matching = {key: _text(arguments, key) for key in (*STORED_FIELDS, "Description")}
    record = JobRecord(
        job_id=name,
        project=project_of(project),
        name=name,
        type=kind,
        state=JobState.QUEUED,
        created=arguments.context.now_ms,
        user=arguments.context.caller or None,
        resource_group=matching["QueueName"] or None,
        extra={NAME: {key: value for key, value in matching.items() if value}},
    )
    yield from execute(RecordJobs(Records(jobs=[record])))
    return reply(arguments, "CreateJob", {})


@operation(
    "POST /api/v2/projects/{projectName}/jobs/{jobName}/instance",
    "jobs:write",
    PROJECT,
    JOB_NAME,
    in_body("parameterJson", "A JSON object, which is stored."),
)
def start_job(arguments: Arguments) -> Steps:
    """Registers that another system runs a job from now on: `{"RequestId", "instanceId"}`.

    A stream that ran before is the same instance again. Each run of a batch job is a separate job here, whose id is
    `EngineJobHandler` of GetInstance.
    """
    project, name = arguments.required("projectName"), arguments.required("jobName")
    text = arguments.text("parameterJson")
    parameters = json_object(text, "parameterJson", "parameterJson") if text else {}
    jobs = yield from jobs_named(project, name)
    if jobs and job_type(jobs[0]) == STREAM and any(job.state is JobState.RUNNING for job in jobs):
        raise ConflictError(f"the streaming job {name} runs already, and has one instance at a time")
    started = _started(project, name, jobs, arguments.context)
    extra = {NAME: {"parameterJson": parameters}} if parameters else None
    record = msgspec.structs.replace(started, state=JobState.RUNNING, start=arguments.context.now_ms, extra=extra)
    yield from execute(RecordJobs(Records(jobs=[record])))
    number = instance_id(Job(id=record.job_id, project=project_of(project)))
    # The SDKs for Java and Go read it under this name.
    return reply(arguments, "StartJob", {"instanceId": number})


def described(project: str, job: Job, *, full: bool) -> dict[str, Any]:
    """Return a job with its known fields; without ``full`` the long ones are left out."""
    extra = own(job)
    long = ("Code", "Properties", "Packages", "PlanJson") if full else ()
    fields = {
        **{key: extra.get(key) for key in ("ApiType", "EngineVersion", "ClusterId", "Description", *long)},
        "QueueName": job.resource_group or extra.get("QueueName"),
        "JobId": job.id,
        "JobName": job_name(job),
        "ProjectName": project,
        "JobType": job_type(job),
        "Creator": job.user or None,
        "CreateTime": job_created(job),
        "ModifyTime": job.updated,
        "IsCommitted": True,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _started(project: str, name: str, jobs: Sequence[Job], context: Context) -> JobRecord:
    """Return the record of the start: of the created job, of an earlier stream, else a new one."""
    ours = project_of(project)
    for job in jobs:
        if job.state is JobState.QUEUED or job_type(job) == STREAM:
            return JobRecord(job_id=job.id, project=ours)
    kind = OUR_TYPES[job_type(jobs[0])] if jobs else "FlinkStream"
    moment = datetime.fromtimestamp(context.now_ms / 1000, tz=UTC).strftime("%Y%m%dT%H%M%S%f")[:-3]
    job_id = name if not jobs else f"{name[: MAX_ID - len(moment) - 1]}-{moment}"
    return JobRecord(
        job_id=job_id,
        project=ours,
        name=name,
        type=kind,
        created=context.now_ms,
        user=context.caller or None,
    )


def _text(arguments: Arguments, key: str) -> str:
    """Return the parameter ``apiType`` of the field ``ApiType``."""
    return arguments.text(key[0].lower() + key[1:])
