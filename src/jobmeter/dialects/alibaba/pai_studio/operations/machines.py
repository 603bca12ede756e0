"""The nodes of a resource group by kind, and ListResourceGroupMachineGroups.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listresourcegroupmachinegroups
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

from msgspec import field

from jobmeter.dialects.alibaba.common.groups import NOW_MS
from jobmeter.dialects.alibaba.common.listing import drop_empty, sort_records
from jobmeter.dialects.alibaba.common.operation import ORDER, AlibabaRequest, Lookup, answer, operation
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.names import GIB, READY, Group, StudioPageRequest, join_device_models
from jobmeter.dialects.alibaba.pai_studio.operations.groups import includes_ready
from jobmeter.dialects.base import Steps, ask, round_up
from jobmeter.dialects.base.request import Choice
from jobmeter.model.grouping import group_pairs
from jobmeter.query.group import NodeLoad, NodeLoadsQuestion
from jobmeter.query.request import GroupRef

ACCELERATORS = ("CPU", "GPU")
"""The words for machines without devices, and with devices."""
_Unknown = Annotated[str, "No machine group has it: a filter on it selects none."]
_UNKNOWN_FILTERS = (
    *("creator_id", "disk_pl", "ecs_spec", "order_instance_id", "payment_duration", "payment_duration_unit"),
    "payment_type",
)


class MachineKind(NamedTuple):
    """A kind of machine: cores, GiB of memory, devices and their models. None if unknown."""

    cpu: int | None
    memory: int | None
    devices: int | None
    models: str


MACHINE_GROUP_SORTS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "MachineGroupID": lambda one: one["MachineGroupID"],
    "EcsCount": lambda one: one["EcsCount"],
    "Cpu": lambda one: one.get("Cpu"),
    "Memory": lambda one: one.get("Memory"),
    "Gpu": lambda one: one.get("Gpu"),
    "GmtCreatedTime": lambda one: one.get("GmtCreatedTime"),
    "GmtModifiedTime": lambda one: one.get("GmtModifiedTime"),
}


@operation("GET /api/v1/resources/{ResourceGroupID}/machinegroups", "nodes:read", by_resource=True)
class ListResourceGroupMachineGroups(StudioPageRequest, frozen=True, kw_only=True):
    """Lists the nodes of a resource group by kind: `{MachineGroups, TotalCount, RequestId}`, `TotalCount` as text.

    A member is `{MachineGroupID, ResourceGroupID, Status, EcsCount, Cpu, Memory, Gpu, GpuType, GmtCreatedTime,
    GmtModifiedTime}`: nodes with as many cores, GiB of memory and devices of the same model. The sizes are of one
    node, left out if unknown. The times are the first reports of the oldest and of the newest node.
    """

    resource_group_id: Group = field(name="ResourceGroupID")
    machine_group_ids: Annotated[tuple[str, ...], "Separated by commas. Default: all."] = field(
        default=(), name="MachineGroupIDs"
    )
    name: Annotated[str, "The machine group of that id."] = ""
    status: Annotated[tuple[str, ...], f"Machine groups in that status. Every one is `{READY}`."] = ()
    creator_id: _Unknown = field(default="", name="CreatorID")
    disk_pl: _Unknown = field(default="", name="DiskPL")
    ecs_spec: _Unknown = ""
    order_instance_id: _Unknown = ""
    payment_duration: _Unknown = ""
    payment_duration_unit: _Unknown = ""
    payment_type: _Unknown = ""
    sort_by: Annotated[str, Choice(tuple(MACHINE_GROUP_SORTS))] = "MachineGroupID"
    order: Annotated[bool, ORDER] = False

    def _steps(self) -> Steps:
        loads = yield from read_loads(self, self.resource_group_id)
        names = self.machine_group_ids
        found = [
            one
            for one in _machine_groups(self.resource_group_id, loads)
            if (not names or one["MachineGroupID"] in names) and self.name in {"", one["MachineGroupID"]}
        ]
        if not includes_ready(self.status) or any(getattr(self, name) for name in _UNKNOWN_FILTERS):
            found = []
        offset, size = self.page
        ordered = sort_records(found, MACHINE_GROUP_SORTS[self.sort_by], descending=self.order)
        body = {"MachineGroups": ordered[offset : offset + size], "TotalCount": str(len(found))}
        return answer(body, self)


def read_loads(request: AlibabaRequest, group: str) -> Lookup[Sequence[NodeLoad]]:
    """Return the nodes of a resource group with their current load. Raises NotFoundError for an unknown group."""
    span, silent_ms = request.make_recent_range(NOW_MS), request.context.silent_ms
    return (yield from ask(NodeLoadsQuestion(group=GroupRef(group), range=span, silent_ms=silent_ms)))


def make_kind(load: NodeLoad) -> MachineKind:
    """Return the kind of a node.

    Memory is rounded to GiB, because kernels of the same machines reserve different sizes.
    """
    capacity = load.capacity
    return MachineKind(
        cpu=round_up(capacity.cpu) or None,
        memory=round(capacity.memory / GIB) or None,
        devices=capacity.devices or (0 if load.node.info else None),
        models=join_device_models(sorted(capacity.device_types)),
    )


def make_machine_group_id(group: str, kind: MachineKind) -> str:
    """Return the id of a group's nodes of one kind. The id depends only on the group and the kind."""
    return f"mg-{blake2b(repr((group, *kind)).encode(), digest_size=8).hexdigest()}"


def choose_accelerator(kind: MachineKind) -> str:
    """Return the member of ``ACCELERATORS`` for a kind of machine; an empty text if its devices are unknown."""
    return "" if kind.devices is None else ACCELERATORS[bool(kind.devices)]


def _machine_groups(group: str, loads: Sequence[NodeLoad]) -> list[dict[str, Any]]:
    kinds = group_pairs((make_kind(load), load) for load in loads)
    return [_machine_group(group, kind, members) for kind, members in kinds.items()]


def _machine_group(group: str, kind: MachineKind, members: Sequence[NodeLoad]) -> dict[str, Any]:
    seen = [one.node.first_seen for one in members if one.node.first_seen is not None]
    return drop_empty(
        {
            "MachineGroupID": make_machine_group_id(group, kind),
            "ResourceGroupID": group,
            "Status": READY,
            "EcsCount": len(members),
            "Cpu": kind.cpu,
            "Memory": kind.memory,
            "Gpu": kind.devices,
            "GpuType": kind.models,
            "GmtCreatedTime": stamp(min(seen, default=None)),
            "GmtModifiedTime": stamp(max(seen, default=None)),
        }
    )
