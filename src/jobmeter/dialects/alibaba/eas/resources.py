"""ListResources: the resource groups that records of nodes and jobs name.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eas-2021-07-01-listresources
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.groups import (
    GroupSort,
    SizedGroup,
    SizeSort,
    groups_named,
    page_of_groups,
    sort_of,
)
from jobmeter.dialects.alibaba.common.listing import present
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, listed, operation
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.eas.names import DEFAULT_PAGE, MAX_PAGE, PAGES, READY, cluster_of
from jobmeter.dialects.base import Steps, whole

RESOURCE_TYPES = ("Dedicated", "SelfManaged")
SORTS: Mapping[str, GroupSort] = MappingProxyType(
    {
        "CreateTime": lambda group: group.created,
        "ServiceCount": lambda group: group.jobs,
        **dict.fromkeys(("PrePaidInstanceCount", "PostPaidInstanceCount"), lambda _: None),
    }
)
SIZE_SORTS: Mapping[str, SizeSort] = MappingProxyType(
    {
        "CpuCount": lambda one: one.capacity.cpu,
        "Memory": lambda one: one.capacity.memory,
        "GpuCount": lambda one: one.capacity.devices,
        "CpuUsed": lambda one: one.running.cpu,
        "MemoryUsed": lambda one: one.running.memory,
        "GpuUsed": lambda one: one.running.devices,
    }
)


@operation(
    "GET /api/v2/resources",
    "nodes:read",
    in_query("ResourceId", "The group of that name. Default: all."),
    in_query("ResourceName", "Another name of ResourceId."),
    in_query("ResourceStatus", f"Groups in that status. Every group is `{READY}`."),
    in_query("ResourceType", f"{listed(RESOURCE_TYPES)}; changes nothing: the type of a group is unknown."),
    in_query("Sort", f"One of {listed((*SORTS, *SIZE_SORTS))}. Default: `CreateTime`."),
    in_query("Order", "`Desc` (default) or `Asc`."),
    *PAGES,
    by_resource=True,
)
def list_resources(arguments: Arguments) -> Steps:
    """Lists the resource groups: `{Resources, TotalCount, PageNumber, PageSize, RequestId}`.

    A member is `{ResourceId, ResourceName, ClusterId, Status, InstanceCount, CpuCount, GpuCount, CreateTime,
    UpdateTime}`: an instance is a node, and unknown fields are left out.
    """
    offset, size = arguments.page(DEFAULT_PAGE, MAX_PAGE, 10**6)
    arguments.word("ResourceType", RESOURCE_TYPES)
    descending = arguments.descending(default=True)
    sort, by_size = sort_of(arguments, "Sort", SORTS, SIZE_SORTS, "CreateTime")
    groups = yield from groups_named(arguments.given("ResourceId"), arguments.given("ResourceName"))
    if arguments.text("ResourceStatus").casefold() not in {"", READY.casefold()}:
        groups = []
    found = yield from page_of_groups(arguments, groups, (offset, size), sort, by_size, descending=descending)
    body = {
        "Resources": [_resource(one) for one in found],
        "TotalCount": len(groups),
        "PageNumber": offset // size + 1,
        "PageSize": size,
    }
    return answer(body, arguments)


def _resource(one: SizedGroup) -> dict[str, Any]:
    capacity = one.capacity
    # Machines without cores and without memory are those with unknown sizes.
    known = bool(capacity.cpu or capacity.memory or capacity.devices)
    return present(
        {
            "ResourceId": one.group.name,
            "ResourceName": one.group.name,
            "ClusterId": cluster_of(one.group.clusters),
            "Status": READY,
            "InstanceCount": one.nodes,
            "CpuCount": whole(capacity.cpu) or None,
            "GpuCount": capacity.devices if known else None,
            "CreateTime": stamp(one.group.created),
            "UpdateTime": stamp(one.group.updated),
        }
    )
