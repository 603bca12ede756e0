"""ListResources: the resource groups that records of nodes and jobs name.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eas-2021-07-01-listresources
"""

from collections.abc import Mapping
from typing import Annotated, Any

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.common.groups import (
    GroupSort,
    SizedGroup,
    SizeSort,
    groups_named,
    page_of_groups,
)
from jobmeter.dialects.alibaba.common.listing import drop_empty, stamp
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, answer, json_operation, operation, select_given
from jobmeter.dialects.alibaba.eas.names import READY, UNAVAILABLE, EasPageRequest, cluster_of
from jobmeter.dialects.base import CreateShipper, DeleteShipper, ShipperQuestion, Steps, ask, round_up
from jobmeter.dialects.base.request import Choice
from jobmeter.model.shipper import Shipper

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
    resource_name: Annotated[str, "Another name of ResourceId."] = ""
    resource_status: Annotated[str, f"Groups in that status. Every group is `{READY}`."] = ""
    resource_type: Annotated[
        str,
        "Changes nothing: the type of a group is unknown.",
        Choice(("Dedicated", "SelfManaged")),
    ] = ""
    sort: Annotated[str, Choice((*SORTS, *SIZE_SORTS))] = "CreateTime"

    def _steps(self) -> Steps:
        groups = yield from groups_named(select_given(self.resource_id), select_given(self.resource_name))
        if self.resource_status.casefold() not in {"", READY.casefold()}:
            groups = []
        found = yield from page_of_groups(
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
            "ClusterId": cluster_of(one.group.clusters),
            "Status": READY,
            "InstanceCount": one.nodes,
            "CpuCount": round_up(capacity.cpu) or None,
            "GpuCount": capacity.devices if known else None,
            "CreateTime": stamp(one.group.created),
            "UpdateTime": stamp(one.group.updated),
        }
    )


_PATH = "/api/v2/resources/{ClusterId}/{ResourceId}/log"


class LogRequest(AlibabaRequest, frozen=True, kw_only=True):
    """A request about the shipper of a resource group."""

    cluster_id: Annotated[str, "The vendor's region. Every one means this server."]
    resource_id: Annotated[str, "The resource group, as job and node records name it."]


@json_operation(f"POST {_PATH}", "shippers:write")
class CreateResourceLog(LogRequest, frozen=True, kw_only=True):
    """Ships the log lines of a resource group from now on: `{Message, RequestId}`.

    Repeating a call changes nothing. If the group has a shipper to another sink, it is a conflict. It takes a key of
    role admin.
    """

    project_name: Annotated[str, "With LogStore: a sink of the server's settings."]
    log_store: Annotated[str, "With ProjectName: a sink of the server's settings."]

    def _steps(self) -> Steps:
        group = self.resource_id
        made = yield from ask(CreateShipper(group, self.project_name, self.log_store))
        return answer({"Message": f"The logs of {group} are shipped to {made.sink_project}/{made.logstore}."}, self)


@operation(f"GET {_PATH}", "shippers:read", rate=Rate(100, 100, Per.ACCOUNT))
class DescribeResourceLog(LogRequest, frozen=True, kw_only=True):
    """Returns the sink of the lines and the progress: `{ProjectName, LogStore, Status, Message, RequestId}`.

    `Status` is `ResourceReady` or, while the sink does not accept lines, `ResourceUnavailable`. `Message` gives the
    numbers of shipped, waiting and lost lines, and the age of the oldest waiting one. It takes a key of role admin.
    """

    def _steps(self) -> Steps:
        found = yield from ask(ShipperQuestion(self.resource_id))
        body = {
            "ProjectName": found.sink_project,
            "LogStore": found.logstore,
            "Status": UNAVAILABLE if found.error else READY,
            "Message": _message(found, self.context.now_ms),
        }
        return answer(body, self)


@operation(f"DELETE {_PATH}", "shippers:write", rate=Rate(10, 10, Per.ACCOUNT))
class DeleteResourceLog(LogRequest, frozen=True, kw_only=True):
    """Stops shipping the lines: `{Message, RequestId}`.

    Waiting lines are not shipped; they stay in Jobmeter. It takes a key of role admin.
    """

    def _steps(self) -> Steps:
        group = self.resource_id
        gone = yield from ask(DeleteShipper(group))
        message = f"The logs of {group} are not shipped any more. {gone.waiting} lines that had arrived were not."
        return answer({"Message": message}, self)


def _message(shipper: Shipper, now_ms: int) -> str:
    """Describe the state in a sentence or two: the vendor's answer has no field for the lag."""
    parts = [f"{shipper.shipped} lines shipped, {shipper.waiting} wait"]
    if shipper.waiting and shipper.oldest is not None:
        parts[0] += f", the oldest for {max(0, now_ms - shipper.oldest) // 1000} s"
    if shipper.dropped:
        parts.append(f"{shipper.dropped} expired, or were too many to be shipped")
    if shipper.rejected:
        parts.append(f"{shipper.rejected} were refused for good")
    if shipper.error:
        parts.append(f"The last attempt failed: {shipper.error}")
    return ". ".join(parts) + "."
