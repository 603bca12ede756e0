"""Instances: ListInstance, GetInstance, GetInstanceRunSummary, BatchGetInstanceRunSummary, ModifyInstanceState.

Parameters and fields: the vendor's pages of ListInstance and BatchGetInstanceRunSummary, and the types of its SDK for
Go (``services/foas/struct_instance.go``).
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, StopJob, execute
from jobmeter.dialects.foas.answers import reply
from jobmeter.dialects.foas.bodies import arguments
from jobmeter.dialects.foas.instances import (
    BATCH,
    CURRENT,
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
)
from jobmeter.dialects.foas.names import METRICS, NAME
from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import Aggregate
from jobmeter.model.job import Job, JobState
from jobmeter.model.question import Question
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, TimeRange
from jobmeter.query.defaults import job_end
from jobmeter.query.request import By, JobRef, MetricQuery

LARGEST_ID = 2**63 - 1
DEFAULT_PAGE, LARGEST_PAGE = 10, 1_000
ARCHIVED_AFTER_MS = 2 * DAY
"""A batch job's instance is archived that long after its end; a stream's as soon as there is a newer one."""
TYPES = {STREAM: STREAM, BATCH: BATCH}
STATES = {state: state for state in ("WAITING", "RUNNING", "PAUSED", "TERMINATED", "SUCCESS", "FAILED", "UNKNOWN")}
DELAY = METRICS["delay"]
DELAY_SPAN_MS = 5 * MINUTE
STORED_FIELDS = ("ApiType", "Code", "Properties", "Packages", "PlanJson", "EngineVersion", "ClusterId", "QueueName")
"""Fields of a registered job that its record stores and foas returns verbatim."""


def list_instance(call: Call, context: Context) -> Steps:
    """The instances of a project, newest first, filtered and by page."""
    given = arguments(call, context)
    project, name = given.required("projectName"), given.text("jobName")
    given.required("jobType")
    matches = _filter(given)
    index, size = page_of(given)
    jobs = yield from jobs_named(project, name) if name else jobs_of(project)
    archived = _archived(jobs, context.now_ms)
    matching = [job for job in jobs if matches(job, job.id in archived)]
    members = [instance(project, job) for job in matching[(index - 1) * size : index * size]]
    return reply(
        call, context, "ListInstance", {**paging(index, size, len(matching)), "Instances": {"Instance": members}}
    )


def get_instance(call: Call, context: Context) -> Steps:
    """One instance; -1 is the running one of a streaming job, or its last."""
    project, _, job = yield from _job_of(arguments(call, context))
    delay = yield from _delay(job, context)
    return reply(call, context, "GetInstance", {"Instance": {**instance(project, job), **delay}})


def get_instance_run_summary(call: Call, context: Context) -> Steps:
    """Whether an instance runs, and its delay."""
    _, name, job = yield from _job_of(arguments(call, context))
    delay = yield from _delay(job, context)
    return reply(call, context, "GetInstanceRunSummary", {"RunSummary": {**summary(name, job), **delay}})


def batch_get_instance_run_summary(call: Call, context: Context) -> Steps:
    """The summaries of several jobs of one type; jobs that do not exist, or are of the other type, are left out."""
    given = arguments(call, context)
    project, kind = given.required("projectName"), given.required("jobType")
    kind = given.choice("jobType", TYPES, kind)
    given.required("jobNames")
    members = []
    for name in given.names("jobNames"):
        jobs = yield from jobs_named(project, name)
        jobs = [job for job in jobs if job_type(job) == kind]
        jobs = [job for job in jobs if job.state is JobState.RUNNING] or jobs
        for job in jobs if kind == BATCH else jobs[:1]:
            delay = yield from _delay(job, context)
            members.append({**summary(name, job), **delay})
    return reply(call, context, "BatchGetInstanceRunSummary", {"RunSummarys": {"RunSummary": members}})


def modify_instance_state(call: Call, context: Context) -> Steps:
    """Record that an instance was stopped."""
    given = arguments(call, context)
    state = given.choice("expectState", STATES, "") or given.required("expectState")
    if state != "TERMINATED":
        raise InvalidRequestError(
            f"expectState {state} cannot be reached here: Jobmeter does not run jobs, it notes that one was stopped"
            " (TERMINATED)",
            "expectState",
        )
    _, _, job = yield from _job_of(given)
    yield from execute(StopJob(JobRef(job.id, job.project)))
    return reply(call, context, "ModifyInstanceState", {})


def page_of(given: Arguments) -> tuple[int, int]:
    """The number of the page, from 1, and its size."""
    index = given.integer("pageIndex", 1, 1, 10**9)
    return index, given.integer("pageSize", DEFAULT_PAGE, 1, LARGEST_PAGE)


def paging(index: int, size: int, total: int) -> dict[str, Any]:
    """The fields of a page."""
    return {"PageIndex": index, "PageSize": size, "TotalPage": -(-total // size), "TotalCount": total}


def instance(project: str, job: Job) -> dict[str, Any]:
    """An instance, with the fields that are known; times in milliseconds."""
    fields = {
        **{name: value for name, value in job.extra.get(NAME, {}).items() if name in STORED_FIELDS},
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
    """The RunSummary of an instance."""
    return {
        "Id": instance_id(job),
        "JobName": name,
        "ActualState": actual_state(job),
        "ExpectState": expected_state(job),
        "EngineJobHandler": job.id,
        **_error(job),
    }


def _job_of(given: Arguments) -> Generator[Question[Any], Any, tuple[str, str, Job]]:
    project, name = given.required("projectName"), given.required("jobName")
    number = given.integer("instanceId", None, CURRENT, LARGEST_ID)
    return project, name, (yield from instance_of(project, name, number))


def _error(job: Job) -> dict[str, Any]:
    if not job.error:
        return {}
    end = job_end(job)
    return {"LastErrorMessage": job.error, **({} if end is None else {"LastErrorTime": end})}


def _delay(job: Job, context: Context) -> Generator[Question[Any], Any, dict[str, int]]:
    """The business delay in milliseconds of an instance that runs, where it was reported lately."""
    if job.state is not JobState.RUNNING:
        return {}
    result = yield from execute(
        MetricQuery(
            subject=JobRef(job.id, job.project),
            metrics=(DELAY,),
            range=TimeRange(max(context.now_ms - DELAY_SPAN_MS, 0), context.now_ms + 1),
            step_ms=MINUTE,
            by=By.JOB,
            aggregate=Aggregate.MAX,
        )
    )
    return {"InputDelay": round(float(result.lines[0].value[-1]))} if result.lines else {}


def _archived(jobs: Sequence[Job], now_ms: int) -> set[str]:
    """The ids of those that are archived: streams that a newer instance of the name follows, and old batch runs."""
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


def _filter(given: Arguments) -> Callable[[Job, bool], bool]:
    """A predicate for jobs that match the call's filters."""
    kind = given.choice("jobType", TYPES, "")
    actual = given.choice("actualState", STATES, "")
    expected = given.choice("expectState", STATES, "")
    api = given.text("apiType").upper()
    archive = given.flag("isArchived")
    start = _bounds(given, "start")
    end = _bounds(given, "end")

    def fits(job: Job, archived: bool) -> bool:
        return (
            is_flink(job)
            and archived == archive
            and job_type(job) == kind
            and actual in {"", actual_state(job)}
            and expected in {"", expected_state(job)}
            and api in {"", str(job.extra.get(NAME, {}).get("ApiType", "")).upper()}
            and _inside(job.start if job.start is not None else job.first_sample, start)
            and _inside(job_end(job), end)
        )

    return fits


def _bounds(given: Arguments, name: str) -> tuple[int, int] | None:
    first, last = f"{name}BeginTs", f"{name}EndTs"
    if not given.text(first) and not given.text(last):
        return None
    return given.integer(first, 0, 0, MAX_TIME_MS), given.integer(last, MAX_TIME_MS, 0, MAX_TIME_MS)


def _inside(time: int | None, bounds: tuple[int, int] | None) -> bool:
    return bounds is None or (time is not None and bounds[0] <= time <= bounds[1])


_PROJECT = Parameter("projectName", "path", "The project; `_` stands for `-`.", required=True)
_NAME = Parameter("jobName", "path", "The id of a job, or its name.", required=True)
_ID = Parameter(
    "instanceId", "path", "An instance; `-1`: the running one of a streaming job, or its last.", required=True
)
_TYPE = Parameter("jobType", "query", f"`{STREAM}` or `{BATCH}`, in any letter case.", required=True)
_INSTANCE = "/api/v2/projects/{projectName}/jobs/{jobName}/instances/{instanceId}"

OPERATIONS = (
    Operation(
        name="ListInstance",
        action="jobs:read",
        method="GET",
        path="/api/v2/projects/{projectName}/instances",
        answer=list_instance,
        parameters=(
            _PROJECT,
            _TYPE,
            Parameter("jobName", "query", "The id of a job, or its name. Default: all Flink jobs."),
            Parameter("actualState", "query", "`WAITING`, `RUNNING`, `TERMINATED`, `SUCCESS` or `FAILED`."),
            Parameter("expectState", "query", "As `actualState`."),
            Parameter("apiType", "query", "`SQL` or `DATASTREAM`, as the job was registered."),
            Parameter("startBeginTs", "query", "Started then or later, in milliseconds."),
            Parameter("startEndTs", "query", "Started then or earlier."),
            Parameter("endBeginTs", "query", "Ended then or later."),
            Parameter("endEndTs", "query", "Ended then or earlier."),
            Parameter(
                "isArchived", "query", "`true`: streams that were started anew, batch runs that ended 2 days ago."
            ),
            Parameter("pageIndex", "query", "From 1 (default)."),
            Parameter("pageSize", "query", f"{DEFAULT_PAGE} by default, at most {LARGEST_PAGE}."),
        ),
        text=(
            "The instances of a project, newest first. `Id` is what GetInstanceMetric takes, `EngineJobHandler` the id "
            "of the job here."
        ),
    ),
    Operation(
        name="GetInstance",
        action="jobs:read",
        method="GET",
        path=_INSTANCE,
        answer=get_instance,
        parameters=(_PROJECT, _NAME, _ID),
        text="One instance; `InputDelay` is the latest `delay` of one that runs.",
    ),
    Operation(
        name="GetInstanceRunSummary",
        action="jobs:read",
        method="GET",
        path=f"{_INSTANCE}/runsummary",
        answer=get_instance_run_summary,
        parameters=(_PROJECT, _NAME, _ID),
        text="Whether an instance runs, its last error, and how late it is.",
    ),
    Operation(
        name="BatchGetInstanceRunSummary",
        action="jobs:read",
        method="GET",
        path="/api/v2/projects/{projectName}/runsummary",
        answer=batch_get_instance_run_summary,
        parameters=(_PROJECT, Parameter("jobNames", "query", "Comma separated.", required=True), _TYPE),
        text="The same of several jobs; names of no such job are left out.",
    ),
    Operation(
        name="ModifyInstanceState",
        action="jobs:write",
        method="PUT",
        path=f"{_INSTANCE}/expectstate",
        answer=modify_instance_state,
        parameters=(
            _PROJECT,
            _NAME,
            _ID,
            Parameter("expectState", "body", "`TERMINATED`.", required=True),
        ),
        text="Marks an instance as stopped. Jobmeter does not end processes: the system that runs the job does.",
    ),
)
