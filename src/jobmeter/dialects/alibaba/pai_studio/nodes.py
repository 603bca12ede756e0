"""ListNodes: the nodes of resource groups, one by one.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listnodes
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from jobmeter.dialects.alibaba.common.groups import groups_named
from jobmeter.dialects.alibaba.common.listing import in_order, present
from jobmeter.dialects.alibaba.common.operation import Arguments, Lookup, answer, in_query, listed, operation
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.groups import ORDER
from jobmeter.dialects.alibaba.pai_studio.machines import (
    ACCELERATORS,
    accelerator_of,
    kind_of,
    loads_of,
    machine_group_id,
)
from jobmeter.dialects.alibaba.pai_studio.names import PAGES, READY, gibibytes_text, number_text, page
from jobmeter.dialects.base import MissingFieldError, Steps
from jobmeter.model.order import natural
from jobmeter.query.group import NodeLoad
from jobmeter.query.nodes import NodeState

MOST_GROUPS = 100
"""Most groups whose nodes one call lists."""
STATUSES: Mapping[NodeState, str] = MappingProxyType(
    {NodeState.UP: READY, NodeState.DOWN: "NotReady", NodeState.UNKNOWN: "Unknown"}
)
UNKNOWN_OF_NODES = (
    *("AvailabilityZone", "CliqueID", "DiskPL", "HealthCount", "HealthRate", "HyperNode", "HyperZone", "NodeTypes"),
    *("OrderInstanceIds", "OrderStatuses", "PaymentType", "ReasonCodes"),
)
"""Filters on unknown facts of a node."""
_NO_NODE = "No node has it: a filter on it selects none."


class Member(NamedTuple):
    """A node and the resource group through which it was found."""

    group: str
    load: NodeLoad


NodeSort = Callable[[Member], Any]
NODE_SORTS: Mapping[str, NodeSort] = MappingProxyType(
    {
        "NodeName": lambda one: natural(one.load.node.name),
        "NodeStatus": lambda one: STATUSES[one.load.state],
        "CPU": lambda one: one.load.capacity.cpu,
        "Memory": lambda one: one.load.capacity.memory,
        "GPU": lambda one: one.load.capacity.devices,
        "RequestCPU": lambda one: one.load.load.requested.cpu,
        "RequestMemory": lambda one: one.load.load.requested.memory,
        "RequestGPU": lambda one: one.load.load.requested.devices,
        "PodNum": lambda one: one.load.load.replicas,
        "WorkloadNum": lambda one: len(one.load.load.jobs),
        "GmtCreateTime": lambda one: one.load.node.first_seen,
        "GmtModifiedTime": lambda one: one.load.node.last_seen,
    }
)


@operation(
    "GET /api/v1/nodes",
    "nodes:read",
    in_query("ResourceGroupIds", f"Up to {MOST_GROUPS} groups, separated by commas. This or QuotaId is required."),
    in_query("QuotaId", "A quota: every resource group is one, of the same id."),
    in_query("FilterByResourceGroupIds", "With QuotaId: nodes of these groups alone."),
    in_query("FilterByQuotaId", "With ResourceGroupIds: nodes of this quota alone."),
    in_query("ResourceGroupName", "Nodes of the group of that name alone."),
    in_query("WorkspaceId", "Nodes of groups that have jobs of this workspace."),
    in_query("NodeNames", "Separated by commas. Default: all."),
    in_query("NodeStatuses", f"Of {listed(STATUSES.values())}, separated by commas. Default: all."),
    in_query("AcceleratorType", f"`{ACCELERATORS[0]}` or `{ACCELERATORS[1]}`: nodes without or with devices."),
    in_query("GPUType", "Part of a device's model, in any letter case."),
    in_query("MachineGroupIds", "Separated by commas, as ListResourceGroupMachineGroups names them."),
    in_query("PodNum", "Nodes with so many replicas."),
    in_query("WorkloadNum", "Nodes with replicas of so many jobs."),
    *(in_query(name, _NO_NODE) for name in UNKNOWN_OF_NODES),
    in_query("Verbose", "`true`: what runs on each node as well. Default: `false`."),
    in_query("LayoutMode", "Changes nothing."),
    in_query("SortBy", f"One of {listed(NODE_SORTS)}. Default: `NodeName`."),
    ORDER,
    *PAGES,
    by_resource=True,
)
def list_nodes(arguments: Arguments) -> Steps:
    """Lists the nodes of resource groups: `{Nodes, TotalCount, RequestId}`.

    A member is `{NodeName, NodeStatus, AcceleratorType, CPU, Memory, GPU, GPUType, ResourceGroupId, ResourceGroupName,
    MachineGroupId, IsBound, BoundQuotas, GmtCreateTime, GmtCreatedTime, GmtModifiedTime}`, numbers as texts, memory in
    GiB, and with Verbose `{RequestCPU, RequestMemory, RequestGPU, PodNum, WorkloadNum, Users}`, which describe running
    replicas. A node is NotReady if it sends nothing, Unknown if it never described itself; unknown fields are left out.
    """
    groups = _groups(arguments)
    offset, size = page(arguments)
    matches = _filter(arguments)
    sort = arguments.choice("SortBy", NODE_SORTS, NODE_SORTS["NodeName"])
    descending, verbose = arguments.descending(default=False), arguments.flag("Verbose")
    members = yield from _members(arguments, groups)
    found = in_order(filter(matches, members), sort, descending=descending)
    nodes = [_node(one, verbose=verbose) for one in found[offset : offset + size]]
    return answer({"Nodes": nodes, "TotalCount": len(found)}, arguments)


def _groups(arguments: Arguments) -> tuple[str, ...]:
    """Return the groups whose nodes are listed. Raises MissingFieldError if the call names none."""
    quota, groups = arguments.text("QuotaId"), arguments.names("ResourceGroupIds", MOST_GROUPS)
    if not quota and not groups:
        raise MissingFieldError("ResourceGroupIds or QuotaId is mandatory for this action", "ResourceGroupIds")
    named = tuple(dict.fromkeys(groups or (quota,)))
    limits = (
        arguments.given("QuotaId"),
        arguments.given("FilterByQuotaId"),
        arguments.given("ResourceGroupName"),
        frozenset(arguments.names("FilterByResourceGroupIds")),
    )
    return tuple(name for name in named if all(not limit or name in limit for limit in limits))


def _members(arguments: Arguments, groups: Sequence[str]) -> Lookup[list[Member]]:
    found = []
    workspace = arguments.text("WorkspaceId")
    if workspace and groups:
        within = yield from groups_named(groups)
        groups = [one.name for one in within if workspace in one.workspaces]
    for group in groups:
        loads = yield from loads_of(arguments, group)
        found += [Member(group, load) for load in loads]
    return found


def _filter(arguments: Arguments) -> Callable[[Member], bool]:
    """Return a predicate for the nodes that match the call's filters."""
    names, machine_groups = (frozenset(arguments.names(name)) for name in ("NodeNames", "MachineGroupIds"))
    statuses = {one.casefold() for one in arguments.names("NodeStatuses")}
    accelerator = arguments.word("AcceleratorType", ACCELERATORS)
    gpu_type = arguments.text("GPUType").casefold()
    pods, jobs = (_count(arguments, name) for name in ("PodNum", "WorkloadNum"))
    nothing = bool(arguments.given(*UNKNOWN_OF_NODES))

    def fits(one: Member) -> bool:
        load, kind = one.load, kind_of(one.load)
        return (
            not nothing
            and (not names or load.node.name in names)
            and (not statuses or STATUSES[load.state].casefold() in statuses)
            and accelerator in {"", accelerator_of(kind)}
            and gpu_type in kind.models.casefold()
            and (not machine_groups or machine_group_id(one.group, kind) in machine_groups)
            and pods in {None, load.load.replicas}
            and jobs in {None, len(load.load.jobs)}
        )

    return fits


def _count(arguments: Arguments, name: str) -> int | None:
    return arguments.integer(name, 0, 0, 10**9) if arguments.text(name) else None


def _node(one: Member, *, verbose: bool) -> dict[str, Any]:
    load, kind = one.load, kind_of(one.load)
    created = stamp(load.node.first_seen)
    fields = present(
        {
            "NodeName": load.node.name,
            "NodeStatus": STATUSES[load.state],
            "AcceleratorType": accelerator_of(kind),
            "CPU": number_text(load.capacity.cpu) if load.capacity.cpu else None,
            "Memory": gibibytes_text(load.capacity.memory) if load.capacity.memory else None,
            "GPU": None if kind.devices is None else str(kind.devices),
            "GPUType": kind.models,
            "ResourceGroupId": one.group,
            "ResourceGroupName": one.group,
            "MachineGroupId": machine_group_id(one.group, kind),
            "IsBound": True,
            "BoundQuotas": [{"QuotaId": one.group, "QuotaName": one.group}],
            "GmtCreateTime": created,
            "GmtCreatedTime": created,
            "GmtModifiedTime": stamp(load.node.last_seen),
        }
    )
    return {**fields, **_usage(load)} if verbose else fields


def _usage(load: NodeLoad) -> dict[str, Any]:
    own = load.load
    return {
        "RequestCPU": number_text(own.requested.cpu),
        "RequestMemory": gibibytes_text(own.requested.memory),
        "RequestGPU": str(own.requested.devices),
        "PodNum": own.replicas,
        "WorkloadNum": len(own.jobs),
        "Users": [{"UserId": user, "UserName": user} for user in own.users],
    }
