"""Instances: ListInstance, GetInstance, GetInstanceRunSummary, BatchGetInstanceRunSummary, ModifyInstanceState.

Parameters and fields: the vendor's pages of ListInstance and BatchGetInstanceRunSummary, and the types of its SDK for
Go (``services/foas/struct_instance.go``).
"""

from collections.abc import Callable, Sequence
from typing import Any

from jobmeter.dialects.alibaba.common.operation import Arguments, Lookup, in_body, in_path, in_query
from jobmeter.dialects.alibaba.foas.answers import reply
from jobmeter.dialects.alibaba.foas.bodies import operation
from jobmeter.dialects.alibaba.foas.instances import (
    BATCH,
    CURRENT,
    OUR_TYPES,
    STREAM,
    actual_state,
    expected_state,
    instance_id,
    instance_of,
    is_flink,
    job_name,
    job_type,
    jobs_named,
    jobs_of,
    own,
)
from jobmeter.dialects.alibaba.foas.names import METRICS
from jobmeter.dialects.base import Steps, StopJob, execute
from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import Aggregate
from jobmeter.model.job import Job, JobState
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, TimeRange
from jobmeter.query.defaults import job_end
from jobmeter.query.request import By, JobRef, MetricQuery

LARGEST_ID = 2**63 - 1
DEFAULT_PAGE, LARGEST_PAGE = 10, 1_000
ARCHIVED_AFTER_MS = 2 * DAY
"""Time after its end at which a batch job's instance is archived; a stream's is archived by a newer one."""
STATES = ("WAITING", "RUNNING", "PAUSED", "TERMINATED", "SUCCESS", "FAILED", "UNKNOWN")
DELAY = METRICS["delay"]
DELAY_SPAN_MS = 5 * MINUTE
STORED_FIELDS = ("ApiType", "Code", "Properties", "Packages", "PlanJson", "EngineVersion", "ClusterId", "QueueName")
"""Fields of a registered job that its record stores and foas returns verbatim."""

PROJECT = in_path("projectName", "The project; `_` stands for `-`.")
JOB_NAME = in_path("jobName", "The id of a job, or its name.")
ID = in_path("instanceId", "An instance; `-1`: the running one of a streaming job, or its last.")
_TYPE = in_query("jobType", f"`{STREAM}` or `{BATCH}`, in any letter case.", required=True)
PAGES = (
    in_query("pageIndex", "From 1 (default)."),
    in_query("pageSize", f"{DEFAULT_PAGE} by default, at most {LARGEST_PAGE}."),
)
INSTANCE_PATH = "/api/v2/projects/{projectName}/jobs/{jobName}/instances/{instanceId}"


@operation(
    "GET /api/v2/projects/{projectName}/instances",
    "jobs:read",
    PROJECT,
    _TYPE,
    in_query("jobName", "The id of a job, or its name. Default: all Flink jobs."),
    in_query("actualState", "`WAITING`, `RUNNING`, `TERMINATED`, `SUCCESS` or `FAILED`."),
    in_query("expectState", "As `actualState`."),
    in_query("apiType", "`SQL` or `DATASTREAM`, as the job was registered."),
    in_query("startBeginTs", "Started then or later, in milliseconds."),
    in_query("startEndTs", "Started then or earlier."),
    in_query("endBeginTs", "Ended then or later."),
    in_query("endEndTs", "Ended then or earlier."),
    in_query("isArchived", "`true`: streams that were restarted, batch runs that ended 2 days ago."),
    *PAGES,
    by_resource=True,
)
def list_instance(arguments: Arguments) -> Steps:
    """Lists the instances of a project, newest first.

    `Id` is the number for GetInstanceMetric, `EngineJobHandler` the id of the job here.
    """
    project, name = arguments.required("projectName"), arguments.text("jobName")
    arguments.required("jobType")
    matches = _filter(arguments)
    index, size = page_of(arguments)
    jobs = yield from jobs_named(project, name) if name else jobs_of(project)
    archived = _archived(jobs, arguments.context.now_ms)
    matching = [job for job in jobs if matches(job, job.id in archived)]
    members = [instance(project, job) for job in matching[(index - 1) * size : index * size]]
    body = {**paging(index, size, len(matching)), "Instances": {"Instance": members}}
    return reply(arguments, "ListInstance", body)


@operation(f"GET {INSTANCE_PATH}", "jobs:read", PROJECT, JOB_NAME, ID, by_resource=True)
def get_instance(arguments: Arguments) -> Steps:
    """Returns one instance; `InputDelay` is the latest `delay` of a running one."""
    project, _, job = yield from job_of(arguments)
    delay = yield from _delay(job, arguments.context.now_ms)
    return reply(arguments, "GetInstance", {"Instance": {**instance(project, job), **delay}})


@operation(f"GET {INSTANCE_PATH}/runsummary", "jobs:read", PROJECT, JOB_NAME, ID, by_resource=True)
def get_instance_run_summary(arguments: Arguments) -> Steps:
    """Returns the state of an instance, its last error, and its delay."""
    _, name, job = yield from job_of(arguments)
    delay = yield from _delay(job, arguments.context.now_ms)
    return reply(arguments, "GetInstanceRunSummary", {"RunSummary": {**summary(name, job), **delay}})


@operation(
    "GET /api/v2/projects/{projectName}/runsummary",
    "jobs:read",
    PROJECT,
    in_query("jobNames", "Comma separated.", required=True),
    _TYPE,
    by_resource=True,
)
def batch_get_instance_run_summary(arguments: Arguments) -> Steps:
    """Returns the summaries of several jobs; unknown names are left out."""
    project, kind = arguments.required("projectName"), arguments.required("jobType")
    kind = arguments.word("jobType", OUR_TYPES, kind)
    arguments.required("jobNames")
    members = []
    for name in arguments.names("jobNames"):
        jobs = yield from jobs_named(project, name)
        jobs = [job for job in jobs if job_type(job) == kind]
        jobs = [job for job in jobs if job.state is JobState.RUNNING] or jobs
        for job in jobs if kind == BATCH else jobs[:1]:
            delay = yield from _delay(job, arguments.context.now_ms)
            members.append({**summary(name, job), **delay})
    return reply(arguments, "BatchGetInstanceRunSummary", {"RunSummarys": {"RunSummary": members}})


@operation(
    f"PUT {INSTANCE_PATH}/expectstate",
    "jobs:write",
    PROJECT,
    JOB_NAME,
    ID,
    in_body("expectState", "`TERMINATED`.", required=True),
)
def modify_instance_state(arguments: Arguments) -> Steps:
    """Marks an instance as stopped. Jobmeter does not end processes: the system that runs the job does."""
    state = arguments.word("expectState", STATES) or arguments.required("expectState")
    if state != "TERMINATED":
        raise InvalidRequestError(
            f"expectState {state} cannot be reached here: Jobmeter does not run jobs, it notes that one was stopped"
            " (TERMINATED)",
            "expectState",
        )
    _, _, job = yield from job_of(arguments)
    yield from execute(StopJob(JobRef(job.id, job.project)))
    return reply(arguments, "ModifyInstanceState", {})


def page_of(arguments: Arguments) -> tuple[int, int]:
    """Return the number of the page, from 1, and its size."""
    index = arguments.integer("pageIndex", 1, 1, 10**9)
    return index, arguments.integer("pageSize", DEFAULT_PAGE, 1, LARGEST_PAGE)


def paging(index: int, size: int, total: int) -> dict[str, Any]:
    """Return the fields of a page."""
    return {"PageIndex": index, "PageSize": size, "TotalPage": -(-total // size), "TotalCount": total}


def instance(project: str, job: Job) -> dict[str, Any]:
    """Return an instance with its known fields; times in milliseconds."""
    fields = {
        **{name: value for name, value in own(job).items() if name in STORED_FIELDS},
        "Id": instance_id(job),
        "ProjectName": project,
        "JobName": job_name(job),
        "ActualState": actual_state(job),
        "ExpectState": expected_state(job),
        "JobType": job_type(job),
        "Starter": job.user or None,
        "StartTime": job.start if job.start is not None else job.first_sample,
        "EndTime": job_end(job),
        "EngineJobHandler": job.id,
        **_error(job),
    }
    if job.resource_group:
        fields.setdefault("QueueName", job.resource_group)
    return {name: value for name, value in fields.items() if value is not None}


def summary(name: str, job: Job) -> dict[str, Any]:
    """Return the RunSummary of an instance."""
    return {
        "Id": instance_id(job),
        "JobName": name,
        "ActualState": actual_state(job),
        "ExpectState": expected_state(job),
        "EngineJobHandler": job.id,
        **_error(job),
    }


def job_of(arguments: Arguments) -> Lookup[tuple[str, str, Job]]:
    """Return the project and the job's name of a call, unchanged, and the instance. Raises as ``instance_of``."""
    project, name = arguments.required("projectName"), arguments.required("jobName")
    number = arguments.integer("instanceId", None, CURRENT, LARGEST_ID)
    return project, name, (yield from instance_of(project, name, number))


def _error(job: Job) -> dict[str, Any]:
    if not job.error:
        return {}
    end = job_end(job)
    return {"LastErrorMessage": job.error, **({} if end is None else {"LastErrorTime": end})}


def _delay(job: Job, now_ms: int) -> Lookup[dict[str, int]]:
    """Return the business delay in milliseconds of a running instance, if it was reported lately."""
    if job.state is not JobState.RUNNING:
        return {}
    result = yield from execute(
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


def _archived(jobs: Sequence[Job], now_ms: int) -> set[str]:
    """Return the ids of archived jobs: streams with a newer instance of the same name, and old batch runs."""
    newest: set[str] = set()
    archived: set[str] = set()
    for job in jobs:
        if job_type(job) == BATCH:
            end = job_end(job)
            if end is not None and end <= now_ms - ARCHIVED_AFTER_MS:
                archived.add(job.id)
        elif job_name(job) in newest:
            archived.add(job.id)
        newest.add(job_name(job))
    return archived


def _filter(arguments: Arguments) -> Callable[[Job, bool], bool]:
    """Return a predicate for jobs that match the call's filters."""
    kind = arguments.word("jobType", OUR_TYPES)
    actual, expected = arguments.word("actualState", STATES), arguments.word("expectState", STATES)
    api = arguments.text("apiType").upper()
    archive = arguments.flag("isArchived")
    start, end = _bounds(arguments, "start"), _bounds(arguments, "end")

    def fits(job: Job, archived: bool) -> bool:
        return (
            is_flink(job)
            and archived == archive
            and job_type(job) == kind
            and actual in {"", actual_state(job)}
            and expected in {"", expected_state(job)}
            and api in {"", str(own(job).get("ApiType", "")).upper()}
            and _inside(job.start if job.start is not None else job.first_sample, start)
            and _inside(job_end(job), end)
        )

    return fits


def _bounds(arguments: Arguments, name: str) -> tuple[int, int] | None:
    first, last = f"{name}BeginTs", f"{name}EndTs"
    if not arguments.text(first) and not arguments.text(last):
        return None
    return arguments.integer(first, 0, 0, MAX_TIME_MS), arguments.integer(last, MAX_TIME_MS, 0, MAX_TIME_MS)


def _inside(time: int | None, bounds: tuple[int, int] | None) -> bool:
    return bounds is None or (time is not None and bounds[0] <= time <= bounds[1])
