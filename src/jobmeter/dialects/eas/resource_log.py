"""CreateResourceLog, DescribeResourceLog and DeleteResourceLog: the log shipper of a resource group."""

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.limit import Rate
from jobmeter.dialects.alibaba.operation import Arguments, answer
from jobmeter.dialects.base import (
    Context,
    CreateShipper,
    DeleteShipper,
    MissingFieldError,
    Operation,
    Parameter,
    ShipperQuestion,
    Steps,
    execute,
)
from jobmeter.model.shipper import Shipper

READY, UNAVAILABLE = "ResourceReady", "ResourceUnavailable"
_PATH = "/api/v2/resources/{ClusterId}/{ResourceId}/log"


class _Body(msgspec.Struct, frozen=True):
    project: str = msgspec.field(default="", name="ProjectName")
    logstore: str = msgspec.field(default="", name="LogStore")


def create_resource_log(call: Call, context: Context) -> Steps:
    """Create the shipper."""
    arguments = Arguments(call, context)
    group = _group(arguments)
    fields = arguments.body(_Body)
    for name, value in (("ProjectName", fields.project), ("LogStore", fields.logstore)):
        if not value:
            raise MissingFieldError(f"{name} is mandatory for this action", name)
    made = yield from execute(CreateShipper(group, fields.project, fields.logstore))
    return answer({"Message": f"The logs of {group} are shipped to {made.sink_project}/{made.logstore}."}, context)


def describe_resource_log(call: Call, context: Context) -> Steps:
    """The shipper's sink and progress."""
    found = yield from execute(ShipperQuestion(_group(Arguments(call, context))))
    body = {
        "ProjectName": found.sink_project,
        "LogStore": found.logstore,
        "Status": UNAVAILABLE if found.error else READY,
        "Message": _message(found, context.now_ms),
    }
    return answer(body, context)


def delete_resource_log(call: Call, context: Context) -> Steps:
    """Delete the shipper."""
    group = _group(Arguments(call, context))
    gone = yield from execute(DeleteShipper(group))
    return answer({"Message": f"The logs of {group} are not shipped any more. {_waiting(gone)} were not."}, context)


def _group(arguments: Arguments) -> str:
    arguments.required("ClusterId")
    return arguments.required("ResourceId")


def _waiting(shipper: Shipper) -> str:
    return f"{shipper.waiting} lines that had arrived"


def _message(shipper: Shipper, now_ms: int) -> str:
    """The state in a sentence or two: the vendor's answer has no field for the lag."""
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


_PARAMETERS = (
    Parameter("ClusterId", "path", "The vendor's region. Every one means this server.", required=True),
    Parameter("ResourceId", "path", "The resource group, as job and node records name it.", required=True),
)

OPERATIONS = (
    Operation(
        name="CreateResourceLog",
        action="shippers:write",
        method="POST",
        path=_PATH,
        answer=create_resource_log,
        parameters=(
            *_PARAMETERS,
            Parameter("ProjectName", "body", "With LogStore: a sink of the server's settings.", required=True),
            Parameter("LogStore", "body", "With ProjectName: a sink of the server's settings.", required=True),
        ),
        text=(
            "Ships the log lines of a resource group from now on: `{Message, RequestId}`. One that is so already "
            "stays; where its lines go elsewhere it is a conflict. It takes a key of role admin."
        ),
    ),
    Operation(
        name="DescribeResourceLog",
        action="shippers:read",
        method="GET",
        path=_PATH,
        answer=describe_resource_log,
        parameters=_PARAMETERS,
        text=(
            "Where the lines go and how far that has come: `{ProjectName, LogStore, Status, Message, RequestId}`. "
            "`Status` is `ResourceReady` or, while the sink does not take lines, `ResourceUnavailable`; `Message` "
            "tells how many lines were shipped, how many wait and for how long, and what was lost. It takes a key of "
            "role admin."
        ),
        rate=Rate(100, 100),
    ),
    Operation(
        name="DeleteResourceLog",
        action="shippers:write",
        method="DELETE",
        path=_PATH,
        answer=delete_resource_log,
        parameters=_PARAMETERS,
        text=(
            "Ships them no more: `{Message, RequestId}`. Lines that wait are not shipped; in Jobmeter they stay. It "
            "takes a key of role admin."
        ),
        rate=Rate(10, 10),
    ),
)
