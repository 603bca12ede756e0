"""ListQuotas: every resource group as a quota.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listquotas
https://help.aliyun.com/en/pai/developer-reference/api-paistudio-2022-01-12-struct-quota
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.groups import (
    NOW_MS,
    GroupSort,
    SizedGroup,
    SizeSort,
    groups_named,
    page_of_groups,
    requests_of,
    sort_of,
)
from jobmeter.dialects.alibaba.common.listing import present
from jobmeter.dialects.alibaba.common.operation import Arguments, Lookup, answer, in_query, listed, operation
from jobmeter.dialects.alibaba.pai_studio.groups import ORDER, RESOURCE_TYPE, check_type, group_fields, ready
from jobmeter.dialects.alibaba.pai_studio.names import (
    PAGES,
    READY,
    device_models,
    gibibytes_text,
    number_text,
    page,
)
from jobmeter.dialects.base import Steps
from jobmeter.model.job import JobState
from jobmeter.model.order import natural
from jobmeter.query.group import Amounts, ResourceGroup

MOST_IDS, MOST_WORKSPACES = 100, 10
"""Most names in QuotaIds and WorkspaceIds, as documented."""
LAYOUTS = ("Tree", "List")
SORTS: Mapping[str, GroupSort] = MappingProxyType(
    {
        "QuotaName": lambda group: natural(group.name),
        "Status": lambda _: None,
        "GmtCreatedTime": lambda group: group.created,
        "GmtModifiedTime": lambda group: group.updated,
    }
)
SIZE_SORTS: Mapping[str, SizeSort] = MappingProxyType(
    {
        "CPU": lambda one: one.capacity.cpu,
        "Memory": lambda one: one.capacity.memory,
        "GPU": lambda one: one.capacity.devices,
    }
)


@operation(
    "GET /api/v1/quotas/",
    "nodes:read",
    in_query("QuotaIds", f"Up to {MOST_IDS} quotas, separated by commas. Default: all."),
    in_query("QuotaName", "Part of the name, in any letter case."),
    in_query("Statuses", f"Of {listed((READY,))}, which every quota is, separated by commas. Default: all."),
    in_query("WorkspaceIds", f"Up to {MOST_WORKSPACES} workspaces: quotas with jobs of one of them."),
    in_query("WorkspaceName", "Part of a workspace's name: quotas with jobs of it."),
    in_query("ParentQuotaId", "No quota has a parent: a filter on it selects none."),
    in_query("Labels", "No quota has labels: a filter on them selects none."),
    in_query("GPUType", "Part of the model of a device that the records of the group's nodes name."),
    in_query("HasResource", "`true`: groups that the records of nodes name; `false`: the others."),
    RESOURCE_TYPE,
    in_query("ClusterType", "Changes nothing."),
    in_query("Versions", "Changes nothing."),
    in_query("LayoutMode", f"{listed(LAYOUTS)}; changes nothing: no quota has another inside."),
    in_query("Verbose", "`false`: without QuotaDetails. Default: `true`."),
    in_query("SortBy", f"One of {listed((*SORTS, *SIZE_SORTS))}. Default: `QuotaName`."),
    ORDER,
    *PAGES,
    by_resource=True,
)
def list_quotas(arguments: Arguments) -> Steps:
    """Lists every resource group as a quota: `{Quotas, TotalCount, RequestId}`.

    A member is `{QuotaId, QuotaName, Status, ResourceGroupIds, Workspaces, SubQuotas, Labels, GPUType, GmtCreatedTime,
    GmtModifiedTime, QuotaDetails}`. QuotaDetails has amounts `{CPU, Memory, GPU, GPUType}` as texts: ActualMinQuota and
    DesiredMinQuota are the totals of GetResourceGroupTotal; AllocatedQuota, SelfAllocatedQuota, RequestedQuota and
    UsedQuota are the limits of running replicas, SelfSubmittedQuota the limits of running and waiting ones.
    """
    pages, matches = page(arguments), _filter(arguments)
    descending, verbose = arguments.descending(default=False), arguments.flag("Verbose", default=True)
    arguments.word("LayoutMode", LAYOUTS)
    check_type(arguments)
    sort, by_size = sort_of(arguments, "SortBy", SORTS, SIZE_SORTS, "QuotaName")
    found = yield from groups_named(arguments.names("QuotaIds", MOST_IDS))
    groups = [group for group in found if matches(group)]
    members = yield from page_of_groups(arguments, groups, pages, sort, by_size, descending=descending)
    quotas = []
    for one in members:
        details = (yield from _details(arguments, one)) if verbose else None
        quotas.append(present({**_quota(one), "QuotaDetails": details}))
    return answer({"Quotas": quotas, "TotalCount": len(groups)}, arguments)


def _filter(arguments: Arguments) -> Callable[[ResourceGroup], bool]:
    """Return a predicate for the groups that match the call's filters."""
    name, gpu_type, workspace = (arguments.text(key).casefold() for key in ("QuotaName", "GPUType", "WorkspaceName"))
    workspaces = frozenset(arguments.names("WorkspaceIds", MOST_WORKSPACES))
    with_nodes = arguments.flag("HasResource") if arguments.text("HasResource") else None
    nothing = not ready(arguments, "Statuses") or bool(arguments.given("ParentQuotaId", "Labels"))

    def fits(group: ResourceGroup) -> bool:
        return (
            not nothing
            and name in group.name.casefold()
            and (not workspaces or not workspaces.isdisjoint(group.workspaces))
            and (not workspace or any(workspace in one.casefold() for one in group.workspaces))
            and (not gpu_type or gpu_type in device_models(group.device_types).casefold())
            and with_nodes in {None, bool(group.nodes)}
        )

    return fits


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
        "GPUType": device_models(sorted(one.capacity.device_types)),
        **{name: fields[name] for name in ("GmtCreatedTime", "GmtModifiedTime") if name in fields},
    }


def _details(arguments: Arguments, one: SizedGroup) -> Lookup[dict[str, Any]]:
    submitted = yield from requests_of(one.group, arguments.lately(NOW_MS), JobState.RUNNING, JobState.QUEUED)
    whole, running = _amount(one.capacity), _amount(one.running)
    # No machine has no core and no memory: the sizes of these are unknown.
    whole = {name: value for name, value in whole.items() if name == "GPU" or value not in {"0", "0Gi"}}
    return {
        **dict.fromkeys(("ActualMinQuota", "DesiredMinQuota"), whole),
        **dict.fromkeys(("AllocatedQuota", "SelfAllocatedQuota", "RequestedQuota", "UsedQuota"), running),
        "SelfSubmittedQuota": _amount(submitted),
    }


def _amount(amounts: Amounts) -> dict[str, str]:
    return present(
        {
            "CPU": number_text(amounts.cpu),
            "Memory": f"{gibibytes_text(amounts.memory)}Gi",
            "GPU": str(amounts.devices),
            "GPUType": device_models(sorted(amounts.device_types)),
        }
    )
