"""``/nodes``: the machines that agents run on."""

from jobmeter.server.native.bodies import NodeList, node_body
from jobmeter.server.native.endpoint import PROJECT, Ask, Endpoint


def _list(ask: Ask) -> NodeList:
    return NodeList([node_body(node) for node in ask.services.registry.nodes(ask.scope.projects)])


ENDPOINTS = (
    Endpoint(
        name="listNodes",
        tag="nodes",
        method="GET",
        path="/nodes",
        action="nodes:read",
        summary="List nodes",
        work=_list,
        answer=NodeList,
        queries=(PROJECT,),
    ),
)
