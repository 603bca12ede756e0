"""Instances: ListInstance, GetInstance, GetInstanceRunSummary, BatchGetInstanceRunSummary, ModifyInstanceState.

Parameters and fields: the vendor's pages of ListInstance and BatchGetInstanceRunSummary, and the types of its SDK for
Go (``services/foas/struct_instance.go``).
"""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from jobmeter.dialects.alibaba.common.operation import Lookup
from jobmeter.dialects.alibaba.foas.answers import reply
from jobmeter.dialects.alibaba.foas.instances import (
    BATCH,
    STREAM,
    choose_job_type,
    compute_instance_id,
    find_actual_state,
    find_expected_state,
    find_jobs,
    is_flink,
    list_jobs,
    name_job,
    read_own_fields,
)
from jobmeter.dialects.alibaba.foas.names import METRICS
from jobmeter.dialects.alibaba.foas.requests import (
    INSTANCE_PATH,
    FlinkPageRequest,
    FlinkProjectRequest,
    InstanceRequest,
    operation,
)
from jobmeter.dialects.base import Steps, StopJob, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import Aggregate
from jobmeter.model.job import Job, JobState
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, TimeRange
from jobmeter.query.defaults import find_end
from jobmeter.query.request import By, JobRef, MetricQuery

ARCHIVED_AFTER_MS = 2 * DAY
"""Time in ms from a batch job's end until it counts as archived. A stream is archived by its next instance."""
STATES = ("WAITING", "RUNNING", "PAUSED", "TERMINATED", "SUCCESS", "FAILED", "UNKNOWN")
DELAY = METRICS["delay"]
DELAY_SPAN_MS = 5 * MINUTE
STORED_FIELDS = ("ApiType", "Code", "Properties", "Packages", "PlanJson", "EngineVersion", "ClusterId", "QueueName")
"""Fields of a registered job that its record stores and foas returns verbatim."""

_Time = int | None


@operation("GET /api/v2/projects/{projectName}/instances", "jobs:read", by_resource=True)
class ListInstance(FlinkPageRequest, frozen=True, kw_only=True):
    """Lists the instances of a project, newest first.

    `Id` is the number for GetInstanceMetric, `EngineJobHandler` the id of the job here.
    """

    job_type: Annotated[str, Choice((STREAM, BATCH))]
    job_name: Annotated[str, "The id of a job, or its name. Default: all Flink jobs."] = ""
    actual_state: Annotated[str, Choice(STATES)] = ""
    expect_state: Annotated[str, Choice(STATES)] = ""
    api_type: Annotated[str, "`SQL` or `DATASTREAM`, as the job was registered."] = ""
    start_begin_ts: Annotated[_Time, "Started then or later, in milliseconds.", Meta(ge=0, le=MAX_TIME_MS)] = None
    start_end_ts: Annotated[_Time, "Started then or earlier.", Meta(ge=0, le=MAX_TIME_MS)] = None
    end_begin_ts: Annotated[_Time, "Ended then or later.", Meta(ge=0, le=MAX_TIME_MS)] = None
    end_end_ts: Annotated[_Time, "Ended then or earlier.", Meta(ge=0, le=MAX_TIME_MS)] = None
    is_archived: Annotated[bool, "`true`: streams that were restarted, batch runs that ended 2 days ago."] = False

    def _steps(self) -> Steps:
        project, name = self.project_name, self.job_name
        jobs = yield from find_jobs(project, name) if name else list_jobs(project)
        archived = _find_archived(jobs, self.context.now_ms)
        matching = [job for job in jobs if self._matches_filters(job, job.id in archived)]
        members = [make_instance(project, job) for job in self.cut_page(matching)]
        return reply(self, "ListInstance", {**self.make_paging(len(matching)), "Instances": {"Instance": members}})

    def _matches_filters(self, job: Job, archived: bool) -> bool:
        """Return True for a job that matches the call's filters."""
        return (
            is_flink(job)
            and archived == self.is_archived
            and choose_job_type(job) == self.job_type
            and self.actual_state in {"", find_actual_state(job)}
            and self.expect_state in {"", find_expected_state(job)}
            and self.api_type.upper() in {"", str(read_own_fields(job).get("ApiType", "")).upper()}
            and _lies_between(
                job.start if job.start is not None else job.first_sample, self.start_begin_ts, self.start_end_ts
            )
            and _lies_between(find_end(job), self.end_begin_ts, self.end_end_ts)
        )


@operation(f"GET {INSTANCE_PATH}", "jobs:read", by_resource=True)
class GetInstance(InstanceRequest, frozen=True):
    """Returns one instance; `InputDelay` is the latest `delay` of a running one."""

    def _steps(self) -> Steps:
        job = yield from self.find_instance()
        delay = yield from _delay(job, self.context.now_ms)
        return reply(self, "GetInstance", {"Instance": {**make_instance(self.project_name, job), **delay}})


@operation(f"GET {INSTANCE_PATH}/runsummary", "jobs:read", by_resource=True)
class GetInstanceRunSummary(InstanceRequest, frozen=True):
    """Returns the state of an instance, its last error, and its delay."""

    def _steps(self) -> Steps:
        job = yield from self.find_instance()
        delay = yield from _delay(job, self.context.now_ms)
        return reply(self, "GetInstanceRunSummary", {"RunSummary": {**make_summary(self.job_name, job), **delay}})


@operation("GET /api/v2/projects/{projectName}/runsummary", "jobs:read", by_resource=True)
class BatchGetInstanceRunSummary(FlinkProjectRequest, frozen=True, kw_only=True):
    """Returns the summaries of several jobs; unknown names are left out."""

    job_type: Annotated[str, Choice((STREAM, BATCH))]
    job_names: Annotated[tuple[str, ...], "Comma separated."]

    def _steps(self) -> Steps:
        members = []
        for name in self.job_names:
            jobs = yield from find_jobs(self.project_name, name)
            jobs = [job for job in jobs if choose_job_type(job) == self.job_type]
            jobs = [job for job in jobs if job.state is JobState.RUNNING] or jobs
            for job in jobs if self.job_type == BATCH else jobs[:1]:
                delay = yield from _delay(job, self.context.now_ms)
                members.append({**make_summary(name, job), **delay})
        return reply(self, "BatchGetInstanceRunSummary", {"RunSummarys": {"RunSummary": members}})


@operation(f"PUT {INSTANCE_PATH}/expectstate", "jobs:write")
class ModifyInstanceState(InstanceRequest, frozen=True, kw_only=True):
    """Marks an instance as stopped. Jobmeter does not end processes: the system that runs the job does."""

    expect_state: Annotated[str, "`TERMINATED`.", Choice(STATES, shown=False)]

    def _steps(self) -> Steps:
        if self.expect_state != "TERMINATED":
            raise InvalidRequestError(
                f"expectState {self.expect_state} cannot be reached here: Jobmeter does not run jobs, it notes that one"
                " was stopped (TERMINATED)",
                "expectState",
            )
        job = yield from self.find_instance()
        yield from ask(StopJob(JobRef(job.id, job.project)))
        return reply(self, "ModifyInstanceState", {})


def make_instance(project: str, job: Job) -> dict[str, Any]:
    """Return an instance with its known fields; times in milliseconds."""
    fields = {
        **{name: value for name, value in read_own_fields(job).items() if name in STORED_FIELDS},
        "Id": compute_instance_id(job),
        "ProjectName": project,
        "JobName": name_job(job),
        "ActualState": find_actual_state(job),
        "ExpectState": find_expected_state(job),
        "JobType": choose_job_type(job),
        "Starter": job.user or None,
        "StartTime": job.start if job.start is not None else job.first_sample,
        "EndTime": find_end(job),
        "EngineJobHandler": job.id,
        **_error(job),
    }
    if job.resource_group:
        fields.setdefault("QueueName", job.resource_group)
    return {name: value for name, value in fields.items() if value is not None}


def make_summary(name: str, job: Job) -> dict[str, Any]:
    """Return the RunSummary of an instance."""
    return {
        "Id": compute_instance_id(job),
        "JobName": name,
        "ActualState": find_actual_state(job),
        "ExpectState": find_expected_state(job),
        "EngineJobHandler": job.id,
        **_error(job),
    }


def _error(job: Job) -> dict[str, Any]:
    if not job.error:
        return {}
    end = find_end(job)
    return {"LastErrorMessage": job.error, **({} if end is None else {"LastErrorTime": end})}


def _delay(job: Job, now_ms: int) -> Lookup[dict[str, int]]:
    """Return the business delay in milliseconds of a running instance, if it was reported lately."""
    if job.state is not JobState.RUNNING:
        return {}
    result = yield from ask(
        MetricQuery(
            subject=JobRef(job.id, job.project),
            metrics=(DELAY,),
            range=TimeRange(max(now_ms - DELAY_SPAN_MS, 0), now_ms + 1),
            step_ms=MINUTE,
            by=By.JOB,
            aggregate=Aggregate.MAX,
        )
    )
    return {"InputDelay": round(float(result.lines[0].value[-1]))} if result.lines else {}


def _find_archived(jobs: Sequence[Job], now_ms: int) -> set[str]:
    """Return the ids of archived jobs: streams with a newer instance of the same name, and old batch runs."""
    newest: set[str] = set()
    archived: set[str] = set()
    for job in jobs:
        if choose_job_type(job) == BATCH:
            end = find_end(job)
            if end is not None and end <= now_ms - ARCHIVED_AFTER_MS:
                archived.add(job.id)
        elif name_job(job) in newest:
            archived.add(job.id)
        newest.add(name_job(job))
    return archived


def _lies_between(time: int | None, first: int | None, last: int | None) -> bool:
    """Return True for a time from the first bound to the second; always True without bounds."""
    if first is None and last is None:
        return True
    return time is not None and (first or 0) <= time <= (MAX_TIME_MS if last is None else last)
