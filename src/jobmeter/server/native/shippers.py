"""``/shippers``: where the log lines of resource groups are shipped to, and how far that has come."""

import msgspec

from jobmeter.errors import NotFoundError
from jobmeter.model.answers import ShipperBody, ShipperList
from jobmeter.model.shipper import Shipper
from jobmeter.server.native.bodies import copied
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, tagged
from jobmeter.ship.shipping import lag_seconds, shipper_project


class NewShipper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to ship from now on: the lines of a resource group, to the sink that the settings have for the other two."""

    resource_group: str
    sink_project: str
    logstore: str


def shipper_body(shipper: Shipper, now_ms: int) -> ShipperBody:
    """A shipper as it is answered."""
    return copied(
        ShipperBody,
        shipper,
        project=shipper.project or None,
        state="failing" if shipper.error else "shipping",
        lag_seconds=lag_seconds(shipper, now_ms),
    )


def _list(context: CallContext) -> ShipperList:
    """List log shippers.

    Those of the key's project, or, for a key that sees every project, all of them.
    """
    now_ms = context.services.clock.now_ms()
    found = context.services.shipping.of(context.scope.projects)
    return ShipperList(shippers=[shipper_body(one, now_ms) for one in found])


def _create(context: CallContext) -> ShipperBody:
    """Ship the log lines of a resource group.

    From now on, to the sink that the server's settings (`JOBMETER_SINKS`) have for `sink_project` and `logstore`. With
    `project`, or a key of one project, the lines of that project alone. One that is there already is given as it is.
    """
    new_shipper = context.body(NewShipper)
    made = context.services.shipping.create(
        shipper_project(context.scope),
        new_shipper.resource_group,
        new_shipper.sink_project,
        new_shipper.logstore,
        context.principal.id,
    )
    return shipper_body(made, context.services.clock.now_ms())


def _found(context: CallContext) -> Shipper:
    named = context.path["shipper"]
    for shipper in context.services.shipping.of(context.scope.projects):
        if shipper.id == named:
            return shipper
    raise NotFoundError(f"there is no shipper {named[:64]}", "shipper", named)


def _show(context: CallContext) -> ShipperBody:
    """One log shipper: its state and its lag."""
    return shipper_body(_found(context), context.services.clock.now_ms())


def _delete(context: CallContext) -> ShipperBody:
    """Ship no more.

    Gives what the shipper was; the lines that wait are not shipped any more. The lines themselves stay.
    """
    gone = context.services.shipping.delete(_found(context), context.principal.id)
    return shipper_body(gone, context.services.clock.now_ms())


ENDPOINTS = tagged(
    "shippers",
    Endpoint("listShippers", "GET /shippers", "shippers:read", _list, queries=(PROJECT,)),
    Endpoint(
        "createShipper",
        "POST /shippers",
        "shippers:write",
        _create,
        queries=(PROJECT,),
        body=NewShipper,
        example={"resource_group": "rg-1", "sink_project": "eas-r-asdasdasd-sls", "logstore": "access_log"},
        lane="write",
    ),
    Endpoint("getShipper", "GET /shippers/{shipper}", "shippers:read", _show, queries=(PROJECT,)),
    Endpoint(
        "deleteShipper", "DELETE /shippers/{shipper}", "shippers:write", _delete, queries=(PROJECT,), lane="write"
    ),
)
