"""ListTrainingJobs.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listtrainingjobs
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import field

from jobmeter.dialects.alibaba.common.listing import drop_empty, pick
from jobmeter.dialects.alibaba.common.operation import FLAG, ORDER, TIME, Labels, answer, operation, select_given
from jobmeter.dialects.alibaba.common.statuses import Statuses, list_states
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.names import (
    NAME,
    TIME_TEXT,
    StudioPageRequest,
    format_gibibytes,
    format_number,
)
from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.model.job import Condition, Job, JobFilter, JobSize, JobState, Operator, SizesQuestion
from jobmeter.model.time import DAY
from jobmeter.query.defaults import find_creation
from jobmeter.query.usage import LIMITS, count_promised_devices, read_recorded_limit

WEEK = 7 * DAY
STATUS = Statuses(
    dialect=NAME,
    meanings={
        **dict.fromkeys(("Creating", "Created", "Initializing", "Submitted"), JobState.QUEUED),
        "Running": JobState.RUNNING,
        "Succeed": JobState.SUCCEEDED,
        **dict.fromkeys(("Failed", "CreateFailed", "InitializeFailed"), JobState.FAILED),
        "Terminated": JobState.STOPPED,
    },
    words={
        JobState.QUEUED: "Submitted",
        JobState.RUNNING: "Running",
        JobState.SUCCEEDED: "Succeed",
        JobState.FAILED: "Failed",
        **dict.fromkeys((JobState.STOPPED, JobState.UNKNOWN), "Terminated"),
    },
)
SORTS: Mapping[str, str] = {
    "GmtCreateTime": "created",
    "GmtModifiedTime": "updated",
    "TrainingJobName": "name",
    "TrainingJobId": "id",
    "Status": "state",
    "UserId": "user",
}
"""Job fields of the sorts."""
STORED_FIELDS = (
    *("AlgorithmId", "AlgorithmName", "AlgorithmProvider", "AlgorithmVersion", "AssignNodeSpec", "DlcJobId"),
    *("Environments", "ExperimentConfig", "HyperParameters", "InputChannels", "IsTempAlgo", "OutputChannels"),
    *("PythonRequirements", "ReasonCode", "ReasonMessage", "RoleArn", "Scheduler", "TrainingJobDescription"),
    *("TrainingJobUrl", "UserVpc"),
)
"""Fields of a job's record, ``extra["pai-studio"]``, that are returned verbatim."""
_OWN = f"extra.{NAME}"


@operation("GET /api/v1/trainingjobs", "jobs:read", by_resource=True)
class ListTrainingJobs(StudioPageRequest, frozen=True, kw_only=True):
    """Lists every job as a training job: `{TrainingJobs, TotalCount, RequestId}`.

    Without StartTime, only jobs of the last seven days. A member is `{TrainingJobId, TrainingJobName, Status, UserId,
    WorkspaceId, Labels, ComputeResource, StatusTransitions, ReasonMessage, GmtCreateTime, GmtModifiedTime}` and the
    stored fields of its record. ComputeResource has the size of one replica (texts, memory in GiB), their number and
    the resource group.
    """

    training_job_id: Annotated[str, "The job of that id."] = ""
    training_job_name: Annotated[str, "Part of the name, in any letter case."] = ""
    status: Annotated[str, Choice(tuple(STATUS.meanings))] = ""
    workspace_id: Annotated[str, "The workspace."] = ""
    labels: Labels = field(default_factory=dict)
    algorithm_name: Annotated[str, "The algorithm in the job's record."] = ""
    algorithm_provider: Annotated[str, "The provider of the algorithm in the job's record."] = ""
    is_temp_algo: Annotated[bool | None, "`true`: jobs whose record says so; `false`: the others.", FLAG] = None
    start_time: Annotated[int | None, f"Created then or later. {TIME_TEXT} Default: seven days ago.", TIME] = None
    end_time: Annotated[int | None, f"Created then or earlier. {TIME_TEXT} Default: now.", TIME] = None
    sort_by: Annotated[str, Choice(SORTS)] = "created"
    order: Annotated[bool, ORDER] = True

    def _steps(self) -> Steps:
        found = yield from ask(self._question())
        jobs = tuple((job.project, job.id) for job in found.jobs)
        sizes = (yield from ask(SizesQuestion(jobs=jobs))) if jobs else []
        members = [_member(job, replicas) for job, replicas in zip(found.jobs, sizes, strict=True)]
        return answer({"TrainingJobs": members, "TotalCount": found.total}, self)

    def _question(self) -> JobFilter:
        states, conditions = STATUS.make_filter(self.status)
        span = self.read_time_range(self.start_time, self.end_time, WEEK)
        offset, size = self.page
        return JobFilter(
            ids=tuple(select_given(self.training_job_id)),
            states=states,
            workspaces=select_given(self.workspace_id),
            created_from=span.start_ms,
            created_to=span.end_ms + 1,
            conditions=(*conditions, *self._conditions()),
            sort=self.sort_by,
            descending=self.order,
            offset=offset,
            limit=size,
        )

    def _conditions(self) -> Iterator[Condition]:
        if self.training_job_name:
            yield Condition("name", Operator.CONTAINS, (self.training_job_name,), "id")
        for label, value in self.labels.items():
            yield Condition(f"labels.{label}", Operator.IN, (value,))
        recorded = {"AlgorithmName": self.algorithm_name, "AlgorithmProvider": self.algorithm_provider}
        for name, text in recorded.items():
            if text:
                yield Condition(f"{_OWN}.{name}", Operator.IN, (text,))
        if self.is_temp_algo is not None:
            there = Operator.IN if self.is_temp_algo else Operator.NOT_IN
            yield Condition(f"{_OWN}.IsTempAlgo", there, ("true",))


def _member(job: Job, size: JobSize) -> dict[str, Any]:
    own = job.extra.get(NAME, {})
    fields = {
        "TrainingJobId": job.id,
        "TrainingJobName": job.name or job.id,
        "Status": STATUS.find_status(job),
        "UserId": job.user,
        "WorkspaceId": job.workspace,
        "GmtCreateTime": stamp(find_creation(job)),
        "GmtModifiedTime": stamp(job.updated),
        "ReasonMessage": job.error,
        "ComputeResource": _resource(job, size),
        "Labels": [{"Key": name, "Value": value} for name, value in job.labels.items()],
        "StatusTransitions": _transitions(job),
        **pick(own, STORED_FIELDS),
    }
    return drop_empty(fields)


def _resource(job: Job, size: JobSize) -> dict[str, Any]:
    """Return the machines of a job: of its record's instance type, else replicas of a size in a group."""
    kind, replicas = job.instance_type, size.replicas or None
    spec = "" if kind is None else kind.id or kind.name
    cpu, memory = (read_recorded_limit(job, limit) for limit in LIMITS)
    devices = count_promised_devices(job)
    instance = drop_empty(
        {
            "CPU": None if cpu is None else format_number(cpu),
            "Memory": None if memory is None else format_gibibytes(memory),
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
    return drop_empty(fields)


def _transitions(job: Job) -> list[dict[str, Any]]:
    states = list_states(job)
    ends = [stamp(time) for time, _ in states[1:]] + [""]
    return [
        drop_empty({"Status": STATUS.words[state], "StartTime": stamp(start), "EndTime": end})
        for (start, state), end in zip(states, ends, strict=False)
    ]
