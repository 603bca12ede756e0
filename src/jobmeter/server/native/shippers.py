"""``/shippers``: destinations for log lines of resource groups, and delivery progress."""

import msgspec

from jobmeter.errors import NotFoundError
from jobmeter.model.answers import ShipperBody, ShipperList
from jobmeter.model.shipper import Shipper
from jobmeter.query.administration import ShippersQuestion
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint
from jobmeter.ship.shipping import compute_lag, find_project


class NewShipper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shipper to create: the lines of a resource group, and the sink configured for the other two fields."""

    resource_group: str
    sink_project: str
    logstore: str


def make_shipper_body(shipper: Shipper, now_ms: int) -> ShipperBody:
    """Convert a shipper to the form of an answer."""
    return copy_fields(
        ShipperBody,
        shipper,
        project=shipper.project or None,
        state="failing" if shipper.error else "shipping",
        lag_seconds=compute_lag(shipper, now_ms),
    )


HEADING = "shippers"


@Endpoint("listShippers", "GET /shippers", "shippers:read", queries=(PROJECT,))
def _list(context: CallContext) -> ShipperList:
    """List log shippers.

    The shippers of the key's project; all of them for a key that sees every project.
    """
    now_ms = context.services.clock.now_ms()
    found = context.ask(ShippersQuestion())
    return ShipperList(shippers=[make_shipper_body(one, now_ms) for one in found])


@Endpoint(
    "createShipper",
    "POST /shippers",
    "shippers:write",
    queries=(PROJECT,),
    body=NewShipper,
    example={"resource_group": "rg-1", "sink_project": "eas-r-asdasdasd-sls", "logstore": "access_log"},
    lane="write",
)
def _create(context: CallContext) -> ShipperBody:
    """Ship the log lines of a resource group.

    From now on, to the sink that the server's settings (`JOBMETER_SINKS`) define for `sink_project` and `logstore`.
    With `project`, or a key of one project, only the lines of that project. An existing shipper is returned unchanged.
    """
    new_shipper = context.decode_body(NewShipper)
    made = context.services.shipping.create(
        find_project(context.scope),
        new_shipper.resource_group,
        new_shipper.sink_project,
        new_shipper.logstore,
        context.principal.id,
    )
    return make_shipper_body(made, context.services.clock.now_ms())


def _find_shipper(context: CallContext) -> Shipper:
    named = context.path["shipper"]
    for shipper in context.ask(ShippersQuestion()):
        if shipper.id == named:
            return shipper
    raise NotFoundError(f"there is no shipper {named[:64]}", "shipper", named)


@Endpoint("getShipper", "GET /shippers/{shipper}", "shippers:read", queries=(PROJECT,))
def _show(context: CallContext) -> ShipperBody:
    """Show a log shipper with its state and its lag."""
    return make_shipper_body(_find_shipper(context), context.services.clock.now_ms())


@Endpoint("deleteShipper", "DELETE /shippers/{shipper}", "shippers:write", queries=(PROJECT,), lane="write")
def _delete(context: CallContext) -> ShipperBody:
    """Delete a log shipper.

    Returns the deleted shipper. Queued lines are no longer shipped; stored lines stay.
    """
    gone = context.services.shipping.delete(_find_shipper(context), context.principal.id)
    return make_shipper_body(gone, context.services.clock.now_ms())
