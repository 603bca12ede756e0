"""ListResourceGroups and GetResourceGroup.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listresourcegroups
https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-getresourcegroup
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import field

from jobmeter.dialects.alibaba.common.groups import NOW_MS, GroupSort, count_nodes, find_group, find_groups
from jobmeter.dialects.alibaba.common.listing import drop_empty, sort_records
from jobmeter.dialects.alibaba.common.operation import (
    FLAG,
    ORDER,
    AlibabaRequest,
    Ignored,
    Lookup,
    answer,
    operation,
    select_given,
)
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.names import READY, GroupRequest, StudioPageRequest
from jobmeter.dialects.base import Steps
from jobmeter.dialects.base.request import Choice
from jobmeter.model.order import make_natural_key
from jobmeter.query.group import ResourceGroup

ResourceType = Annotated[str, "Changes nothing: the type is unknown.", Choice(("ECS", "Lingjun", "ACS"))]


def _sort_by_nothing(_: ResourceGroup) -> None:
    """Return None for every group: sorting by a field that no group has keeps the order."""


SORTS: Mapping[str, GroupSort] = {
    "DisplayName": lambda group: make_natural_key(group.name),
    "GmtCreated": lambda group: group.created,
    "GmtModified": lambda group: group.updated,
    **dict.fromkeys(("RegionID", "Duration", "PricingCycle", "PayType"), _sort_by_nothing),
}


@operation("GET /api/v1/resources", "nodes:read", by_resource=True)
class ListResourceGroups(StudioPageRequest, frozen=True, kw_only=True):
    """Lists the resource groups that records of nodes and jobs name: `{ResourceGroups, TotalCount, RequestId}`.

    A member is `{ResourceGroupID, Name, Status, NodeCount, WorkspaceID, GmtCreatedTime, GmtModifiedTime}`. WorkspaceID
    is left out if the group's jobs have none or several.
    """

    name: Annotated[str, "The group of that name. Default: all."] = ""
    resource_group_ids: Annotated[tuple[str, ...], "Groups, separated by commas. Default: all."] = field(
        default=(), name="ResourceGroupIDs"
    )
    status: Annotated[tuple[str, ...], f"Groups in that status. Every group is `{READY}`."] = ()
    has_resource: Annotated[bool | None, "`true`: groups with nodes; `false`: groups without.", FLAG] = None
    resource_type: ResourceType = ""
    computing_resource_provider: Ignored = ""
    versions: Ignored = ""
    show_all: Annotated[bool, "`true`: all groups in one page."] = False
    sort_by: Annotated[str, "The last four are unknown for every group.", Choice(tuple(SORTS))] = "DisplayName"
    order: Annotated[bool, ORDER] = False

    def _steps(self) -> Steps:
        groups: Sequence[ResourceGroup] = []
        if includes_ready(self.status):
            groups = yield from find_groups(select_given(self.name), self.resource_group_ids)
        if self.has_resource is not None:
            groups = yield from _select_with_nodes(self, groups, there=self.has_resource)
        offset, size = self.page
        ordered = sort_records(groups, SORTS[self.sort_by], descending=self.order)
        members = []
        for group in ordered if self.show_all else ordered[offset : offset + size]:
            nodes = yield from count_nodes(group, self.make_recent_range(NOW_MS))
            members.append({**group_fields(group), "NodeCount": nodes})
        return answer({"ResourceGroups": members, "TotalCount": len(groups)}, self)


@operation("GET /api/v1/resources/{ResourceGroupID}", "nodes:read", by_resource=True)
class GetResourceGroup(GroupRequest, frozen=True, kw_only=True):
    """Returns one resource group.

    `{Name, Status, ClusterID, WorkspaceID, GmtCreatedTime, GmtModifiedTime, Tags, RequestId}`. ClusterID and
    WorkspaceID are left out if there are none or several.
    """

    is_ai_workspace_data_enabled: Annotated[bool, "Changes nothing."] = field(
        default=False, name="IsAIWorkspaceDataEnabled"
    )
    tag: Annotated[str, "Changes nothing: a group has no tags."] = ""

    def _steps(self) -> Steps:
        group = yield from find_group(self.resource_group_id)
        [cluster] = group.clusters if len(group.clusters) == 1 else [""]
        fields = {**group_fields(group), "ClusterID": cluster, "Tags": []}
        fields.pop("ResourceGroupID")
        return answer(drop_empty(fields), self)


def group_fields(group: ResourceGroup) -> dict[str, Any]:
    """Return the fields of a group that are known without counting its nodes."""
    [workspace] = group.workspaces if len(group.workspaces) == 1 else [""]
    return drop_empty(
        {
            "ResourceGroupID": group.name,
            "Name": group.name,
            "Status": READY,
            "WorkspaceID": workspace,
            "GmtCreatedTime": stamp(group.created),
            "GmtModifiedTime": stamp(group.updated),
        }
    )


def includes_ready(statuses: Sequence[str]) -> bool:
    """Return True if a filter on the status is empty or includes Ready."""
    return not statuses or READY.casefold() in {one.casefold() for one in statuses}


def _select_with_nodes(
    request: AlibabaRequest, groups: Sequence[ResourceGroup], *, there: bool
) -> Lookup[list[ResourceGroup]]:
    found = []
    for group in groups:
        nodes = yield from count_nodes(group, request.make_recent_range(NOW_MS))
        if bool(nodes) is there:
            found.append(group)
    return found
