"""Current machines: each one once, with the state of its agent."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Node
from jobmeter.model.order import make_natural_key
from jobmeter.model.question import Question
from jobmeter.model.time import DAY, MINUTE
from jobmeter.query.faults import NodeFault, read_node_faults
from jobmeter.registry.base import Registry

SILENT_MS = 3 * MINUTE
"""Default for the longest silence in milliseconds of a node that is up."""
_INTERVALS = 5
"""Intervals of its agent for which a node may be silent, as in the registry."""


class NodeState(StrEnum):
    """State of a node. A node whose agent never described itself is never reported as down."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


class NodeStatus(msgspec.Struct, frozen=True):
    """Node with its state."""

    node: Node
    state: NodeState


class NodesQuestion(msgspec.Struct, Question[Sequence[NodeStatus]], frozen=True, kw_only=True):
    """Question for the visible machines, by cluster and name. An empty filter selects all.

    ``silent_ms``: longest silence of a node that is up.
    """

    by_resource = of_job = True

    names: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    resource_groups: frozenset[str] = frozenset()
    silent_ms: int = SILENT_MS


class FaultyNode(msgspec.Struct, frozen=True):
    """Node with its faults, the newest first."""

    node: str
    cluster: str
    faults: Sequence[NodeFault]


class NodeFaultsQuestion(msgspec.Struct, Question[Sequence[FaultyNode]], frozen=True, kw_only=True):
    """Question for the faults of visible nodes. An empty filter selects all."""

    by_resource = True

    names: frozenset[str] = frozenset()
    resource_groups: frozenset[str] = frozenset()


def find_nodes(registry: Registry, question: NodesQuestion, scope: Scope, now_ms: int) -> Sequence[NodeStatus]:
    """Answer a ``NodesQuestion``."""
    found = [
        node
        for node in list_visible_nodes(registry, scope, names=question.names or None)
        if (not question.clusters or node.cluster in question.clusters)
        and (not question.resource_groups or node.resource_group in question.resource_groups)
    ]
    return [NodeStatus(node, determine_state(node, question.silent_ms, now_ms)) for node in merge_machines(found)]


def find_faults(registry: Registry, question: NodeFaultsQuestion, scope: Scope, now_ms: int) -> Sequence[FaultyNode]:
    """Answer a ``NodeFaultsQuestion``."""
    nodes = [
        node
        for node in merge_machines(list_visible_nodes(registry, scope))
        if (not question.resource_groups or node.resource_group in question.resource_groups)
        and (not question.names or node.name in question.names)
    ]
    found = read_node_faults(registry, nodes, scope.projects, scope, now_ms)
    return [FaultyNode(node, cluster, faults) for (cluster, node), faults in found.items()]


def list_visible_nodes(
    registry: Registry, scope: Scope, projects: frozenset[str] | None = None, names: frozenset[str] | None = None
) -> list[Node]:
    """Return the records of nodes inside the scope; ``projects`` and ``names`` narrow them unless None."""
    if scope.job is not None:
        return []
    return [node for node in registry.list_nodes(scope.intersect_projects(projects), names) if scope.shows_node(node)]


def merge_machines(nodes: Iterable[Node]) -> list[Node]:
    """Merge records into machines, by cluster and name: several projects may have a record of one machine.

    The description is that of the newest record made by an agent; the last contact is the newest of all records.
    """
    records = group_pairs(((node.cluster, node.name), node) for node in nodes)
    places = sorted(records, key=lambda place: (make_natural_key(place[0]), make_natural_key(place[1])))
    return [_machine(records[place]) for place in places]


def _machine(records: Sequence[Node]) -> Node:
    best = max(records, key=lambda one: (bool(one.info), one.last_seen or 0, one.project))
    first = min((one.first_seen for one in records if one.first_seen is not None), default=None)
    last = max((one.last_seen for one in records if one.last_seen is not None), default=None)
    group = best.resource_group or next((one.resource_group for one in records if one.resource_group), "")
    return replace(best, resource_group=group, first_seen=first, last_seen=last)


def determine_state(node: Node, silent_ms: int, now_ms: int) -> NodeState:
    """Determine the state of a node by its last contact; a long interval allows a longer silence."""
    interval = node.info.get("interval_ms")
    patience = max(silent_ms, _INTERVALS * interval if isinstance(interval, int) and 0 < interval <= DAY else 0)
    if node.last_seen is not None and now_ms - node.last_seen < patience:
        return NodeState.UP
    return NodeState.DOWN if node.info else NodeState.UNKNOWN
