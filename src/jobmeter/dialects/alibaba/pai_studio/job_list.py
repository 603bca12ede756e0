"""ListTrainingJobs.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listtrainingjobs
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.listing import picked, present
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, listed, operation
from jobmeter.dialects.alibaba.common.statuses import Statuses, states_of
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.names import NAME, PAGES, TIME, gibibytes_text, number_text, page
from jobmeter.dialects.base import Steps, execute
from jobmeter.model.job import Condition, Job, JobFilter, JobSize, JobState, Operator, SizesQuestion
from jobmeter.model.time import DAY
from jobmeter.query.defaults import job_created
from jobmeter.query.usage import LIMITS, promised_devices, recorded_limit

WEEK = 7 * DAY
STATUS = Statuses(
    dialect=NAME,
    meanings=MappingProxyType(
        {
            **dict.fromkeys(("Creating", "Created", "Initializing", "Submitted"), JobState.QUEUED),
            "Running": JobState.RUNNING,
            "Succeed": JobState.SUCCEEDED,
            **dict.fromkeys(("Failed", "CreateFailed", "InitializeFailed"), JobState.FAILED),
            "Terminated": JobState.STOPPED,
        }
    ),
    words=MappingProxyType(
        {
            JobState.QUEUED: "Submitted",
            JobState.RUNNING: "Running",
            JobState.SUCCEEDED: "Succeed",
            JobState.FAILED: "Failed",
            **dict.fromkeys((JobState.STOPPED, JobState.UNKNOWN), "Terminated"),
        }
    ),
)
SORTS: Mapping[str, str] = MappingProxyType(
    {
        "GmtCreateTime": "created",
        "GmtModifiedTime": "updated",
        "TrainingJobName": "name",
        "TrainingJobId": "id",
        "Status": "state",
        "UserId": "user",
    }
)
"""Job fields of the sorts."""
STORED_FIELDS = (
    *("AlgorithmId", "AlgorithmName", "AlgorithmProvider", "AlgorithmVersion", "AssignNodeSpec", "DlcJobId"),
    *("Environments", "ExperimentConfig", "HyperParameters", "InputChannels", "IsTempAlgo", "OutputChannels"),
    *("PythonRequirements", "ReasonCode", "ReasonMessage", "RoleArn", "Scheduler", "TrainingJobDescription"),
    *("TrainingJobUrl", "UserVpc"),
)
"""Fields of a job's record, ``extra["pai-studio"]``, that are returned verbatim."""
_OWN = f"extra.{NAME}"


@operation(
    "GET /api/v1/trainingjobs",
    "jobs:read",
    in_query("TrainingJobId", "The job of that id."),
    in_query("TrainingJobName", "Part of the name, in any letter case."),
    in_query("Status", f"One of {listed(STATUS.meanings)}."),
    in_query("WorkspaceId", "The workspace."),
    in_query("Labels", "A JSON object: the job has all of these labels."),
    in_query("AlgorithmName", "That of the job's record."),
    in_query("AlgorithmProvider", "That of the job's record."),
    in_query("IsTempAlgo", "`true`: jobs whose record says so; `false`: the others."),
    in_query("StartTime", f"Created then or later. {TIME} Default: seven days ago."),
    in_query("EndTime", f"Created then or earlier. {TIME} Default: now."),
    in_query("SortBy", f"One of {listed(SORTS)}. Default: `GmtCreateTime`."),
    in_query("Order", "`desc` (default) or `asc`."),
    *PAGES,
    by_resource=True,
)
def list_training_jobs(arguments: Arguments) -> Steps:
    """Lists every job as a training job: `{TrainingJobs, TotalCount, RequestId}`.

    Without StartTime, only jobs of the last seven days. A member is `{TrainingJobId, TrainingJobName, Status, UserId,
    WorkspaceId, Labels, ComputeResource, StatusTransitions, ReasonMessage, GmtCreateTime, GmtModifiedTime}` and the
    stored fields of its record. ComputeResource has the size of one replica (texts, memory in GiB), their number and
    the resource group.
    """
    offset, size = page(arguments)
    found = yield from execute(_question(arguments, offset, size))
    jobs = tuple((job.project, job.id) for job in found.jobs)
    sizes = (yield from execute(SizesQuestion(jobs=jobs))) if jobs else []
    members = [_member(job, replicas) for job, replicas in zip(found.jobs, sizes, strict=True)]
    return answer({"TrainingJobs": members, "TotalCount": found.total}, arguments)


def _question(arguments: Arguments, offset: int, size: int) -> JobFilter:
    status = arguments.word("Status", STATUS.meanings)
    states, conditions = STATUS.matching(status) if status else (frozenset[JobState](), ())
    span = arguments.time_range(WEEK)
    return JobFilter(
        ids=tuple(arguments.given("TrainingJobId")),
        states=states,
        workspaces=arguments.given("WorkspaceId"),
        created_from=span.start_ms,
        created_to=span.end_ms + 1,
        conditions=(*conditions, *_conditions(arguments)),
        sort=arguments.choice("SortBy", SORTS, "created"),
        descending=arguments.descending(default=True),
        offset=offset,
        limit=size,
    )


def _conditions(arguments: Arguments) -> Iterator[Condition]:
    if name := arguments.text("TrainingJobName"):
        yield Condition("name", Operator.CONTAINS, (name,), "id")
    for label, value in arguments.mapping("Labels").items():
        yield Condition(f"labels.{label}", Operator.IN, (value,))
    for field in ("AlgorithmName", "AlgorithmProvider"):
        if text := arguments.text(field):
            yield Condition(f"{_OWN}.{field}", Operator.IN, (text,))
    if arguments.text("IsTempAlgo"):
        there = Operator.IN if arguments.flag("IsTempAlgo") else Operator.NOT_IN
        yield Condition(f"{_OWN}.IsTempAlgo", there, ("true",))


def _member(job: Job, size: JobSize) -> dict[str, Any]:
    own = job.extra.get(NAME, {})
    fields = {
        "TrainingJobId": job.id,
        "TrainingJobName": job.name or job.id,
        "Status": STATUS.of(job),
        "UserId": job.user,
        "WorkspaceId": job.workspace,
        "GmtCreateTime": stamp(job_created(job)),
        "GmtModifiedTime": stamp(job.updated),
        "ReasonMessage": job.error,
        "ComputeResource": _resource(job, size),
        "Labels": [{"Key": name, "Value": value} for name, value in job.labels.items()],
        "StatusTransitions": _transitions(job),
        **picked(own, STORED_FIELDS),
    }
    return present(fields)


def _resource(job: Job, size: JobSize) -> dict[str, Any]:
    """Return the machines of a job: of its record's instance type, else replicas of a size in a group."""
    kind, replicas = job.instance_type, size.replicas or None
    spec = "" if kind is None else kind.id or kind.name
    cpu, memory = (recorded_limit(job, limit) for limit in LIMITS)
    devices = promised_devices(job)
    instance = present(
        {
            "CPU": None if cpu is None else number_text(cpu),
            "Memory": None if memory is None else gibibytes_text(memory),
            "GPU": None if devices is None else str(devices),
            "GPUType": "" if kind is None else kind.gpu_type,
        }
    )
    fields = {
        "EcsSpec": spec,
        "EcsCount": replicas if spec else None,
        "ResourceId": job.resource_group,
        "ResourceName": job.resource_group,
        "InstanceCount": replicas,
        "InstanceSpec": instance or None,
    }
    return present(fields)


def _transitions(job: Job) -> list[dict[str, Any]]:
    states = states_of(job)
    ends = [stamp(time) for time, _ in states[1:]] + [""]
    return [
        present({"Status": STATUS.words[state], "StartTime": stamp(start), "EndTime": end})
        for (start, state), end in zip(states, ends, strict=False)
    ]
