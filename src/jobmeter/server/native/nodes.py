"""``/nodes``: the machines that agents run on."""

from jobmeter.errors import LimitExceededError
from jobmeter.model.answers import NodeFaults
from jobmeter.model.job import Node
from jobmeter.model.pod import MOST_PODS, NodePods
from jobmeter.model.series import check_job_id, check_name
from jobmeter.query.faults import node_faults
from jobmeter.query.nodes import machines
from jobmeter.server.native.arguments import Query
from jobmeter.server.native.bodies import NodeBody, NodeList, copied, fault_body
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, tagged


def _list(context: CallContext) -> NodeList:
    """List nodes.

    Each machine appears once, even if several projects have a record of it. ``project`` is the project of the record
    with the newest description.
    """
    groups, names = context.arguments.texts("resource_group"), context.arguments.texts("name")
    found = [one for one in context.services.registry.nodes(context.scope.projects) if context.scope.shows_node(one)]
    nodes = [
        node
        for node in machines(found)
        if (not groups or node.resource_group in groups) and (not names or node.name in names)
    ]
    return NodeList([copied(NodeBody, node) for node in nodes], _faults(context, nodes))


def _faults(context: CallContext, nodes: list[Node]) -> list[NodeFaults] | None:
    if not context.arguments.flag("faults"):
        return None
    services, scope = context.services, context.scope
    found = node_faults(services.registry, nodes, scope.projects, scope, services.clock.now_ms())
    return [
        NodeFaults(node=node, cluster=cluster, faults=[fault_body(one) for one in faults])
        for (cluster, node), faults in found.items()
    ]


def _pods(context: CallContext) -> NodePods:
    """Map pods of a node to jobs and replicas.

    An agent asks about unknown pods of its own node. The answer contains the pods that the cluster's watcher has
    reported, and leaves out others.
    """
    node, cluster = check_name(context.path["node"], "node"), context.arguments.text("cluster")
    if cluster:
        check_name(cluster, "cluster")
    uids = context.arguments.texts("uid")
    if len(uids) > MOST_PODS:
        raise LimitExceededError(f"at most {MOST_PODS} pods can be requested at once, got {len(uids)}", "uid")
    for uid in uids:
        check_job_id(uid, "uid")
    return NodePods(context.services.registry.pods.find(context.scope.projects, cluster, node, uids))


ENDPOINTS = tagged(
    "nodes",
    Endpoint(
        "listNodes",
        "GET /nodes",
        "nodes:read",
        _list,
        queries=(
            Query("resource_group", "Only nodes of these resource groups.", many=True),
            Query("name", "Only nodes of these names.", many=True),
            Query("faults", "true adds the faults of nodes and their devices: which, since when, and the jobs hit."),
            PROJECT,
        ),
        by_resource=True,
    ),
    Endpoint(
        "listNodePods",
        "GET /nodes/{node}/pods",
        "ingest:write",
        _pods,
        queries=(
            Query("cluster", "The cluster of the node; empty if it has none."),
            Query("uid", f"The uids of the pods, at most {MOST_PODS}.", many=True, required=True),
        ),
        lane="write",
    ),
)
