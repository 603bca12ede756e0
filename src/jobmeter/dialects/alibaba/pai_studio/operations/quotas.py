"""ListQuotas: every resource group as a quota.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listquotas
https://help.aliyun.com/en/pai/developer-reference/api-paistudio-2022-01-12-struct-quota
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, field

from jobmeter.dialects.alibaba.common.groups import (
    NOW_MS,
    GroupSort,
    SizedGroup,
    SizeSort,
    find_groups,
    read_group_page,
    sum_requests,
)
from jobmeter.dialects.alibaba.common.listing import drop_empty
from jobmeter.dialects.alibaba.common.operation import FLAG, ORDER, AlibabaRequest, Ignored, Lookup, answer, operation
from jobmeter.dialects.alibaba.pai_studio.names import (
    READY,
    StudioPageRequest,
    format_gibibytes,
    format_number,
    join_device_models,
)
from jobmeter.dialects.alibaba.pai_studio.operations.groups import ResourceType, group_fields, includes_ready
from jobmeter.dialects.base import Steps
from jobmeter.dialects.base.request import Choice, list_names
from jobmeter.model.job import JobState
from jobmeter.model.order import make_natural_key
from jobmeter.query.group import Amounts, ResourceGroup

SORTS: Mapping[str, GroupSort] = {
    "QuotaName": lambda group: make_natural_key(group.name),
    "Status": lambda _: None,
    "GmtCreatedTime": lambda group: group.created,
    "GmtModifiedTime": lambda group: group.updated,
}
SIZE_SORTS: Mapping[str, SizeSort] = {
    "CPU": lambda one: one.capacity.cpu,
    "Memory": lambda one: one.capacity.memory,
    "GPU": lambda one: one.capacity.devices,
}


@operation("GET /api/v1/quotas/", "nodes:read", by_resource=True)
class ListQuotas(StudioPageRequest, frozen=True, kw_only=True):
    """Lists every resource group as a quota: `{Quotas, TotalCount, RequestId}`.

    A member is `{QuotaId, QuotaName, Status, ResourceGroupIds, Workspaces, SubQuotas, Labels, GPUType, GmtCreatedTime,
    GmtModifiedTime, QuotaDetails}`. QuotaDetails has amounts `{CPU, Memory, GPU, GPUType}` as texts: ActualMinQuota and
    DesiredMinQuota are the totals of GetResourceGroupTotal; AllocatedQuota, SelfAllocatedQuota, RequestedQuota and
    UsedQuota are the limits of running replicas, SelfSubmittedQuota the limits of running and waiting ones.
    """

    # The most names in QuotaIds and WorkspaceIds are documented.
    quota_ids: Annotated[tuple[str, ...], "Separated by commas. Default: all.", Meta(max_length=100)] = ()
    quota_name: Annotated[str, "Part of the name, in any letter case."] = ""
    statuses: Annotated[
        tuple[str, ...],
        f"Of {list_names((READY,))}, which every quota is, separated by commas. Default: all.",
    ] = ()
    workspace_ids: Annotated[tuple[str, ...], "Quotas with jobs of one of these workspaces.", Meta(max_length=10)] = ()
    workspace_name: Annotated[str, "Part of a workspace's name: quotas with jobs of it."] = ""
    parent_quota_id: Annotated[str, "No quota has a parent: a filter on it selects none."] = ""
    labels: Annotated[str, "No quota has labels: a filter on them selects none."] = ""
    gpu_type: Annotated[str, "Part of the model of a device that the records of the group's nodes name."] = field(
        default="", name="GPUType"
    )
    has_resource: Annotated[
        bool | None, "`true`: groups that the records of nodes name; `false`: the others.", FLAG
    ] = None
    resource_type: ResourceType = ""
    cluster_type: Ignored = ""
    versions: Ignored = ""
    layout_mode: Annotated[str, "Changes nothing: no quota has another inside.", Choice(("Tree", "List"))] = ""
    verbose: Annotated[bool, "`false`: without QuotaDetails."] = True
    sort_by: Annotated[str, Choice((*SORTS, *SIZE_SORTS))] = "QuotaName"
    order: Annotated[bool, ORDER] = False

    def _steps(self) -> Steps:
        found = yield from find_groups(self.quota_ids)
        groups = [group for group in found if self._matches_filters(group)]
        sort, by_size = SORTS.get(self.sort_by), SIZE_SORTS.get(self.sort_by)
        members = yield from read_group_page(self, groups, self.page, sort, by_size, descending=self.order)
        quotas = []
        for one in members:
            details = (yield from _details(self, one)) if self.verbose else None
            quotas.append(drop_empty({**_quota(one), "QuotaDetails": details}))
        return answer({"Quotas": quotas, "TotalCount": len(groups)}, self)

    def _matches_filters(self, group: ResourceGroup) -> bool:
        """Return True if a group matches the filters of the call."""
        name, gpu_type, workspace = map(str.casefold, (self.quota_name, self.gpu_type, self.workspace_name))
        return (
            includes_ready(self.statuses)
            and not (self.parent_quota_id or self.labels)
            and name in group.name.casefold()
            and (not self.workspace_ids or not set(self.workspace_ids).isdisjoint(group.workspaces))
            and (not workspace or any(workspace in one.casefold() for one in group.workspaces))
            and (not gpu_type or gpu_type in join_device_models(group.device_types).casefold())
            and self.has_resource in {None, bool(group.nodes)}
        )


def _quota(one: SizedGroup) -> dict[str, Any]:
    fields = group_fields(one.group)
    return {
        "QuotaId": one.group.name,
        "QuotaName": one.group.name,
        "Status": READY,
        "ResourceGroupIds": [one.group.name],
        "Workspaces": [{"WorkspaceId": name, "WorkspaceName": name} for name in one.group.workspaces],
        "SubQuotas": [],
        "Labels": [],
        "GPUType": join_device_models(sorted(one.capacity.device_types)),
        **{name: fields[name] for name in ("GmtCreatedTime", "GmtModifiedTime") if name in fields},
    }


def _details(request: AlibabaRequest, one: SizedGroup) -> Lookup[dict[str, Any]]:
    submitted = yield from sum_requests(one.group, request.make_recent_range(NOW_MS), JobState.RUNNING, JobState.QUEUED)
    whole, running = _amount(one.capacity), _amount(one.running)
    # No machine has no core and no memory: the sizes of these are unknown.
    whole = {name: value for name, value in whole.items() if name == "GPU" or value not in {"0", "0Gi"}}
    return {
        **dict.fromkeys(("ActualMinQuota", "DesiredMinQuota"), whole),
        **dict.fromkeys(("AllocatedQuota", "SelfAllocatedQuota", "RequestedQuota", "UsedQuota"), running),
        "SelfSubmittedQuota": _amount(submitted),
    }


def _amount(amounts: Amounts) -> dict[str, str]:
    return drop_empty(
        {
            "CPU": format_number(amounts.cpu),
            "Memory": f"{format_gibibytes(amounts.memory)}Gi",
            "GPU": str(amounts.devices),
            "GPUType": join_device_models(sorted(amounts.device_types)),
        }
    )
