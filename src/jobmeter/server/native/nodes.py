"""``/nodes``: the machines that agents run on."""

from jobmeter.server.native.arguments import Query
from jobmeter.server.native.bodies import NodeList, node_body
from jobmeter.server.native.endpoint import PROJECT, Ask, Endpoint


def _list(ask: Ask) -> NodeList:
    groups = ask.arguments.texts("resource_group")
    found = ask.services.registry.nodes(ask.scope.projects)
    return NodeList([node_body(node) for node in found if not groups or node.resource_group in groups])


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
        queries=(Query("resource_group", "Only nodes of these resource groups.", many=True), PROJECT),
    ),
)
