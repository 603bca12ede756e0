"""ListJobs and GetJob."""

from collections.abc import Iterable

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_dlc.filters import (
    DEFAULT_PAGE,
    MAX_PAGE,
    MODES,
    NUMBERS,
    OVERSOLD,
    PAYMENTS,
    SORTS,
    TIMES,
    filter_of,
)
from jobmeter.dialects.pai_dlc.items import alone, listed
from jobmeter.dialects.pai_dlc.states import STATUSES
from jobmeter.dialects.pai_dlc.times import TIME
from jobmeter.model.event import EventFilter, EventPage, EventSource
from jobmeter.model.job import JobPage
from jobmeter.query.request import JobQuestion, JobRef

MAX_STATES = 1000
"""How many changes of state are shown."""


def list_jobs(call: Call, context: Context) -> Steps:
    """One page of the matching jobs."""
    question = filter_of(Arguments(call, context), context)
    page = JobPage([], 0) if question is None else (yield from execute(question))
    jobs = [listed(job, context.now_ms) for job in page.jobs]
    return answer({"Jobs": jobs, "TotalCount": page.total}, context)


def get_job(call: Call, context: Context) -> Steps:
    """One job with its pods and its history."""
    arguments = Arguments(call, context)
    ref = JobRef(arguments.required("JobId"))
    detail = arguments.flag("NeedDetail", default=True)
    view = yield from execute(JobQuestion(ref))
    question = EventFilter(
        projects=frozenset({view.job.project}),
        jobs=(view.job.id,),
        sources=frozenset({EventSource.STATE}),
        limit=MAX_STATES,
    )
    page = (yield from execute(question)) if detail else EventPage([], 0)
    changes = [event for event in page.events if not event.replica]
    return answer(alone(view, changes, context.now_ms, detail=detail), context)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


OPERATIONS = (
    Operation(
        name="ListJobs",
        action="jobs:read",
        method="GET",
        path="/api/v1/jobs",
        answer=list_jobs,
        parameters=(
            Parameter("JobId", "query", "One job by its id. It takes precedence over JobIds."),
            Parameter("JobIds", "query", "Ids, separated by commas."),
            Parameter("DisplayName", "query", "Part of the name, letter case not minded."),
            Parameter(
                "DisplayNameSearchMode",
                "query",
                f"One of {_listed(MODES)}; `Exact` takes the whole name, the others a part. Default: `Wildcard`.",
            ),
            Parameter("JobType", "query", "The job's type, `PyTorchJob` say."),
            Parameter("Status", "query", f"One of {_listed(STATUSES)}."),
            Parameter("WorkspaceId", "query", "The workspace."),
            Parameter("FromAllWorkspaces", "query", "`true`: WorkspaceId is ignored."),
            Parameter("ResourceId", "query", "The resource group. It takes precedence over ResourceIds."),
            Parameter("ResourceIds", "query", "Resource groups, separated by commas."),
            Parameter("ResourceQuotaName", "query", "Part of the resource group's name."),
            Parameter("UserIdForFilter", "query", "The user."),
            Parameter("Username", "query", "Part of the user's name."),
            Parameter("ShowOwn", "query", "`true`: only jobs of the user who is named as the caller's key is."),
            Parameter("Tags", "query", "A JSON object: the job has all of these labels."),
            Parameter("BusinessUserId", "query", "That of the job's Settings."),
            Parameter("Caller", "query", "That of the job's Settings."),
            Parameter("PipelineId", "query", "That of the job's Settings."),
            Parameter("TemplateId", "query", "The template that the job was made from."),
            Parameter("Accessibility", "query", "`PUBLIC` or `PRIVATE`; by default a job is private."),
            Parameter("PaymentType", "query", f"One of {_listed(PAYMENTS)}: with a resource group, spot, or neither."),
            Parameter("OversoldInfo", "query", f"One of {_listed(OVERSOLD)}."),
            Parameter("EnableAssignNode", "query", "`true`: jobs that were bound to nodes; `false`: the others."),
            Parameter("Description", "query", "Part of the description."),
            Parameter("ImageSearch", "query", "Part of an image's name."),
            Parameter("ReasonSearch", "query", "Part of the error."),
            Parameter("UserCommandSearch", "query", "Part of the command."),
            Parameter("TimeRangeField", "query", f"One of {_listed(TIMES)}. Default: `GmtCreateTime`."),
            Parameter("StartTime", "query", f"{TIME} Default: seven days ago."),
            Parameter("EndTime", "query", f"{TIME} Default: now. Included."),
            Parameter(
                "NumericRangeField",
                "query",
                f"One of {_listed(NUMBERS)} (seconds; 1 to 9; cores, GPUs, GiB and pods of a registered job).",
            ),
            Parameter("NumericRangeMin", "query", "The least number, included."),
            Parameter("NumericRangeMax", "query", "The greatest number, included."),
            Parameter("SortBy", "query", f"One of {_listed(SORTS)}. Default: `GmtCreateTime`."),
            Parameter("Order", "query", "`desc` (default) or `asc`."),
            Parameter("PageNumber", "query", "From 1, the default."),
            Parameter("PageSize", "query", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
        ),
        text=(
            "Jobs that fit every filter, a page of them, and how many there are: `{Jobs, TotalCount, RequestId}`. "
            "Without StartTime, only jobs of the last seven days. A member is what GetJob tells, without pods and "
            "history, with RequestGPU and RequestMemory (GiB) as texts."
        ),
    ),
    Operation(
        name="GetJob",
        action="jobs:read",
        method="GET",
        path="/api/v1/jobs/{JobId}",
        answer=get_job,
        parameters=(
            Parameter("JobId", "path", "The job.", required=True),
            Parameter(
                "NeedDetail",
                "query",
                "`true` (default), or `false`: without JobSpecs, Pods, StatusHistory, Envs, CustomEnvs, Settings and "
                "CodeSource.",
            ),
        ),
        text=(
            "One job: status, times, what it asked for, its pods (earlier attempts are a pod's HistoryPods) and the "
            "states that it went through. RequestGPU and RequestMemory (GiB) are numbers. What nobody recorded is left "
            "out; a job that was not registered by CreateJob gets JobSpecs from its replicas and limits."
        ),
    ),
)
