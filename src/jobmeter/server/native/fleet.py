"""``/fleet``, ``/live/fleet`` and ``/users``: all nodes with the use of their devices, and usage per user."""

from collections import Counter
from functools import partial

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError
from jobmeter.model.answers import FaultBody, NodeFaults
from jobmeter.model.pod import MOST_PODS, NodePods
from jobmeter.model.series import check_job_id, check_name
from jobmeter.model.time import MINUTE, SECOND, TimeRange
from jobmeter.query.fleet import FleetNode, FleetQuestion
from jobmeter.query.group import Amounts, GroupQuestion, ResourceUsage
from jobmeter.query.nodes import FaultyNode, NodeFaultsQuestion, NodesQuestion, NodeState
from jobmeter.query.records import PodsQuestion
from jobmeter.query.request import GroupRef
from jobmeter.server.live import CONTENT_TYPE, Feed, Update
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import NodeBody, NodeList, copy_fields, make_fault_body
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint
from jobmeter.server.services import Services

EVERY_SECONDS = 5.0
"""Seconds between updates. A map of many nodes needs no faster updates, and they would be costly."""
LAST = {"5m": 5 * MINUTE, "15m": 15 * MINUTE, "1h": 60 * MINUTE, "6h": 360 * MINUTE, "24h": 1_440 * MINUTE}


class FleetDeviceBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device. ``use`` is its newest utilization; null without a measurement in the last five minutes.

    ``type`` is an index into ``types`` and ``job`` an index into ``jobs``; null: unknown type, no job. ``idle``: a job
    has had it for 15 minutes and used at most 1 % of it. ``state`` tells why the node's agent cannot measure it (lost,
    no permission, ...); absent if it can.
    """

    device: str
    type: int | None = None
    use: float | None = None
    job: int | None = None
    idle: bool = False
    state: str = ""


class FleetNodeBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node: ``state`` up, down or unknown, and ``cpu`` the CPU use from 0 to 1; null: no recent measurement.

    ``faults`` were reported within a day, and are not known to have passed.
    """

    name: str
    project: str
    cluster: str
    resource_group: str
    state: str
    devices: list[FleetDeviceBody]
    last_seen: int | None = None
    cpu: float | None = None
    faults: list[FaultBody] = []


class FleetHolder(msgspec.Struct, frozen=True):
    """A running job that has devices."""

    id: str
    project: str
    name: str
    user: str
    resource_group: str


class DeviceType(msgspec.Struct, frozen=True):
    """A device model and its price per hour; null if the server's price file does not list it."""

    name: str
    price_hour: float | None


class FleetBody(msgspec.Struct, frozen=True):
    """The fleet at ``now``, in epoch milliseconds."""

    now: int
    currency: str
    types: list[DeviceType]
    jobs: list[FleetHolder]
    nodes: list[FleetNodeBody]


class NodeCounts(msgspec.Struct, frozen=True):
    """Numbers of nodes: up, down, of unknown state, and with faults."""

    up: int
    down: int
    unknown: int
    faulty: int


class AmountsBody(msgspec.Struct, frozen=True):
    """Cores, bytes and devices, the latter also by type."""

    cpu: float
    memory: float
    devices: int
    device_types: dict[str, int]


class UserBody(msgspec.Struct, frozen=True):
    """Allocation and usage of one user: ratios of the request, bytes per second; null: not measured.

    ``jobs`` ran at some time in the range, including jobs that ended in it. Attempts of a job count as one job.
    """

    user: str
    jobs: int
    types: list[str]
    requested: AmountsBody
    cpu: float | None
    memory: float | None
    device: float | None
    network_receive: float | None
    network_transmit: float | None
    disk_read: float | None
    disk_write: float | None
    cpu_jobs: list[str]
    device_jobs: list[str]
    nodes: list[str]


class UserList(msgspec.Struct, frozen=True):
    """Usage of a resource group per user in ``[start, end)``, and the total."""

    resource_group: str
    start: int
    end: int
    capacity: AmountsBody
    users: list[UserBody]
    summary: UserBody


HEADING = "nodes"


@Endpoint("getFleet", "GET /fleet", "nodes:read", queries=(PROJECT,), by_resource=True)
def _fleet(context: CallContext) -> FleetBody:
    """Show all nodes with their devices, the jobs that have them and their use.

    One answer for a map of thousands of nodes. A device is `idle` if a job has it and used at most 1 % of it in the
    last 15 minutes. Prices come from `[devices]` in the server's price file.
    """
    return _body(context.services, context.scope)


def _body(services: Services, scope: Scope) -> FleetBody:
    question = FleetQuestion(silent_ms=services.settings.node_seconds * SECOND)
    found = services.executor.run(question, scope)
    names = sorted({device.type for node in found.nodes for device in node.devices if device.type})
    numbers = {name: at for at, name in enumerate(names)}
    return FleetBody(
        now=found.now_ms,
        currency=services.prices.currency,
        types=[DeviceType(name, _price(services, name)) for name in names],
        jobs=[copy_fields(FleetHolder, job) for job in found.jobs],
        nodes=[_node(node, numbers) for node in found.nodes],
    )


def _price(services: Services, name: str) -> float | None:
    price = services.prices.price_device_hour(name)
    return None if price is None else float(price)


def _node(one: FleetNode, numbers: dict[str, int]) -> FleetNodeBody:
    devices = [
        FleetDeviceBody(own.device, numbers.get(own.type), _round(own.use), own.job, own.idle, own.state)
        for own in one.devices
    ]
    faults = [make_fault_body(own) for own in one.faults]
    return copy_fields(FleetNodeBody, one.node, state=one.state, cpu=_round(one.cpu), devices=devices, faults=faults)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


@Endpoint("countNodes", "GET /fleet/counts", "nodes:read", queries=(PROJECT,), by_resource=True)
def _counts(context: CallContext) -> NodeCounts:
    """Count the nodes by their state, and those with faults."""
    silent_ms = context.services.settings.node_seconds * SECOND
    states = Counter(one.state for one in context.ask(NodesQuestion(silent_ms=silent_ms)))
    faulty = context.ask(NodeFaultsQuestion())
    return NodeCounts(states[NodeState.UP], states[NodeState.DOWN], states[NodeState.UNKNOWN], len(faulty))


@Endpoint(
    "followFleet",
    "GET /live/fleet",
    "nodes:read",
    answer=FleetBody,
    answer_type=CONTENT_TYPE,
    queries=(PROJECT,),
    by_resource=True,
)
def _follow(context: CallContext) -> Feed:
    """Follow the fleet.

    Server-sent events: `data` is the whole of `getFleet`, every five seconds or less often if that is costly. Viewers
    with equal permissions share one query.
    """
    return Feed(
        ("fleet", context.scope), partial(_make_update, context.services, context.scope), context.renew, EVERY_SECONDS
    )


def _make_update(services: Services, scope: Scope) -> Update:
    return Update(msgspec.json.encode(_body(services, scope)))


@Endpoint(
    "listUsers",
    "GET /users",
    "metrics:read",
    queries=(
        QueryArguments("resource_group", "The resource group. Default: jobs without a resource group."),
        QueryArguments("last", f"How far back: {', '.join(LAST)}. Default: 15m."),
        PROJECT,
    ),
    tag="usage",
    by_resource=True,
)
def _users(context: CallContext) -> UserList:
    """List the usage of a resource group per user.

    Corresponds to GetUserViewMetrics, in the units of this API: ratios from 0 to 1, bytes, cores.
    """
    group = context.arguments.read_text("resource_group")
    length = context.arguments.read_choice("last", LAST, "15m")
    now_ms = context.services.clock.now_ms()
    span = TimeRange(max(0, now_ms - length), now_ms)
    found = context.ask(GroupQuestion(group=GroupRef(group, context.project), range=span))
    return UserList(
        resource_group=group,
        start=span.start_ms,
        end=span.end_ms,
        capacity=_amounts(found.capacity),
        users=[_user(one) for one in found.users],
        summary=_user(found.summary),
    )


def _amounts(one: Amounts) -> AmountsBody:
    return copy_fields(AmountsBody, one, device_types=dict(one.device_types))


def _user(one: ResourceUsage) -> UserBody:
    nodes = sorted({*one.cpu_nodes, *one.device_nodes})
    return copy_fields(UserBody, one, requested=_amounts(one.requested), nodes=nodes)


@Endpoint(
    "listNodes",
    "GET /nodes",
    "nodes:read",
    queries=(
        QueryArguments("resource_group", "Only nodes of these resource groups.", many=True),
        QueryArguments("name", "Only nodes of these names.", many=True),
        QueryArguments(
            "faults", "true adds the faults of nodes and their devices: which, since when, and the jobs hit."
        ),
        PROJECT,
    ),
    by_resource=True,
)
def _list(context: CallContext) -> NodeList:
    """List nodes.

    Each machine appears once, even if several projects have a record of it. ``project`` is the project of the record
    with the newest description.
    """
    given = context.arguments
    groups, names = frozenset(given.read_texts("resource_group")), frozenset(given.read_texts("name"))
    nodes = [one.node for one in context.ask(NodesQuestion(names=names))]
    bodies = [copy_fields(NodeBody, node) for node in nodes if not groups or node.resource_group in groups]
    if not given.read_flag("faults"):
        return NodeList(bodies, None)
    faulty = context.ask(NodeFaultsQuestion(names=names, resource_groups=groups))
    return NodeList(bodies, [_faults(one) for one in faulty])


def _faults(one: FaultyNode) -> NodeFaults:
    return NodeFaults(node=one.node, cluster=one.cluster, faults=[make_fault_body(fault) for fault in one.faults])


@Endpoint(
    "listNodePods",
    "GET /nodes/{node}/pods",
    "ingest:write",
    queries=(
        QueryArguments("cluster", "The cluster of the node; empty if it has none."),
        QueryArguments("uid", f"The uids of the pods, at most {MOST_PODS}.", many=True, required=True),
    ),
    lane="write",
)
def _pods(context: CallContext) -> NodePods:
    """Map pods of a node to jobs and replicas.

    An agent asks about unknown pods of its own node. The answer contains the pods that the cluster's watcher has
    reported, and leaves out others.
    """
    node, cluster = check_name(context.path["node"], "node"), context.arguments.read_text("cluster")
    if cluster:
        check_name(cluster, "cluster")
    uids = context.arguments.read_texts("uid")
    if len(uids) > MOST_PODS:
        raise LimitExceededError(f"at most {MOST_PODS} pods can be requested at once, got {len(uids)}", "uid")
    for uid in uids:
        check_job_id(uid, "uid")
    return context.ask(PodsQuestion(cluster, node, uids))
