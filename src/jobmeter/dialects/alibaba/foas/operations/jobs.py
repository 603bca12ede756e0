"""Jobs: ListJob, GetJob, and CreateJob and StartJob, which register a job that another system runs.

Fields: the types of the vendor's SDK for Go (``services/foas/struct_job.go``, ``start_job.go``).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from jobmeter.dialects.alibaba.foas.answers import reply
from jobmeter.dialects.alibaba.foas.instances import (
    BATCH,
    OUR_TYPES,
    STREAM,
    choose_job_type,
    compute_instance_id,
    find_jobs,
    list_jobs,
    make_job_not_found,
    name_job,
    read_own_fields,
)
from jobmeter.dialects.alibaba.foas.names import NAME, convert_project
from jobmeter.dialects.alibaba.foas.requests import (
    JOB_PATH,
    JOBS_PATH,
    FlinkJobRequest,
    FlinkPageRequest,
    FlinkProjectRequest,
    decode_object,
    operation,
)
from jobmeter.dialects.base import Context, RecordJobs, Steps, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.errors import ConflictError
from jobmeter.model.job import Job, JobState
from jobmeter.model.record import JobRecord, Records
from jobmeter.query.defaults import find_creation

MAX_ID = 128
_Stored = Annotated[str, "Given back as it is."]


@operation(f"GET {JOBS_PATH}", "jobs:read", by_resource=True)
class ListJob(FlinkPageRequest, frozen=True, kw_only=True):
    """Lists the Flink jobs of a project, each once, newest first."""

    job_name: Annotated[str, "A part of the name."] = ""
    job_type: Annotated[str, Choice((STREAM, BATCH))] = ""
    api_type: Annotated[str, "As it was registered."] = ""
    engine_version: Annotated[str, "As it was registered."] = ""
    cluster_id: Annotated[str, "As it was registered."] = ""
    is_show_full_field: Annotated[bool, "`false` leaves out code, properties, packages and plan."] = True

    def _steps(self) -> Steps:
        project, name = self.project_name, self.job_name.casefold()
        exact = {"ApiType": self.api_type, "EngineVersion": self.engine_version, "ClusterId": self.cluster_id}
        newest: dict[str, Job] = {}
        for job in (yield from list_jobs(project)):
            newest.setdefault(name_job(job), job)
        matching = [
            job
            for job in newest.values()
            if self.job_type in {"", choose_job_type(job)}
            and name in name_job(job).casefold()
            and all(
                not want or str(read_own_fields(job).get(key, "")).casefold() == want.casefold()
                for key, want in exact.items()
            )
        ]
        members = [describe_job(project, job, full=self.is_show_full_field) for job in self.cut_page(matching)]
        return reply(self, "ListJob", {**self.make_paging(len(matching)), "Jobs": {"Job": members}})


@operation(f"GET {JOB_PATH}", "jobs:read", name="GetJob", by_resource=True)
class GetFlinkJob(FlinkJobRequest, frozen=True):
    """Returns one job."""

    def _steps(self) -> Steps:
        project, name = self.project_name, self.job_name
        jobs = yield from find_jobs(project, name)
        if not jobs:
            raise make_job_not_found(project, name)
        return reply(self, "GetJob", {"Job": describe_job(project, jobs[0], full=True)})


@operation(f"POST {JOBS_PATH}", "jobs:write", name="CreateJob")
class CreateFlinkJob(FlinkProjectRequest, frozen=True, kw_only=True):
    """Registers a job that another system will run. The job is waiting."""

    job_name: Annotated[str, "Its name, and the id under which its samples come."]
    job_type: Annotated[str, Choice((STREAM, BATCH))]
    queue_name: Annotated[str, "The resource group."] = ""
    api_type: _Stored = ""
    code: _Stored = ""
    properties: _Stored = ""
    packages: _Stored = ""
    plan_json: _Stored = ""
    engine_version: _Stored = ""
    cluster_id: _Stored = ""
    description: _Stored = ""

    def _steps(self) -> Steps:
        project, name = self.project_name, self.job_name
        if (yield from find_jobs(project, name)):
            raise ConflictError(f"project {project} has a job {name} already")
        stored = {
            "ApiType": self.api_type,
            "Code": self.code,
            "Properties": self.properties,
            "Packages": self.packages,
            "PlanJson": self.plan_json,
            "EngineVersion": self.engine_version,
            "ClusterId": self.cluster_id,
            "QueueName": self.queue_name,
            "Description": self.description,
        }
        record = JobRecord(
            job_id=name,
            project=convert_project(project),
            name=name,
            type=OUR_TYPES[self.job_type],
            state=JobState.QUEUED,
            created=self.context.now_ms,
            user=self.context.caller or None,
            resource_group=self.queue_name or None,
            extra={NAME: {key: value for key, value in stored.items() if value}},
        )
        yield from ask(RecordJobs(Records(jobs=[record])))
        return reply(self, "CreateJob", {})


@operation(f"POST {JOB_PATH}/instance", "jobs:write")
class StartJob(FlinkJobRequest, frozen=True, kw_only=True):
    """Registers that another system runs a job from now on: `{"RequestId", "instanceId"}`.

    A stream that ran before keeps its instance. Each run of a batch job is a separate job here, whose id is
    `EngineJobHandler` of GetInstance.
    """

    parameter_json: Annotated[str, "A JSON object, which is stored."] = ""

    def _steps(self) -> Steps:
        project, name, text = self.project_name, self.job_name, self.parameter_json
        parameters = decode_object(text, "parameterJson", "parameterJson") if text else {}
        jobs = yield from find_jobs(project, name)
        if jobs and choose_job_type(jobs[0]) == STREAM and any(job.state is JobState.RUNNING for job in jobs):
            raise ConflictError(f"the streaming job {name} runs already, and has one instance at a time")
        started = _make_start_record(project, name, jobs, self.context)
        extra = {NAME: {"parameterJson": parameters}} if parameters else None
        record = msgspec.structs.replace(started, state=JobState.RUNNING, start=self.context.now_ms, extra=extra)
        yield from ask(RecordJobs(Records(jobs=[record])))
        number = compute_instance_id(Job(id=record.job_id, project=convert_project(project)))
        # The SDKs for Java and Go read it under this name.
        return reply(self, "StartJob", {"instanceId": number})


def describe_job(project: str, job: Job, *, full: bool) -> dict[str, Any]:
    """Return a job with its known fields; without ``full``, without the long fields."""
    extra = read_own_fields(job)
    long = ("Code", "Properties", "Packages", "PlanJson") if full else ()
    fields = {
        **{key: extra.get(key) for key in ("ApiType", "EngineVersion", "ClusterId", "Description", *long)},
        "QueueName": job.resource_group or extra.get("QueueName"),
        "JobId": job.id,
        "JobName": name_job(job),
        "ProjectName": project,
        "JobType": choose_job_type(job),
        "Creator": job.user or None,
        "CreateTime": find_creation(job),
        "ModifyTime": job.updated,
        "IsCommitted": True,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _make_start_record(project: str, name: str, jobs: Sequence[Job], context: Context) -> JobRecord:
    """Return the record of the start: of the created job, of an earlier stream, or of a new job."""
    ours = convert_project(project)
    for job in jobs:
        if job.state is JobState.QUEUED or choose_job_type(job) == STREAM:
            return JobRecord(job_id=job.id, project=ours)
    kind = OUR_TYPES[choose_job_type(jobs[0])] if jobs else "FlinkStream"
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
