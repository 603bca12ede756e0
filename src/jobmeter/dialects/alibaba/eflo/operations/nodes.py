"""ListClusterNodes and DescribeNode.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-listclusternodes
https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-describenode
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobmeter.dialects.alibaba.common.listing import drop_empty
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, JsonText, answer, operation
from jobmeter.dialects.alibaba.common.times import stamp
from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import BODY, ParameterKind, ParameterReader, ParameterSlot, list_names
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.order import make_natural_key
from jobmeter.query.nodes import NodesQuestion, NodeState, NodeStatus

STATES: Mapping[NodeState, str] = {NodeState.UP: "Using", NodeState.DOWN: "Stopped", NodeState.UNKNOWN: "Unknown"}


class _Pair(msgspec.Struct, frozen=True, rename="pascal"):
    key: str = ""
    value: str = ""


class _Pairs(ParameterKind):
    """Keys and values of ``Tags.1.Key``, ``Tags.1.Value``, ..., or of a JSON list of these objects."""

    def read(self, reader: ParameterReader, slot: ParameterSlot, values: Mapping[str, Any]) -> tuple[_Pair, ...]:
        """Return the pairs."""
        listed = JsonText(list[_Pair], "not a list of objects with Key and Value").read(reader, slot, values) or ()
        keys = (
            key for key, value in values.items() if value and re.fullmatch(rf"{slot.name}\.[1-9]\d{{0,5}}\.Key", key)
        )
        return tuple(listed) or tuple(_Pair(values[key]) for key in keys)


@operation("POST /", "nodes:read", by_resource=True)
class ListClusterNodes(AlibabaRequest, frozen=True, kw_only=True):
    """Lists the nodes of a cluster by name: `{Nodes, NextToken, RequestId}`.

    A member is `{NodeId, Hostname, OperatingState, CreateTime, Networks, Tags}`. OperatingState is Using while the
    node's agent sends, Stopped when it does not, Unknown when the node never described itself.
    """

    cluster_id: Annotated[str, BODY, "The cluster, as the nodes' agents name it."]
    resource_group_id: Annotated[str, BODY, "Only nodes whose record names this resource group."] = ""
    operating_states: Annotated[
        tuple[str, ...],
        BODY,
        f"Only nodes in one of these states: {list_names(STATES.values())}.",
    ] = ()
    node_group_id: Annotated[str, BODY, "No node is in a node group: a filter on it selects none."] = ""
    tags: Annotated[
        tuple[_Pair, ...],
        "`Tags.1.Key`, `Tags.1.Value`, ...: no node has tags, a filter on them selects none.",
        _Pairs(),
    ] = ()
    max_results: Annotated[int, BODY, Meta(ge=1, le=100)] = 20
    next_token: Annotated[str, BODY, "NextToken of the previous page."] = ""

    def _steps(self) -> Steps:
        states = {word.casefold() for word in self.operating_states}
        after = _name_of(self.next_token)
        is_empty = bool(self.tags or self.node_group_id)
        question = NodesQuestion(clusters=frozenset({self.cluster_id}), silent_ms=self.context.silent_ms)
        found = yield from ask(question)
        if not found:
            name = self.cluster_id[:64]
            raise NotFoundError(f"The specified ClusterId {name} does not exist.", "cluster", name)
        matching = [
            one
            for one in found
            if not is_empty
            and (not states or STATES[one.state].casefold() in states)
            and self.resource_group_id in {"", one.node.resource_group}
            and (after is None or _key(one.node.name) > _key(after))
        ]
        shown = matching[: self.max_results]
        body: dict[str, Any] = {"Nodes": [{**_fields(one), "Networks": [], "Tags": []} for one in shown]}
        if len(matching) > len(shown):
            body["NextToken"] = _token(shown[-1].node.name)
        return answer(body, self)


@operation("POST /", "nodes:read", by_resource=True)
class DescribeNode(AlibabaRequest, frozen=True, kw_only=True):
    """Returns one node. If several machines have that name, the answer is the machine that sent last.

    `{NodeId, Hostname, ClusterId, ClusterName, ResourceGroupId, OperatingState, CreateTime, Networks, Disks,
    RequestId}`; OperatingState as in ListClusterNodes.
    """

    node_id: Annotated[str, BODY, "The node's name."]

    def _steps(self) -> Steps:
        question = NodesQuestion(names=frozenset({self.node_id}), silent_ms=self.context.silent_ms)
        found = yield from ask(question)
        if not found:
            name = self.node_id[:64]
            raise NotFoundError(f"The specified NodeId {name} does not exist.", "node", name)
        one = max(found, key=lambda status: status.node.last_seen or 0)
        cluster = one.node.cluster
        own = {"ClusterId": cluster, "ClusterName": cluster, "ResourceGroupId": one.node.resource_group}
        return answer({**_fields(one), **drop_empty(own), "Networks": [], "Disks": []}, self)


def _fields(one: NodeStatus) -> dict[str, Any]:
    return drop_empty(
        {
            "NodeId": one.node.name,
            "Hostname": one.node.name,
            "OperatingState": STATES[one.state],
            "CreateTime": stamp(one.node.first_seen),
        }
    )


def _key(name: str) -> tuple[Any, str]:
    return make_natural_key(name), name


def _token(name: str) -> str:
    """Return the token of the page after that node. The token is a position and grants no permission."""
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _name_of(token: str) -> str | None:
    """Return the node of a token; None for an empty token."""
    if not token:
        return None
    try:
        return urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4)).decode()
    except (EncodingError, UnicodeError) as error:
        raise InvalidRequestError("NextToken does not come from a previous page", "NextToken") from error
