"""CreateResourceLog, DescribeResourceLog and DeleteResourceLog: the log shipper of a resource group.

The rates come from the page "PAI monitoring", per account.
"""

import msgspec

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_body, in_path, missing, operation
from jobmeter.dialects.alibaba.eas.names import READY, UNAVAILABLE
from jobmeter.dialects.base import CreateShipper, DeleteShipper, ShipperQuestion, Steps, execute
from jobmeter.model.shipper import Shipper

_PATH = "/api/v2/resources/{ClusterId}/{ResourceId}/log"
_PARAMETERS = (
    in_path("ClusterId", "The vendor's region. Every one means this server."),
    in_path("ResourceId", "The resource group, as job and node records name it."),
)


class _Body(msgspec.Struct, frozen=True):
    project: str = msgspec.field(default="", name="ProjectName")
    logstore: str = msgspec.field(default="", name="LogStore")


@operation(
    f"POST {_PATH}",
    "shippers:write",
    *_PARAMETERS,
    in_body("ProjectName", "With LogStore: a sink of the server's settings.", required=True),
    in_body("LogStore", "With ProjectName: a sink of the server's settings.", required=True),
)
def create_resource_log(arguments: Arguments) -> Steps:
    """Ships the log lines of a resource group from now on: `{Message, RequestId}`.

    Repeating a call changes nothing. If the group has a shipper to another sink, it is a conflict. It takes a key of
    role admin.
    """
    group = _group(arguments)
    fields = arguments.body(_Body)
    for name, value in (("ProjectName", fields.project), ("LogStore", fields.logstore)):
        if not value:
            raise missing(name)
    made = yield from execute(CreateShipper(group, fields.project, fields.logstore))
    return answer({"Message": f"The logs of {group} are shipped to {made.sink_project}/{made.logstore}."}, arguments)


@operation(f"GET {_PATH}", "shippers:read", *_PARAMETERS, rate=Rate(100, 100, Per.ACCOUNT))
def describe_resource_log(arguments: Arguments) -> Steps:
    """Returns the sink of the lines and the progress: `{ProjectName, LogStore, Status, Message, RequestId}`.

    `Status` is `ResourceReady` or, while the sink does not accept lines, `ResourceUnavailable`. `Message` gives the
    numbers of shipped, waiting and lost lines, and the age of the oldest waiting one. It takes a key of role admin.
    """
    found = yield from execute(ShipperQuestion(_group(arguments)))
    body = {
        "ProjectName": found.sink_project,
        "LogStore": found.logstore,
        "Status": UNAVAILABLE if found.error else READY,
        "Message": _message(found, arguments.context.now_ms),
    }
    return answer(body, arguments)


@operation(f"DELETE {_PATH}", "shippers:write", *_PARAMETERS, rate=Rate(10, 10, Per.ACCOUNT))
def delete_resource_log(arguments: Arguments) -> Steps:
    """Stops shipping the lines: `{Message, RequestId}`.

    Waiting lines are not shipped; they stay in Jobmeter. It takes a key of role admin.
    """
    group = _group(arguments)
    gone = yield from execute(DeleteShipper(group))
    message = f"The logs of {group} are not shipped any more. {gone.waiting} lines that had arrived were not."
    return answer({"Message": message}, arguments)


def _group(arguments: Arguments) -> str:
    arguments.required("ClusterId")
    return arguments.required("ResourceId")


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
