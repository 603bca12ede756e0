"""``/shippers``: where the log lines of resource groups are shipped to, and how far that has come."""

import msgspec

from jobmeter.errors import NotFoundError
from jobmeter.model.shipper import Shipper
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint
from jobmeter.ship.shipping import lag_seconds, shipper_project


class ShipperBody(msgspec.Struct, frozen=True):
    """A log shipper.

    ``project`` is whose lines it ships, null for those of every project; ``sink_project`` and ``logstore`` name the
    sink. ``state`` is ``shipping`` or, while the sink does not take lines, ``failing``: ``error`` says why then.
    ``waiting`` lines are not shipped yet, the oldest of them for ``lag_seconds``.
    """

    id: str
    project: str | None
    resource_group: str
    sink_project: str
    logstore: str
    created: int
    state: str
    waiting: int
    lag_seconds: float
    shipped: int
    dropped: int
    rejected: int
    failures: int
    error: str


class ShipperList(msgspec.Struct, frozen=True):
    """Shippers, by creation."""

    shippers: list[ShipperBody]


class NewShipper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to ship from now on: the lines of a resource group, to the sink that the settings have for the other two."""

    resource_group: str
    sink_project: str
    logstore: str


def shipper_body(shipper: Shipper, now_ms: int) -> ShipperBody:
    """A shipper as it is answered."""
    return ShipperBody(
        id=shipper.id,
        project=shipper.project or None,
        resource_group=shipper.resource_group,
        sink_project=shipper.sink_project,
        logstore=shipper.logstore,
        created=shipper.created,
        state="failing" if shipper.error else "shipping",
        waiting=shipper.waiting,
        lag_seconds=lag_seconds(shipper, now_ms),
        shipped=shipper.shipped,
        dropped=shipper.dropped,
        rejected=shipper.rejected,
        failures=shipper.failures,
        error=shipper.error,
    )


def _list(context: CallContext) -> ShipperList:
    now_ms = context.services.clock.now_ms()
    return ShipperList([shipper_body(one, now_ms) for one in context.services.shipping.of(context.scope.projects)])


def _create(context: CallContext) -> ShipperBody:
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
    return shipper_body(_found(context), context.services.clock.now_ms())


def _delete(context: CallContext) -> ShipperBody:
    gone = context.services.shipping.delete(_found(context), context.principal.id)
    return shipper_body(gone, context.services.clock.now_ms())


_PATH = {"shipper": "The shipper's id."}

ENDPOINTS = (
    Endpoint(
        name="listShippers",
        tag="shippers",
        method="GET",
        path="/shippers",
        action="shippers:read",
        summary="List log shippers",
        text="Those of the key's project, or, for a key that sees every project, all of them.",
        work=_list,
        answer=ShipperList,
        queries=(PROJECT,),
    ),
    Endpoint(
        name="createShipper",
        tag="shippers",
        method="POST",
        path="/shippers",
        action="shippers:write",
        summary="Ship the log lines of a resource group",
        text=(
            "From now on, to the sink that the server's settings (`JOBMETER_SINKS`) have for `sink_project` and "
            "`logstore`. With `project`, or a key of one project, the lines of that project alone. One that is there "
            "already is given as it is."
        ),
        work=_create,
        answer=ShipperBody,
        queries=(PROJECT,),
        body_text='`{"resource_group", "sink_project", "logstore"}`.',
        example={"resource_group": "rg-1", "sink_project": "eas-r-asdasdasd-sls", "logstore": "access_log"},
        lane="write",
    ),
    Endpoint(
        name="getShipper",
        tag="shippers",
        method="GET",
        path="/shippers/{shipper}",
        action="shippers:read",
        summary="One log shipper: its state and its lag",
        work=_show,
        answer=ShipperBody,
        queries=(PROJECT,),
        paths=_PATH,
    ),
    Endpoint(
        name="deleteShipper",
        tag="shippers",
        method="DELETE",
        path="/shippers/{shipper}",
        action="shippers:write",
        summary="Ship no more",
        text="Gives what the shipper was; the lines that wait are not shipped any more. The lines themselves stay.",
        work=_delete,
        answer=ShipperBody,
        queries=(PROJECT,),
        paths=_PATH,
        lane="write",
    ),
)
