"""ListServices and DescribeServiceLog: jobs as services.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eas-2021-07-01-listservices
https://www.alibabacloud.com/help/en/pai/developer-reference/api-eas-2021-07-01-describeservicelog
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.instances import CONTAINER, replicas_named
from jobmeter.dialects.alibaba.common.listing import picked, present
from jobmeter.dialects.alibaba.common.operation import (
    Arguments,
    Lookup,
    answer,
    in_path,
    in_query,
    json_text,
    listed,
    operation,
)
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.eas.names import DEFAULT_PAGE, MAX_PAGE, NAME, PAGES, STATUS, cluster_of
from jobmeter.dialects.base import Steps, execute, whole
from jobmeter.errors import NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, JobPage, JobState, JobView, Operator, Replica
from jobmeter.model.log import LogPage
from jobmeter.model.time import NS_PER_MS
from jobmeter.query.defaults import job_created
from jobmeter.query.request import JobQuestion, JobRef, JobViewsQuestion, LogQuestion
from jobmeter.query.usage import LIMITS, promised_devices, recorded_limit

DEFAULT_LINES, MAX_LINES = 500, 10_000
SERVICE_TYPES: Mapping[str, str] = MappingProxyType(
    {**{name: name for name in ("Async", "Standard", "OfflineTask", "Proxima")}, "Offline Task": "OfflineTask"}
)
SORTS: Mapping[str, str] = MappingProxyType(
    {
        "CreateTime": "created",
        "UpdateTime": "updated",
        "ServiceName": "id",
        "Status": "state",
        "Timestamp": "created",
    }
)
"""Job fields of the sorts."""
STORED_FIELDS = (
    *("AppType", "AppVersion", "CurrentVersion", "Gateway", "Image", "LatestVersion", "ParentUid", "Reason", "Role"),
    *("SafetyLock", "ServiceGroup", "Source", "TrafficState", "Weight"),
)
"""Fields of a job's record, ``extra["eas"]``, that are returned verbatim."""
_RECORDED: Mapping[str, str] = MappingProxyType(
    {"GroupName": "ServiceGroup", "Gateway": "Gateway", "Role": "Role", "ParentServiceUid": "ParentUid"}
)
"""Fields of the record by the filter on them."""
_TIME = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."
_MIB = 2**20


@operation(
    "GET /api/v2/services",
    "jobs:read",
    in_query("Filter", "Part of the id or of the name of a job, in any letter case."),
    in_query("ServiceName", "The job of that id."),
    in_query("ServiceUid", "Another name of ServiceName."),
    in_query("ServiceStatus", f"One of {listed(STATUS.meanings)}."),
    in_query("ServiceType", f"One of {listed(SERVICE_TYPES)}, as the job's record says it."),
    in_query("ResourceName", "The resource group."),
    in_query("QuotaId", "Another name of ResourceName."),
    in_query("ResourceType", "Changes nothing."),
    in_query("WorkspaceId", "The workspace."),
    in_query("Label", "A JSON object: the job has all of these labels."),
    *(in_query(name, f"`{field}` of the job's record.") for name, field in _RECORDED.items()),
    in_query("Sort", f"One of {listed(SORTS)}. Default: `CreateTime`."),
    in_query("Order", "`desc` (default) or `asc`."),
    *PAGES,
    by_resource=True,
)
def list_services(arguments: Arguments) -> Steps:
    """Lists every job as a service: `{Services, TotalCount, PageNumber, PageSize, RequestId}`.

    A member is `{ServiceName, ServiceId, ServiceUid, Status, Region, Namespace, CallerUid, WorkspaceId, Resource,
    QuotaId, Cpu, Memory, Gpu, TotalInstance, RunningInstance, PendingInstance, Labels, Message, ExtraData, CreateTime,
    UpdateTime}` and the stored fields of its record. ServiceName is the job's id; ExtraData is the JSON text of its
    name and type. Cpu, Memory (MB of 2^20 bytes) and Gpu describe one instance.
    """
    offset, size = arguments.page(DEFAULT_PAGE, MAX_PAGE, 10**6)
    question = _question(arguments, offset, size)
    found = JobPage([], 0) if question is None else (yield from execute(question))
    views = yield from _views(found.jobs)
    body = {
        "Services": [_service(view) for view in views],
        "TotalCount": found.total,
        "PageNumber": offset // size + 1,
        "PageSize": size,
    }
    return answer(body, arguments)


@operation(
    "GET /api/v2/services/{ClusterId}/{ServiceName}/logs",
    "jobs:read",
    in_path("ClusterId", "The vendor's region. Every one means this server."),
    in_path("ServiceName", "The job of that id, else the newest one of that name."),
    in_query("InstanceName", "A pod's id, `<job>-<replica>` or a replica's name. Default: all."),
    in_query("ContainerName", f"An instance has one, `{CONTAINER}`; another one has no lines."),
    in_query("Ip", "Addresses are not reported: a filter on one selects no lines."),
    in_query("Keyword", "Part of a line, in any letter case."),
    in_query("StartTime", f"{_TIME} Default: the first line."),
    in_query("EndTime", f"{_TIME} Default: the last line. Not included."),
    in_query("Previous", "`true`: lines from before the last restart; `false`: from after it. Default: all lines."),
    in_query("PageNum", "From 1, the default."),
    in_query("PageSize", f"1 to {MAX_LINES}. Default: {DEFAULT_LINES}."),
    by_resource=True,
)
def describe_service_log(arguments: Arguments) -> Steps:
    """Returns the lines of a job, by time: `{Logs, PageNum, TotalCount, TotalPageNum, RequestId}`, a text a line."""
    arguments.required("ClusterId")
    size = arguments.integer("PageSize", DEFAULT_LINES, 1, MAX_LINES)
    number = arguments.integer("PageNum", 1, 1, 10**6)
    start, end = arguments.times()
    previous = arguments.flag("Previous") if arguments.text("Previous") else None
    view = yield from _job_of(arguments.required("ServiceName"))
    replicas = replicas_named(view, arguments.text("InstanceName"), "InstanceName")
    newest = max((one.attempt for one in view.replicas if not replicas or one.name in replicas), default=0)
    question = LogQuestion(
        ref=JobRef(view.job.id, view.job.project),
        replicas=replicas,
        attempt=None if previous is None else newest - previous,
        contains=arguments.text("Keyword"),
        start_ns=None if start is None else start * NS_PER_MS,
        end_ns=None if end is None else end * NS_PER_MS,
        offset=(number - 1) * size,
        limit=size,
        count=True,
    )
    nothing = (
        arguments.text("Ip") or arguments.text("ContainerName", CONTAINER) != CONTAINER or newest < (previous or 0)
    )
    found = LogPage([], 0) if nothing else (yield from execute(question))
    total = len(found.lines) if found.total is None else found.total
    body = {
        "Logs": [line.text for line in found.lines],
        "PageNum": number,
        "TotalCount": total,
        "TotalPageNum": -(-total // size),
    }
    return answer(body, arguments)


def _question(arguments: Arguments, offset: int, size: int) -> JobFilter | None:
    """Return the query of the call; None if its filters exclude each other."""
    ids, groups = arguments.given("ServiceName", "ServiceUid"), arguments.given("ResourceName", "QuotaId")
    status = arguments.word("ServiceStatus", STATUS.meanings)
    states, conditions = STATUS.matching(status) if status else (frozenset[JobState](), ())
    question = JobFilter(
        ids=tuple(ids),
        name_contains=arguments.text("Filter"),
        states=states,
        resource_groups=groups,
        workspaces=arguments.given("WorkspaceId"),
        conditions=(*conditions, *_conditions(arguments)),
        sort=arguments.choice("Sort", SORTS, "created"),
        descending=arguments.descending(default=True),
        offset=offset,
        limit=size,
    )
    return None if len(ids) > 1 or len(groups) > 1 else question


def _conditions(arguments: Arguments) -> Iterator[Condition]:
    for label, value in arguments.mapping("Label").items():
        yield Condition(f"labels.{label}", Operator.IN, (value,))
    if kind := arguments.choice("ServiceType", SERVICE_TYPES, ""):
        yield Condition(f"extra.{NAME}.ServiceType", Operator.IN, (kind,))
    for name, field in _RECORDED.items():
        if text := arguments.text(name):
            yield Condition(f"extra.{NAME}.{field}", Operator.IN, (text,))


def _views(jobs: list[Job]) -> Lookup[list[JobView]]:
    """Return the jobs with their replicas, in their order; a job that was deleted meanwhile has none."""
    names = tuple((job.project, job.id) for job in jobs)
    views = (yield from execute(JobViewsQuestion(names))) if names else []
    found = {(view.job.project, view.job.id): view for view in views}
    return [found.get((job.project, job.id)) or JobView(job=job, replicas=[], allocations=[]) for job in jobs]


def _job_of(name: str) -> Lookup[JobView]:
    try:
        return (yield from execute(JobQuestion(JobRef(name))))
    except NotFoundError:
        named = (Condition("name", Operator.IN, (name,)),)
        page = yield from execute(JobFilter(conditions=named, limit=1))
        if not page.jobs:
            raise NotFoundError(f"The specified ServiceName {name} does not exist.", "job", name) from None
        [job] = page.jobs
        return (yield from execute(JobQuestion(JobRef(job.id, job.project))))


def _service(view: JobView) -> dict[str, Any]:
    job = view.job
    cpu, memory = (recorded_limit(job, limit) for limit in LIMITS)
    more = present({"Name": job.name, "Type": job.type})
    fields = {
        **dict.fromkeys(("ServiceName", "ServiceId", "ServiceUid"), job.id),
        "Status": STATUS.of(job),
        "Region": cluster_of(replica.cluster for replica in view.replicas),
        "Namespace": job.project,
        "CallerUid": job.user,
        "WorkspaceId": job.workspace,
        **dict.fromkeys(("Resource", "QuotaId"), job.resource_group),
        "Cpu": None if cpu is None else whole(cpu),
        "Memory": None if memory is None else whole(memory / _MIB),
        "Gpu": promised_devices(job),
        **_instances(view),
        "Labels": [{"LabelKey": name, "LabelValue": value} for name, value in job.labels.items()],
        "Message": job.error,
        "ExtraData": json_text(more) if more else None,
        "CreateTime": stamp(job_created(job)),
        "UpdateTime": stamp(job.updated),
        **picked(job.extra.get(NAME, {}), STORED_FIELDS),
    }
    return present(fields)


def _instances(view: JobView) -> dict[str, int]:
    """Count all replicas, running ones and waiting ones; empty for a job without replicas."""
    newest: dict[str, Replica] = {}
    for replica in sorted(view.replicas, key=lambda one: one.attempt):
        newest[replica.name] = replica
    if not newest:
        return {}
    states = Counter(replica.state or view.job.state for replica in newest.values())
    return {
        "TotalInstance": len(newest),
        "RunningInstance": states[JobState.RUNNING],
        "PendingInstance": states[JobState.QUEUED],
    }
