"""CreateResourceLog, DescribeResourceLog and DeleteResourceLog: the log shipper of a resource group.

The rates come from the page "PAI monitoring", per account.
"""

from typing import Annotated

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, answer, json_operation, operation
from jobmeter.dialects.alibaba.eas.names import READY, UNAVAILABLE
from jobmeter.dialects.base import CreateShipper, DeleteShipper, ShipperQuestion, Steps, ask
from jobmeter.model.shipper import Shipper

_PATH = "/api/v2/resources/{ClusterId}/{ResourceId}/log"


class LogRequest(AlibabaRequest, frozen=True, kw_only=True):
    """A request about the shipper of a resource group."""

    cluster_id: Annotated[str, "The vendor's region. Every region means this server."]
    resource_id: Annotated[str, "The resource group, as job and node records name it."]


@json_operation(f"POST {_PATH}", "shippers:write")
class CreateResourceLog(LogRequest, frozen=True, kw_only=True):
    """Ships the log lines of a resource group from now on: `{Message, RequestId}`.

    Repeating a call changes nothing. A group that has a shipper to another sink is a conflict. Needs a key of role
    admin.
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
    numbers of shipped, waiting and lost lines, and the age of the oldest waiting one. Needs a key of role admin.
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

    Waiting lines are not shipped; they stay in Jobmeter. Needs a key of role admin.
    """

    def _steps(self) -> Steps:
        group = self.resource_id
        gone = yield from ask(DeleteShipper(group))
        message = f"The logs of {group} are not shipped any more. {gone.waiting} waiting lines were not shipped."
        return answer({"Message": message}, self)


def _message(shipper: Shipper, now_ms: int) -> str:
    """Describe the state of the shipper in text: the vendor's answer has no field for the lag."""
    parts = [f"{shipper.shipped} lines shipped, {shipper.waiting} waiting"]
    if shipper.waiting and shipper.oldest is not None:
        parts[0] += f", the oldest for {max(0, now_ms - shipper.oldest) // 1000} s"
    if shipper.dropped:
        parts.append(f"{shipper.dropped} expired or exceeded the limit of waiting lines")
    if shipper.rejected:
        parts.append(f"{shipper.rejected} were permanently refused")
    if shipper.error:
        parts.append(f"The last attempt failed: {shipper.error}")
    return ". ".join(parts) + "."
