"""ListClusterNodes and DescribeNode.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-listclusternodes
https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-describenode
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.listing import present
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_body, in_query, listed, operation
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.base import Steps, execute
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.order import natural
from jobmeter.query.nodes import NodesQuestion, NodeState, NodeStatus

DEFAULT_PAGE, MAX_PAGE = 20, 100
STATES: Mapping[NodeState, str] = MappingProxyType(
    {NodeState.UP: "Using", NodeState.DOWN: "Stopped", NodeState.UNKNOWN: "Unknown"}
)


@operation(
    "POST /",
    "nodes:read",
    in_body("ClusterId", "The cluster, as the nodes' agents name it.", required=True),
    in_body("ResourceGroupId", "Only nodes whose record names this resource group."),
    in_body("OperatingStates", f"Only nodes in one of these states: {listed(STATES.values())}."),
    in_body("NodeGroupId", "No node is in a node group: a filter on it selects none."),
    in_query("Tags", "`Tags.1.Key`, `Tags.1.Value`, ...: no node has tags, a filter on them selects none."),
    in_body("MaxResults", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
    in_body("NextToken", "That of the page before."),
    by_resource=True,
)
def list_cluster_nodes(arguments: Arguments) -> Steps:
    """Lists the nodes of a cluster by name: `{Nodes, NextToken, RequestId}`.

    A member is `{NodeId, Hostname, OperatingState, CreateTime, Networks, Tags}`. OperatingState is Using while the
    node's agent sends, Stopped when it does not, Unknown when the node never described itself.
    """
    cluster = arguments.required("ClusterId")
    size = arguments.integer("MaxResults", DEFAULT_PAGE, 1, MAX_PAGE)
    states = {word.casefold() for word in arguments.names("OperatingStates")}
    after = _name_of(arguments.text("NextToken"))
    nothing = bool(arguments.pairs("Tags") or arguments.text("NodeGroupId"))
    group = arguments.given("ResourceGroupId")
    question = NodesQuestion(clusters=frozenset({cluster}), silent_ms=arguments.context.silent_ms)
    found = yield from execute(question)
    if not found:
        raise NotFoundError(f"The specified ClusterId {cluster[:64]} does not exist.", "cluster", cluster[:64])
    matching = [
        one
        for one in found
        if not nothing
        and (not states or STATES[one.state].casefold() in states)
        and (not group or one.node.resource_group in group)
        and (after is None or _key(one.node.name) > _key(after))
    ]
    shown = matching[:size]
    body: dict[str, Any] = {"Nodes": [{**_fields(one), "Networks": [], "Tags": []} for one in shown]}
    if len(matching) > len(shown):
        body["NextToken"] = _token(shown[-1].node.name)
    return answer(body, arguments)


@operation("POST /", "nodes:read", in_body("NodeId", "The node's name.", required=True), by_resource=True)
def describe_node(arguments: Arguments) -> Steps:
    """Returns one node. If several machines have that name, it is the one that sent last.

    `{NodeId, Hostname, ClusterId, ClusterName, ResourceGroupId, OperatingState, CreateTime, Networks, Disks,
    RequestId}`; OperatingState as in ListClusterNodes.
    """
    name = arguments.required("NodeId")
    question = NodesQuestion(names=frozenset({name}), silent_ms=arguments.context.silent_ms)
    found = yield from execute(question)
    if not found:
        raise NotFoundError(f"The specified NodeId {name[:64]} does not exist.", "node", name[:64])
    one = max(found, key=lambda status: status.node.last_seen or 0)
    own = {"ClusterId": one.node.cluster, "ClusterName": one.node.cluster, "ResourceGroupId": one.node.resource_group}
    return answer({**_fields(one), **present(own), "Networks": [], "Disks": []}, arguments)


def _fields(one: NodeStatus) -> dict[str, Any]:
    return present(
        {
            "NodeId": one.node.name,
            "Hostname": one.node.name,
            "OperatingState": STATES[one.state],
            "CreateTime": stamp(one.node.first_seen),
        }
    )


def _key(name: str) -> tuple[Any, str]:
    return natural(name), name


def _token(name: str) -> str:
    """Return the token of the page after that node: a position, which permits nothing."""
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _name_of(token: str) -> str | None:
    """Return the node of a token; None for an empty token."""
    if not token:
        return None
    try:
        return urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4)).decode()
    except (EncodingError, UnicodeError) as error:
        raise InvalidRequestError("NextToken does not come from a previous page", "NextToken") from error
