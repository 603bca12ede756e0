"""ListJobs and GetJob."""

from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, listed, operation
from jobmeter.dialects.alibaba.pai_dlc import filters, items
from jobmeter.dialects.alibaba.pai_dlc.operations.common import JOB, LAST_WEEK
from jobmeter.dialects.alibaba.pai_dlc.states import STATUSES
from jobmeter.dialects.base import Steps, execute
from jobmeter.model.event import EventFilter, EventPage, EventSource
from jobmeter.model.job import JobPage
from jobmeter.query.request import JobQuestion, JobRef

MAX_STATES = 1000
"""Most changes of state in an answer."""


@operation(
    "GET /api/v1/jobs",
    "jobs:read",
    in_query("JobId", "One job by its id. It takes precedence over JobIds."),
    in_query("JobIds", "Ids, separated by commas."),
    in_query("DisplayName", "Part of the name, letter case not minded."),
    in_query(
        "DisplayNameSearchMode",
        f"One of {listed(filters.MODES)}; `Exact` takes the whole name, the others a part. Default: `Wildcard`.",
    ),
    in_query("JobType", "The job's type, `PyTorchJob` say."),
    in_query("Status", f"One of {listed(STATUSES)}."),
    in_query("WorkspaceId", "The workspace."),
    in_query("FromAllWorkspaces", "`true`: WorkspaceId is ignored."),
    in_query("ResourceId", "The resource group. It takes precedence over ResourceIds."),
    in_query("ResourceIds", "Resource groups, separated by commas."),
    in_query("ResourceQuotaName", "Part of the resource group's name."),
    in_query("UserIdForFilter", "The user."),
    in_query("Username", "Part of the user's name."),
    in_query("ShowOwn", "`true`: only jobs of the user who is named as the caller's key is."),
    in_query("Tags", "A JSON object: the job has all of these labels."),
    in_query("BusinessUserId", "That of the job's Settings."),
    in_query("Caller", "That of the job's Settings."),
    in_query("PipelineId", "That of the job's Settings."),
    in_query("TemplateId", "The template that the job was made from."),
    in_query("Accessibility", "`PUBLIC` or `PRIVATE`; by default a job is private."),
    in_query("PaymentType", f"One of {listed(filters.PAYMENTS)}: with a resource group, spot, or neither."),
    in_query("OversoldInfo", f"One of {listed(filters.OVERSOLD)}."),
    in_query("EnableAssignNode", "`true`: jobs that were bound to nodes; `false`: the others."),
    in_query("Description", "Part of the description."),
    in_query("ImageSearch", "Part of an image's name."),
    in_query("ReasonSearch", "Part of the error."),
    in_query("UserCommandSearch", "Part of the command."),
    in_query("TimeRangeField", f"One of {listed(filters.TIMES)}. Default: `GmtCreateTime`."),
    *LAST_WEEK,
    in_query(
        "NumericRangeField",
        f"One of {listed(filters.NUMBERS)} (seconds; 1 to 9; cores, GPUs, GiB and pods of a registered job).",
    ),
    in_query("NumericRangeMin", "The least number, included."),
    in_query("NumericRangeMax", "The greatest number, included."),
    in_query("SortBy", f"One of {listed(filters.SORTS)}. Default: `GmtCreateTime`."),
    in_query("Order", "`desc` (default) or `asc`."),
    in_query("PageNumber", "From 1, the default."),
    in_query("PageSize", f"1 to {filters.MAX_PAGE}. Default: {filters.DEFAULT_PAGE}."),
    by_resource=True,
)
def list_jobs(arguments: Arguments) -> Steps:
    """Lists a page of the jobs that match every filter, and their total number: `{Jobs, TotalCount, RequestId}`.

    Without StartTime, only jobs of the last seven days. A member has the fields of GetJob, without pods and history,
    with RequestGPU and RequestMemory (GiB) as texts.
    """
    question = filters.filter_of(arguments)
    page = JobPage([], 0) if question is None else (yield from execute(question))
    jobs = [items.listed(job, arguments.context.now_ms) for job in page.jobs]
    return answer({"Jobs": jobs, "TotalCount": page.total}, arguments)


@operation(
    "GET /api/v1/jobs/{JobId}",
    "jobs:read",
    JOB,
    in_query(
        "NeedDetail",
        "`true` (default), or `false`: without JobSpecs, Pods, StatusHistory, Envs, CustomEnvs, Settings and "
        "CodeSource.",
    ),
    by_resource=True,
)
def get_job(arguments: Arguments) -> Steps:
    """Returns one job: status, times, requested resources, pods and its past states.

    Earlier attempts are a pod's HistoryPods. RequestGPU and RequestMemory (GiB) are numbers. Unrecorded fields are left
    out; a job that was not registered by CreateJob gets JobSpecs from its replicas and limits.
    """
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
    return answer(items.alone(view, changes, arguments.context.now_ms, detail=detail), arguments)
