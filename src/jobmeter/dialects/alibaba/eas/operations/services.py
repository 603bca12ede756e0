"""ListServices and DescribeServiceLog: jobs as services.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eas-2021-07-01-listservices
https://www.alibabacloud.com/help/en/pai/developer-reference/api-eas-2021-07-01-describeservicelog
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, field

from jobmeter.dialects.alibaba.common.instances import CONTAINER, find_replicas
from jobmeter.dialects.alibaba.common.listing import drop_empty, pick
from jobmeter.dialects.alibaba.common.operation import (
    FLAG,
    TIME,
    AlibabaRequest,
    Ignored,
    Labels,
    Lookup,
    answer,
    check_range,
    dump_json,
    operation,
    select_given,
)
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.eas.names import NAME, STATUS, EasPageRequest, choose_cluster
from jobmeter.dialects.base import Steps, ask, round_up
from jobmeter.dialects.base.request import Choice
from jobmeter.errors import NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, JobPage, JobState, JobView, Operator, Replica
from jobmeter.model.log import LogPage
from jobmeter.model.time import NS_PER_MS
from jobmeter.query.defaults import find_creation
from jobmeter.query.request import JobQuestion, JobRef, JobViewsQuestion, LogQuestion
from jobmeter.query.usage import LIMITS, count_promised_devices, read_recorded_limit

SERVICE_TYPES: Mapping[str, str] = {
    **{name: name for name in ("Async", "Standard", "OfflineTask", "Proxima")},
    "Offline Task": "OfflineTask",
}
SORTS: Mapping[str, str] = {
    "CreateTime": "created",
    "UpdateTime": "updated",
    "ServiceName": "id",
    "Status": "state",
    "Timestamp": "created",
}
"""Job fields of the sorts."""
STORED_FIELDS = (
    *("AppType", "AppVersion", "CurrentVersion", "Gateway", "Image", "LatestVersion", "ParentUid", "Reason", "Role"),
    *("SafetyLock", "ServiceGroup", "Source", "TrafficState", "Weight"),
)
"""Fields of a job's record, ``extra["eas"]``, that are returned verbatim."""
_TIME = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."
_MIB = 2**20


@operation("GET /api/v2/services", "jobs:read", by_resource=True)
class ListServices(EasPageRequest, frozen=True, kw_only=True):
    """Lists every job as a service: `{Services, TotalCount, PageNumber, PageSize, RequestId}`.

    A member is `{ServiceName, ServiceId, ServiceUid, Status, Region, Namespace, CallerUid, WorkspaceId, Resource,
    QuotaId, Cpu, Memory, Gpu, TotalInstance, RunningInstance, PendingInstance, Labels, Message, ExtraData, CreateTime,
    UpdateTime}` and the stored fields of its record. ServiceName is the job's id; ExtraData is the JSON text of its
    name and type. Cpu, Memory (MB of 2^20 bytes) and Gpu describe one instance.
    """

    filter: Annotated[str, "Part of the id or of the name of a job, in any letter case."] = ""
    service_name: Annotated[str, "The job of that id."] = ""
    service_uid: Annotated[str, "Alias of ServiceName."] = ""
    service_status: Annotated[str, Choice(tuple(STATUS.meanings))] = ""
    service_type: Annotated[str, "As the job's record says it.", Choice(SERVICE_TYPES)] = ""
    resource_name: Annotated[str, "The resource group."] = ""
    quota_id: Annotated[str, "Alias of ResourceName."] = ""
    resource_type: Ignored = ""
    workspace_id: Annotated[str, "The workspace."] = ""
    label: Labels = field(default_factory=dict)
    group_name: Annotated[str, "`ServiceGroup` of the job's record."] = ""
    gateway: Annotated[str, "`Gateway` of the job's record."] = ""
    role: Annotated[str, "`Role` of the job's record."] = ""
    parent_service_uid: Annotated[str, "`ParentUid` of the job's record."] = ""
    sort: Annotated[str, Choice(SORTS)] = "created"

    def _steps(self) -> Steps:
        question = self._question()
        found = JobPage([], 0) if question is None else (yield from ask(question))
        views = yield from _views(found.jobs)
        body = {
            "Services": [_service(view) for view in views],
            "TotalCount": found.total,
            "PageNumber": self.page_number,
            "PageSize": self.page_size,
        }
        return answer(body, self)

    def _question(self) -> JobFilter | None:
        """Return the query of the call; None if its filters exclude each other."""
        ids, groups = select_given(self.service_name, self.service_uid), select_given(self.resource_name, self.quota_id)
        states, conditions = STATUS.make_filter(self.service_status)
        offset, size = self.page
        question = JobFilter(
            ids=tuple(ids),
            name_contains=self.filter,
            states=states,
            resource_groups=groups,
            workspaces=select_given(self.workspace_id),
            conditions=(*conditions, *self._conditions()),
            sort=self.sort,
            descending=self.order,
            offset=offset,
            limit=size,
        )
        return None if len(ids) > 1 or len(groups) > 1 else question

    def _conditions(self) -> Iterator[Condition]:
        for label, value in self.label.items():
            yield Condition(f"labels.{label}", Operator.IN, (value,))
        recorded = {
            "ServiceType": self.service_type,
            "ServiceGroup": self.group_name,
            "Gateway": self.gateway,
            "Role": self.role,
            "ParentUid": self.parent_service_uid,
        }
        for name, text in recorded.items():
            if text:
                yield Condition(f"extra.{NAME}.{name}", Operator.IN, (text,))


@operation("GET /api/v2/services/{ClusterId}/{ServiceName}/logs", "jobs:read", by_resource=True)
class DescribeServiceLog(AlibabaRequest, frozen=True, kw_only=True):
    """Returns a job's log lines as texts, by time: `{Logs, PageNum, TotalCount, TotalPageNum, RequestId}`."""

    cluster_id: Annotated[str, "The vendor's region. Every region means this server."]
    service_name: Annotated[str, "The job of that id, else the newest one of that name."]
    instance_name: Annotated[str, "A pod's id, `<job>-<replica>` or a replica's name. Default: all."] = ""
    container_name: Annotated[str, "The container of an instance; another one has no lines."] = CONTAINER
    ip: Annotated[str, "Addresses are not reported: a filter on one selects no lines."] = ""
    keyword: Annotated[str, "Part of a line, in any letter case."] = ""
    start_time: Annotated[int | None, f"{_TIME} Default: the first line.", TIME] = None
    end_time: Annotated[int | None, f"{_TIME} Not included. Default: the last line.", TIME] = None
    previous: Annotated[
        bool | None,
        "`true`: lines from before the last restart; `false`: from after it. Default: all lines.",
        FLAG,
    ] = None
    page_num: Annotated[int, "From 1.", Meta(ge=1, le=10**6)] = 1
    page_size: Annotated[int, Meta(ge=1, le=10_000)] = 500

    def _steps(self) -> Steps:
        start, end, previous = self.start_time, self.end_time, self.previous
        check_range(start, end)
        view = yield from _job_of(self.service_name)
        replicas = find_replicas(view, self.instance_name, "InstanceName")
        newest = max((one.attempt for one in view.replicas if not replicas or one.name in replicas), default=0)
        question = LogQuestion(
            ref=JobRef(view.job.id, view.job.project),
            replicas=replicas,
            attempt=None if previous is None else newest - previous,
            contains=self.keyword,
            start_ns=None if start is None else start * NS_PER_MS,
            end_ns=None if end is None else end * NS_PER_MS,
            offset=(self.page_num - 1) * self.page_size,
            limit=self.page_size,
            count=True,
        )
        is_empty = self.ip or self.container_name != CONTAINER or newest < (previous or 0)
        found = LogPage([], 0) if is_empty else (yield from ask(question))
        total = len(found.lines) if found.total is None else found.total
        body = {
            "Logs": [line.text for line in found.lines],
            "PageNum": self.page_num,
            "TotalCount": total,
            "TotalPageNum": -(-total // self.page_size),
        }
        return answer(body, self)


def _views(jobs: list[Job]) -> Lookup[list[JobView]]:
    """Return the jobs with their replicas, in their order; a job that was deleted meanwhile has none."""
    names = tuple((job.project, job.id) for job in jobs)
    views = (yield from ask(JobViewsQuestion(names))) if names else []
    found = {(view.job.project, view.job.id): view for view in views}
    return [found.get((job.project, job.id)) or JobView(job=job, replicas=[], allocations=[]) for job in jobs]


def _job_of(name: str) -> Lookup[JobView]:
    try:
        return (yield from ask(JobQuestion(JobRef(name))))
    except NotFoundError:
        named = (Condition("name", Operator.IN, (name,)),)
        page = yield from ask(JobFilter(conditions=named, limit=1))
        if not page.jobs:
            raise NotFoundError(f"The specified ServiceName {name} does not exist.", "job", name) from None
        [job] = page.jobs
        return (yield from ask(JobQuestion(JobRef(job.id, job.project))))


def _service(view: JobView) -> dict[str, Any]:
    job = view.job
    cpu, memory = (read_recorded_limit(job, limit) for limit in LIMITS)
    more = drop_empty({"Name": job.name, "Type": job.type})
    fields = {
        **dict.fromkeys(("ServiceName", "ServiceId", "ServiceUid"), job.id),
        "Status": STATUS.find_status(job),
        "Region": choose_cluster(replica.cluster for replica in view.replicas),
        "Namespace": job.project,
        "CallerUid": job.user,
        "WorkspaceId": job.workspace,
        **dict.fromkeys(("Resource", "QuotaId"), job.resource_group),
        "Cpu": None if cpu is None else round_up(cpu),
        "Memory": None if memory is None else round_up(memory / _MIB),
        "Gpu": count_promised_devices(job),
        **_instances(view),
        "Labels": [{"LabelKey": name, "LabelValue": value} for name, value in job.labels.items()],
        "Message": job.error,
        "ExtraData": dump_json(more) if more else None,
        "CreateTime": stamp(find_creation(job)),
        "UpdateTime": stamp(job.updated),
        **pick(job.extra.get(NAME, {}), STORED_FIELDS),
    }
    return drop_empty(fields)


def _instances(view: JobView) -> dict[str, int]:
    """Count all, running and waiting replicas; return an empty result for a job without replicas."""
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
