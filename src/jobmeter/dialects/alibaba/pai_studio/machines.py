"""The nodes of a resource group by kind, and ListResourceGroupMachineGroups.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-paistudio-2022-01-12-listresourcegroupmachinegroups
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple

from jobmeter.dialects.alibaba.common.groups import NOW_MS
from jobmeter.dialects.alibaba.common.listing import in_order, present
from jobmeter.dialects.alibaba.common.operation import Arguments, Lookup, answer, in_path, in_query, listed, operation
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.alibaba.pai_studio.groups import ORDER, ready
from jobmeter.dialects.alibaba.pai_studio.names import (
    GIB,
    PAGES,
    READY,
    device_models,
    page,
)
from jobmeter.dialects.base import Steps, execute, whole
from jobmeter.query.group import NodeLoad, NodeLoadsQuestion
from jobmeter.query.request import GroupRef

ACCELERATORS = ("CPU", "GPU")
"""Machines without devices, and with devices."""
UNKNOWN_OF_MACHINE_GROUPS = (
    *("CreatorID", "DiskPL", "EcsSpec", "OrderInstanceId", "PaymentDuration", "PaymentDurationUnit", "PaymentType"),
)
"""Filters on unknown facts of a machine group."""
_NO_MACHINE_GROUP = "No machine group has it: a filter on it selects none."


class Kind(NamedTuple):
    """A kind of machine: cores, GiB of memory, devices and their models. None if unknown."""

    cpu: int | None
    memory: int | None
    devices: int | None
    models: str


MACHINE_GROUP_SORTS: Mapping[str, Callable[[dict[str, Any]], Any]] = MappingProxyType(
    {
        "MachineGroupID": lambda one: one["MachineGroupID"],
        "EcsCount": lambda one: one["EcsCount"],
        "Cpu": lambda one: one.get("Cpu"),
        "Memory": lambda one: one.get("Memory"),
        "Gpu": lambda one: one.get("Gpu"),
        "GmtCreatedTime": lambda one: one.get("GmtCreatedTime"),
        "GmtModifiedTime": lambda one: one.get("GmtModifiedTime"),
    }
)


@operation(
    "GET /api/v1/resources/{ResourceGroupID}/machinegroups",
    "nodes:read",
    in_path("ResourceGroupID", "The resource group, as job and node records name it."),
    in_query("MachineGroupIDs", "Separated by commas. Default: all."),
    in_query("Name", "The machine group of that id."),
    in_query("Status", f"Machine groups in that status. Every one is `{READY}`."),
    *(in_query(name, _NO_MACHINE_GROUP) for name in UNKNOWN_OF_MACHINE_GROUPS),
    in_query("SortBy", f"One of {listed(MACHINE_GROUP_SORTS)}. Default: `MachineGroupID`."),
    ORDER,
    *PAGES,
    by_resource=True,
)
def list_resource_group_machine_groups(arguments: Arguments) -> Steps:
    """Lists the nodes of a resource group by kind: `{MachineGroups, TotalCount, RequestId}`, `TotalCount` as text.

    A member is `{MachineGroupID, ResourceGroupID, Status, EcsCount, Cpu, Memory, Gpu, GpuType, GmtCreatedTime,
    GmtModifiedTime}`: nodes with as many cores, GiB of memory and devices of the same model. The sizes are of one
    node, left out if unknown. The times are the first reports of the oldest and of the newest node.
    """
    group = arguments.required("ResourceGroupID")
    offset, size = page(arguments)
    sort = arguments.choice("SortBy", MACHINE_GROUP_SORTS, MACHINE_GROUP_SORTS["MachineGroupID"])
    descending = arguments.descending(default=False)
    names = frozenset(arguments.names("MachineGroupIDs"))
    loads = yield from loads_of(arguments, group)
    found = [
        one
        for one in _machine_groups(group, loads)
        if (not names or one["MachineGroupID"] in names) and arguments.text("Name") in {"", one["MachineGroupID"]}
    ]
    if not ready(arguments) or arguments.given(*UNKNOWN_OF_MACHINE_GROUPS):
        found = []
    ordered = in_order(found, sort, descending=descending)
    body = {"MachineGroups": ordered[offset : offset + size], "TotalCount": str(len(found))}
    return answer(body, arguments)


def loads_of(arguments: Arguments, group: str) -> Lookup[Sequence[NodeLoad]]:
    """Return the nodes of a resource group with their current load. Raises NotFoundError for an unknown group."""
    span, silent_ms = arguments.lately(NOW_MS), arguments.context.silent_ms
    return (yield from execute(NodeLoadsQuestion(group=GroupRef(group), range=span, silent_ms=silent_ms)))


def kind_of(load: NodeLoad) -> Kind:
    """Return the kind of a node.

    Memory is rounded to GiB, because kernels of the same machines reserve different sizes.
    """
    capacity = load.capacity
    return Kind(
        cpu=whole(capacity.cpu) or None,
        memory=round(capacity.memory / GIB) or None,
        devices=capacity.devices or (0 if load.node.info else None),
        models=device_models(sorted(capacity.device_types)),
    )


def machine_group_id(group: str, kind: Kind) -> str:
    """Return the id of the nodes of a kind in a group, which depends on both alone."""
    return f"mg-{blake2b(repr((group, *kind)).encode(), digest_size=8).hexdigest()}"


def accelerator_of(kind: Kind) -> str:
    """Return the one of ``ACCELERATORS`` that a kind of machine has; empty if unknown."""
    return "" if kind.devices is None else ACCELERATORS[bool(kind.devices)]


def _machine_groups(group: str, loads: Sequence[NodeLoad]) -> list[dict[str, Any]]:
    kinds: dict[Kind, list[NodeLoad]] = {}
    for load in loads:
        kinds.setdefault(kind_of(load), []).append(load)
    return [_machine_group(group, kind, members) for kind, members in kinds.items()]


def _machine_group(group: str, kind: Kind, members: Sequence[NodeLoad]) -> dict[str, Any]:
    seen = [one.node.first_seen for one in members if one.node.first_seen is not None]
    return present(
        {
            "MachineGroupID": machine_group_id(group, kind),
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
