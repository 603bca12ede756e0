"""ListNodes: the nodes of resource groups, one by one.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listnodes
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from jobmeter.dialects.alibaba.common.groups import find_groups
from jobmeter.dialects.alibaba.common.listing import drop_empty, sort_records
from jobmeter.dialects.alibaba.common.operation import ORDER, Ignored, Lookup, answer, operation, select_given
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.names import READY, StudioPageRequest, format_gibibytes, format_number
from jobmeter.dialects.alibaba.pai_studio.operations.machines import (
    ACCELERATORS,
    choose_accelerator,
    make_kind,
    make_machine_group_id,
    read_loads,
)
from jobmeter.dialects.base import MissingFieldError, Steps
from jobmeter.dialects.base.request import Choice, list_names
from jobmeter.model.order import make_natural_key
from jobmeter.query.group import NodeLoad
from jobmeter.query.nodes import NodeState

STATUSES: Mapping[NodeState, str] = {NodeState.UP: READY, NodeState.DOWN: "NotReady", NodeState.UNKNOWN: "Unknown"}
_Unknown = Annotated[str, "No node has it: a filter on it selects none."]
_UNKNOWN_FILTERS = (
    *("availability_zone", "clique_id", "disk_pl", "health_count", "health_rate", "hyper_node", "hyper_zone"),
    *("node_types", "order_instance_ids", "order_statuses", "payment_type", "reason_codes"),
)


class NodeMember(NamedTuple):
    """A node and the resource group through which it was found."""

    group: str
    load: NodeLoad


NodeSort = Callable[[NodeMember], Any]
NODE_SORTS: Mapping[str, NodeSort] = {
    "NodeName": lambda one: make_natural_key(one.load.node.name),
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


@operation("GET /api/v1/nodes", "nodes:read", by_resource=True)
class ListNodes(StudioPageRequest, frozen=True, kw_only=True):
    """Lists the nodes of resource groups: `{Nodes, TotalCount, RequestId}`.

    A member is `{NodeName, NodeStatus, AcceleratorType, CPU, Memory, GPU, GPUType, ResourceGroupId, ResourceGroupName,
    MachineGroupId, IsBound, BoundQuotas, GmtCreateTime, GmtCreatedTime, GmtModifiedTime}`, numbers as texts, memory in
    GiB, and with Verbose `{RequestCPU, RequestMemory, RequestGPU, PodNum, WorkloadNum, Users}`, which describe running
    replicas. A node is NotReady if it sends nothing, Unknown if it never described itself; unknown fields are left out.
    """

    resource_group_ids: Annotated[
        tuple[str, ...],
        "Groups, separated by commas. This or QuotaId is required.",
        Meta(max_length=100),
    ] = ()
    quota_id: Annotated[str, "A quota: every resource group is one, of the same id."] = ""
    filter_by_resource_group_ids: Annotated[tuple[str, ...], "With QuotaId: nodes of these groups alone."] = ()
    filter_by_quota_id: Annotated[str, "With ResourceGroupIds: nodes of this quota alone."] = ""
    resource_group_name: Annotated[str, "Nodes of the group of that name alone."] = ""
    workspace_id: Annotated[str, "Nodes of groups that have jobs of this workspace."] = ""
    node_names: Annotated[tuple[str, ...], "Separated by commas. Default: all."] = ()
    node_statuses: Annotated[
        tuple[str, ...], f"Of {list_names(STATUSES.values())}, separated by commas. Default: all."
    ] = ()
    accelerator_type: Annotated[str, "Nodes without or with devices.", Choice(ACCELERATORS)] = ""
    gpu_type: Annotated[str, "Part of a device's model, in any letter case."] = field(default="", name="GPUType")
    machine_group_ids: Annotated[
        tuple[str, ...], "Separated by commas, as ListResourceGroupMachineGroups names them."
    ] = ()
    pod_num: Annotated[int | None, "Nodes with exactly this number of replicas.", Meta(ge=0, le=10**9)] = None
    workload_num: Annotated[int | None, "Nodes with replicas of exactly this number of jobs.", Meta(ge=0, le=10**9)] = (
        None
    )
    availability_zone: _Unknown = ""
    clique_id: _Unknown = field(default="", name="CliqueID")
    disk_pl: _Unknown = field(default="", name="DiskPL")
    health_count: _Unknown = ""
    health_rate: _Unknown = ""
    hyper_node: _Unknown = ""
    hyper_zone: _Unknown = ""
    node_types: _Unknown = ""
    order_instance_ids: _Unknown = ""
    order_statuses: _Unknown = ""
    payment_type: _Unknown = ""
    reason_codes: _Unknown = ""
    verbose: Annotated[bool, "`true`: what runs on each node as well."] = False
    layout_mode: Ignored = ""
    sort_by: Annotated[str, Choice(tuple(NODE_SORTS))] = "NodeName"
    order: Annotated[bool, ORDER] = False

    def _steps(self) -> Steps:
        members = yield from self._members(self._groups())
        found = sort_records(filter(self._matches_filters, members), NODE_SORTS[self.sort_by], descending=self.order)
        offset, size = self.page
        nodes = [_node(one, verbose=self.verbose) for one in found[offset : offset + size]]
        return answer({"Nodes": nodes, "TotalCount": len(found)}, self)

    def _groups(self) -> tuple[str, ...]:
        """Return the groups whose nodes are listed. Raises MissingFieldError if the call names none."""
        if not self.quota_id and not self.resource_group_ids:
            raise MissingFieldError("ResourceGroupIds or QuotaId is mandatory for this action", "ResourceGroupIds")
        named = tuple(dict.fromkeys(self.resource_group_ids or (self.quota_id,)))
        limits = (
            select_given(self.quota_id),
            select_given(self.filter_by_quota_id),
            select_given(self.resource_group_name),
            frozenset(self.filter_by_resource_group_ids),
        )
        return tuple(name for name in named if all(not limit or name in limit for limit in limits))

    def _members(self, groups: Sequence[str]) -> Lookup[list[NodeMember]]:
        found = []
        if self.workspace_id and groups:
            within = yield from find_groups(groups)
            groups = [one.name for one in within if self.workspace_id in one.workspaces]
        for group in groups:
            loads = yield from read_loads(self, group)
            found += [NodeMember(group, load) for load in loads]
        return found

    def _matches_filters(self, one: NodeMember) -> bool:
        """Return True for a node that matches the call's filters."""
        load, kind = one.load, make_kind(one.load)
        return (
            not any(getattr(self, name) for name in _UNKNOWN_FILTERS)
            and (not self.node_names or load.node.name in self.node_names)
            and (not self.node_statuses or STATUSES[load.state].casefold() in map(str.casefold, self.node_statuses))
            and self.accelerator_type in {"", choose_accelerator(kind)}
            and self.gpu_type.casefold() in kind.models.casefold()
            and (not self.machine_group_ids or make_machine_group_id(one.group, kind) in self.machine_group_ids)
            and self.pod_num in {None, load.load.replicas}
            and self.workload_num in {None, len(load.load.jobs)}
        )


def _node(one: NodeMember, *, verbose: bool) -> dict[str, Any]:
    load, kind = one.load, make_kind(one.load)
    created = stamp(load.node.first_seen)
    fields = drop_empty(
        {
            "NodeName": load.node.name,
            "NodeStatus": STATUSES[load.state],
            "AcceleratorType": choose_accelerator(kind),
            "CPU": format_number(load.capacity.cpu) if load.capacity.cpu else None,
            "Memory": format_gibibytes(load.capacity.memory) if load.capacity.memory else None,
            "GPU": None if kind.devices is None else str(kind.devices),
            "GPUType": kind.models,
            "ResourceGroupId": one.group,
            "ResourceGroupName": one.group,
            "MachineGroupId": make_machine_group_id(one.group, kind),
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
        "RequestCPU": format_number(own.requested.cpu),
        "RequestMemory": format_gibibytes(own.requested.memory),
        "RequestGPU": str(own.requested.devices),
        "PodNum": own.replicas,
        "WorkloadNum": len(own.jobs),
        "Users": [{"UserId": user, "UserName": user} for user in own.users],
    }
