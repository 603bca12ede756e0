"""ListResources: the resource groups that records of nodes and jobs name.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eas-2021-07-01-listresources
"""

from collections.abc import Mapping
from typing import Annotated, Any

from jobmeter.dialects.alibaba.common.groups import GroupSort, SizedGroup, SizeSort, find_groups, read_group_page
from jobmeter.dialects.alibaba.common.listing import drop_empty
from jobmeter.dialects.alibaba.common.operation import answer, operation, select_given
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.eas.names import READY, EasPageRequest, choose_cluster
from jobmeter.dialects.base import Steps, round_up
from jobmeter.dialects.base.request import Choice

SORTS: Mapping[str, GroupSort] = {
    "CreateTime": lambda group: group.created,
    "ServiceCount": lambda group: group.jobs,
    **dict.fromkeys(("PrePaidInstanceCount", "PostPaidInstanceCount"), lambda _: None),
}
SIZE_SORTS: Mapping[str, SizeSort] = {
    "CpuCount": lambda one: one.capacity.cpu,
    "Memory": lambda one: one.capacity.memory,
    "GpuCount": lambda one: one.capacity.devices,
    "CpuUsed": lambda one: one.running.cpu,
    "MemoryUsed": lambda one: one.running.memory,
    "GpuUsed": lambda one: one.running.devices,
}


@operation("GET /api/v2/resources", "nodes:read", by_resource=True)
class ListResources(EasPageRequest, frozen=True, kw_only=True):
    """Lists the resource groups: `{Resources, TotalCount, PageNumber, PageSize, RequestId}`.

    A member is `{ResourceId, ResourceName, ClusterId, Status, InstanceCount, CpuCount, GpuCount, CreateTime,
    UpdateTime}`: an instance is a node, and unknown fields are left out.
    """

    resource_id: Annotated[str, "The group of that name. Default: all."] = ""
    resource_name: Annotated[str, "Alias of ResourceId."] = ""
    resource_status: Annotated[str, f"Groups in that status. Every group is `{READY}`."] = ""
    resource_type: Annotated[
        str,
        "Changes nothing: the type of a group is unknown.",
        Choice(("Dedicated", "SelfManaged")),
    ] = ""
    sort: Annotated[str, Choice((*SORTS, *SIZE_SORTS))] = "CreateTime"

    def _steps(self) -> Steps:
        groups = yield from find_groups(select_given(self.resource_id), select_given(self.resource_name))
        if self.resource_status.casefold() not in {"", READY.casefold()}:
            groups = []
        found = yield from read_group_page(
            self, groups, self.page, SORTS.get(self.sort), SIZE_SORTS.get(self.sort), descending=self.order
        )
        body = {
            "Resources": [_resource(one) for one in found],
            "TotalCount": len(groups),
            "PageNumber": self.page_number,
            "PageSize": self.page_size,
        }
        return answer(body, self)


def _resource(one: SizedGroup) -> dict[str, Any]:
    capacity = one.capacity
    # Machines without cores and without memory are those with unknown sizes.
    known = bool(capacity.cpu or capacity.memory or capacity.devices)
    return drop_empty(
        {
            "ResourceId": one.group.name,
            "ResourceName": one.group.name,
            "ClusterId": choose_cluster(one.group.clusters),
            "Status": READY,
            "InstanceCount": one.nodes,
            "CpuCount": round_up(capacity.cpu) or None,
            "GpuCount": capacity.devices if known else None,
            "CreateTime": stamp(one.group.created),
            "UpdateTime": stamp(one.group.updated),
        }
    )
