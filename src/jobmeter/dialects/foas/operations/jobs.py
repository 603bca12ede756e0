"""Jobs: ListJob, GetJob, and CreateJob and StartJob as the registration of a job that something else runs.

Fields: the types of the vendor's SDK for Go (``services/foas/struct_job.go``, ``start_job.go``).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments
from jobmeter.dialects.base import Context, Operation, Parameter, RecordJobs, Steps, execute
from jobmeter.dialects.foas.answers import reply
from jobmeter.dialects.foas.bodies import arguments, json_object
from jobmeter.dialects.foas.instances import (
    BATCH,
    STREAM,
    TYPES,
    instance_id,
    job_name,
    job_type,
    jobs_named,
    jobs_of,
)
from jobmeter.dialects.foas.names import JOB, NAME, project_of
from jobmeter.dialects.foas.operations.instances import STORED_FIELDS, page_of, paging
from jobmeter.errors import ConflictError, NotFoundError
from jobmeter.model.job import Job, JobState
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.defaults import job_created

WORDS = {STREAM: STREAM, BATCH: BATCH}
OUR_TYPES = {theirs: ours for ours, theirs in TYPES.items()}
MAX_ID = 128


def list_job(call: Call, context: Context) -> Steps:
    """The Flink jobs of a project, each by its newest instance."""
    given = arguments(call, context)
    project = given.required("projectName")
    kind, name = given.choice("jobType", WORDS, ""), given.text("jobName").casefold()
    full = given.flag("isShowFullField", default=True)
    exact = {key: given.text(key[0].lower() + key[1:]).casefold() for key in ("ApiType", "EngineVersion", "ClusterId")}
    index, size = page_of(given)
    newest: dict[str, Job] = {}
    for job in (yield from jobs_of(project)):
        newest.setdefault(job_name(job), job)
    matching = [
        job
        for job in newest.values()
        if kind in {"", job_type(job)}
        and name in job_name(job).casefold()
        and all(not want or str(_extra(job).get(key, "")).casefold() == want for key, want in exact.items())
    ]
    members = [described(project, job, full=full) for job in matching[(index - 1) * size : index * size]]
    return reply(call, context, "ListJob", {**paging(index, size, len(matching)), "Jobs": {"Job": members}})


def get_job(call: Call, context: Context) -> Steps:
    """One job, by its newest instance."""
    given = arguments(call, context)
    project, name = given.required("projectName"), given.required("jobName")
    jobs = yield from jobs_named(project, name)
    if not jobs:
        raise _job_not_found(project, name)
    return reply(call, context, "GetJob", {"Job": described(project, jobs[0], full=True)})


def create_job(call: Call, context: Context) -> Steps:
    """A record of a job that waits for its start."""
    given = arguments(call, context)
    project, name = given.required("projectName"), given.required("jobName")
    given.required("jobType")
    kind = OUR_TYPES[given.choice("jobType", WORDS, STREAM)]
    if (yield from jobs_named(project, name)):
        raise ConflictError(f"project {project} has a job {name} already")
    matching = {key: given.text(key[0].lower() + key[1:]) for key in (*STORED_FIELDS, "Description")}
    record = JobRecord(
        job_id=name,
        project=project_of(project),
        name=name,
        type=kind,
        state=JobState.QUEUED,
        created=context.now_ms,
        user=context.caller or None,
        resource_group=matching["QueueName"] or None,
        extra={NAME: {key: value for key, value in matching.items() if value}},
    )
    yield from execute(RecordJobs(Records(jobs=[record])))
    return reply(call, context, "CreateJob", {})


def start_job(call: Call, context: Context) -> Steps:
    """A record that a job runs, from now on; the answer names its instance."""
    given = arguments(call, context)
    project, name = given.required("projectName"), given.required("jobName")
    parameters = _parameters(given)
    jobs = yield from jobs_named(project, name)
    if jobs and job_type(jobs[0]) == STREAM and any(job.state is JobState.RUNNING for job in jobs):
        raise ConflictError(f"the streaming job {name} runs already, and has one instance at a time")
    started = _started(project, name, jobs, context)
    extra = {NAME: {"parameterJson": parameters}} if parameters else None
    record = msgspec.structs.replace(started, state=JobState.RUNNING, start=context.now_ms, extra=extra)
    yield from execute(RecordJobs(Records(jobs=[record])))
    number = instance_id(Job(id=record.job_id, project=project_of(project)))
    # The SDKs for Java and Go read it under this name.
    return reply(call, context, "StartJob", {"instanceId": number})


def described(project: str, job: Job, *, full: bool) -> dict[str, Any]:
    """A job with the fields that are known; without ``full`` the long ones are left out."""
    extra = _extra(job)
    long = {} if not full else {key: extra.get(key) for key in ("Code", "Properties", "Packages", "PlanJson")}
    fields = {
        **{key: extra.get(key) for key in ("ApiType", "EngineVersion", "ClusterId", "Description")},
        **long,
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
    """The record of the start: of the created job, of an earlier stream, else a new one."""
    ours = project_of(project)
    for job in jobs:
        if job.state is JobState.QUEUED or job_type(job) == STREAM:
            return JobRecord(job_id=job.id, project=ours)
    kind = OUR_TYPES[job_type(jobs[0])] if jobs else "FlinkStream"
    moment = datetime.fromtimestamp(context.now_ms / 1000, tz=UTC).strftime("%Y%m%dT%H%M%S%f")[:-3]
    job_id = name if not jobs else f"{name[: MAX_ID - len(moment) - 1]}-{moment}"
    return JobRecord(
        job_id=job_id, project=ours, name=name, type=kind, created=context.now_ms, user=context.caller or None
    )


def _parameters(given: Arguments) -> dict[str, Any]:
    text = given.text("parameterJson")
    return json_object(text, "parameterJson", "parameterJson") if text else {}


def _extra(job: Job) -> dict[str, Any]:
    return job.extra.get(NAME, {})


def _job_not_found(project: str, name: str) -> NotFoundError:
    return NotFoundError(f"The specified job {name} does not exist in project {project}.", JOB, name)


_PROJECT = Parameter("projectName", "path", "The project; `_` stands for `-`.", required=True)
_NAME = Parameter("jobName", "path", "The id of a job, or its name.", required=True)
_STORED_FIELDS = "Given back as it is."

OPERATIONS = (
    Operation(
        name="ListJob",
        action="jobs:read",
        method="GET",
        path="/api/v2/projects/{projectName}/jobs",
        answer=list_job,
        parameters=(
            _PROJECT,
            Parameter("jobName", "query", "A part of the name."),
            Parameter("jobType", "query", f"`{STREAM}` or `{BATCH}`."),
            Parameter("apiType", "query", "As it was registered."),
            Parameter("engineVersion", "query", "As it was registered."),
            Parameter("clusterId", "query", "As it was registered."),
            Parameter("isShowFullField", "query", "`false` leaves out code, properties, packages and plan."),
            Parameter("pageIndex", "query", "From 1 (default)."),
            Parameter("pageSize", "query", "10 by default, at most 1000."),
        ),
        text="The Flink jobs of a project, each once, newest first.",
    ),
    Operation(
        name="GetJob",
        action="jobs:read",
        method="GET",
        path="/api/v2/projects/{projectName}/jobs/{jobName}",
        answer=get_job,
        parameters=(_PROJECT, _NAME),
        text="One job.",
    ),
    Operation(
        name="CreateJob",
        action="jobs:write",
        method="POST",
        path="/api/v2/projects/{projectName}/jobs",
        answer=create_job,
        parameters=(
            _PROJECT,
            Parameter("jobName", "body", "Its name, and the id under which its samples come.", required=True),
            Parameter("jobType", "body", f"`{STREAM}` or `{BATCH}`.", required=True),
            Parameter("queueName", "body", "The resource group."),
            *(
                Parameter(name, "body", _STORED_FIELDS)
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
        ),
        text="Registers a job that something else is going to run: it waits.",
    ),
    Operation(
        name="StartJob",
        action="jobs:write",
        method="POST",
        path="/api/v2/projects/{projectName}/jobs/{jobName}/instance",
        answer=start_job,
        parameters=(_PROJECT, _NAME, Parameter("parameterJson", "body", "A JSON object; kept.")),
        text=(
            'Registers that a job runs from now on, as something else runs it: `{"RequestId", "instanceId"}`. A stream '
            "that ran before is the same instance again; a run of a batch job is a job of ours of its own, whose id is "
            "`EngineJobHandler` of GetInstance."
        ),
    ),
)
