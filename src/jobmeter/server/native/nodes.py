"""``/nodes``: the machines that agents run on."""

from jobmeter.errors import LimitExceededError
from jobmeter.model.answers import NodeFaults
from jobmeter.model.pod import MOST_PODS, NodePods
from jobmeter.model.series import check_job_id, check_name
from jobmeter.query.nodes import FaultyNode, NodeFaultsQuestion, NodesQuestion
from jobmeter.query.records import PodsQuestion
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import NodeBody, NodeList, copied, fault_body
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint

HEADING = "nodes"


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
    groups, names = frozenset(given.texts("resource_group")), frozenset(given.texts("name"))
    nodes = [one.node for one in context.ask(NodesQuestion(names=names))]
    bodies = [copied(NodeBody, node) for node in nodes if not groups or node.resource_group in groups]
    if not given.flag("faults"):
        return NodeList(bodies, None)
    faulty = context.ask(NodeFaultsQuestion(names=names, resource_groups=groups))
    return NodeList(bodies, [_faults(one) for one in faulty])


def _faults(one: FaultyNode) -> NodeFaults:
    return NodeFaults(node=one.node, cluster=one.cluster, faults=[fault_body(fault) for fault in one.faults])


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
    node, cluster = check_name(context.path["node"], "node"), context.arguments.text("cluster")
    if cluster:
        check_name(cluster, "cluster")
    uids = context.arguments.texts("uid")
    if len(uids) > MOST_PODS:
        raise LimitExceededError(f"at most {MOST_PODS} pods can be requested at once, got {len(uids)}", "uid")
    for uid in uids:
        check_job_id(uid, "uid")
    return context.ask(PodsQuestion(cluster, node, uids))
