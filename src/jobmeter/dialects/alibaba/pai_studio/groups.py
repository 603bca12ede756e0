"""ListResourceGroups and GetResourceGroup.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listresourcegroups
https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-getresourcegroup
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.groups import NOW_MS, GroupSort, groups_named, node_count, one_group
from jobmeter.dialects.alibaba.common.listing import in_order, present
from jobmeter.dialects.alibaba.common.operation import Arguments, Lookup, answer, in_path, in_query, listed, operation
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.names import PAGES, READY, page
from jobmeter.dialects.base import Steps
from jobmeter.model.order import natural
from jobmeter.query.group import ResourceGroup

RESOURCE_TYPES = ("ECS", "Lingjun", "ACS")
RESOURCE_TYPE = in_query("ResourceType", f"One of {listed(RESOURCE_TYPES)}; changes nothing.")
ORDER = in_query("Order", "`asc` (default) or `desc`.")


def _unknown(_: ResourceGroup) -> None:
    """Return None for every group: the sort by a field that no group has keeps their order."""


SORTS: Mapping[str, GroupSort] = MappingProxyType(
    {
        "DisplayName": lambda group: natural(group.name),
        "GmtCreated": lambda group: group.created,
        "GmtModified": lambda group: group.updated,
        **dict.fromkeys(("RegionID", "Duration", "PricingCycle", "PayType"), _unknown),
    }
)


@operation(
    "GET /api/v1/resources",
    "nodes:read",
    in_query("Name", "The group of that name. Default: all."),
    in_query("ResourceGroupIDs", "Groups, separated by commas. Default: all."),
    in_query("Status", f"Groups in that status. Every group is `{READY}`."),
    in_query("HasResource", "`true`: groups with nodes; `false`: groups without."),
    RESOURCE_TYPE,
    in_query("ComputingResourceProvider", "Changes nothing."),
    in_query("Versions", "Changes nothing."),
    in_query("ShowAll", "`true`: all groups in one page. Default: `false`."),
    in_query("SortBy", f"One of {listed(SORTS)}; of the last four nothing is known. Default: `DisplayName`."),
    ORDER,
    *PAGES,
    by_resource=True,
)
def list_resource_groups(arguments: Arguments) -> Steps:
    """Lists the resource groups that records of nodes and jobs name: `{ResourceGroups, TotalCount, RequestId}`.

    A member is `{ResourceGroupID, Name, Status, NodeCount, WorkspaceID, GmtCreatedTime, GmtModifiedTime}`. WorkspaceID
    is left out if the group's jobs have none or several.
    """
    offset, size = page(arguments)
    check_type(arguments)
    descending = arguments.descending(default=False)
    sort = arguments.choice("SortBy", SORTS, SORTS["DisplayName"])
    everything = arguments.flag("ShowAll")
    groups: Sequence[ResourceGroup] = []
    if ready(arguments):
        groups = yield from groups_named(arguments.given("Name"), arguments.names("ResourceGroupIDs"))
    if arguments.text("HasResource"):
        groups = yield from _with_nodes(arguments, groups, there=arguments.flag("HasResource"))
    ordered = in_order(groups, sort, descending=descending)
    members = []
    for group in ordered if everything else ordered[offset : offset + size]:
        nodes = yield from node_count(group, arguments.lately(NOW_MS))
        members.append({**group_fields(group), "NodeCount": nodes})
    return answer({"ResourceGroups": members, "TotalCount": len(groups)}, arguments)


@operation(
    "GET /api/v1/resources/{ResourceGroupID}",
    "nodes:read",
    in_path("ResourceGroupID", "The resource group, as job and node records name it."),
    in_query("IsAIWorkspaceDataEnabled", "`true` or `false`; changes nothing."),
    in_query("Tag", "Changes nothing: a group has no tags."),
    by_resource=True,
)
def get_resource_group(arguments: Arguments) -> Steps:
    """Returns one resource group.

    `{Name, Status, ClusterID, WorkspaceID, GmtCreatedTime, GmtModifiedTime, Tags, RequestId}`. ClusterID and
    WorkspaceID are left out if there are none or several.
    """
    name = arguments.required("ResourceGroupID")
    arguments.flag("IsAIWorkspaceDataEnabled")
    group = yield from one_group(name)
    [cluster] = group.clusters if len(group.clusters) == 1 else [""]
    fields = {**group_fields(group), "ClusterID": cluster, "Tags": []}
    fields.pop("ResourceGroupID")
    return answer(present(fields), arguments)


def group_fields(group: ResourceGroup) -> dict[str, Any]:
    """Return the fields of a group that are known without counting its nodes."""
    [workspace] = group.workspaces if len(group.workspaces) == 1 else [""]
    return present(
        {
            "ResourceGroupID": group.name,
            "Name": group.name,
            "Status": READY,
            "WorkspaceID": workspace,
            "GmtCreatedTime": stamp(group.created),
            "GmtModifiedTime": stamp(group.updated),
        }
    )


def ready(arguments: Arguments, name: str = "Status") -> bool:
    """Return True if a filter on the status, a comma-separated list, is empty or includes Ready."""
    statuses = arguments.names(name)
    return not statuses or READY.casefold() in {one.casefold() for one in statuses}


def check_type(arguments: Arguments) -> None:
    """Raise InvalidRequestError for an unknown ResourceType.

    The type of a group's machines is unknown: it filters nothing.
    """
    arguments.word("ResourceType", RESOURCE_TYPES)


def _with_nodes(arguments: Arguments, groups: Sequence[ResourceGroup], *, there: bool) -> Lookup[list[ResourceGroup]]:
    found = []
    for group in groups:
        nodes = yield from node_count(group, arguments.lately(NOW_MS))
        if bool(nodes) is there:
            found.append(group)
    return found
