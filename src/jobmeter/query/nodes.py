"""Machines as they are now: each one once, and whether its agent still sends."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.model.job import Node
from jobmeter.model.order import natural
from jobmeter.model.question import Question
from jobmeter.model.time import DAY, MINUTE
from jobmeter.registry.base import Registry

SILENT_MS = 3 * MINUTE
"""How long a node may send nothing before it counts as down, unless a setting says otherwise."""
_INTERVALS = 5
"""As in the registry: a node may be silent for so many of its agent's intervals."""


class NodeState(StrEnum):
    """The state of a node. Nobody can say of a node whose agent never described itself that it is down."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


class NodeStatus(msgspec.Struct, frozen=True):
    """A node and its state."""

    node: Node
    state: NodeState


class NodesQuestion(msgspec.Struct, Question[Sequence[NodeStatus]], frozen=True, kw_only=True):
    """The machines that the caller may see, by cluster and name. An empty filter selects all.

    ``silent_ms``: how long a node may send nothing before it counts as down.
    """

    names: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    resource_groups: frozenset[str] = frozenset()
    silent_ms: int = SILENT_MS


def find_nodes(registry: Registry, question: NodesQuestion, scope: Scope, now_ms: int) -> Sequence[NodeStatus]:
    """Answer a ``NodesQuestion``."""
    found = [
        node
        for node in visible_nodes(registry, scope, names=question.names or None)
        if (not question.clusters or node.cluster in question.clusters)
        and (not question.resource_groups or node.resource_group in question.resource_groups)
    ]
    return [NodeStatus(node, state_of(node, question.silent_ms, now_ms)) for node in machines(found)]


def visible_nodes(
    registry: Registry, scope: Scope, projects: frozenset[str] | None = None, names: frozenset[str] | None = None
) -> list[Node]:
    """Return the records of nodes inside of the scope; ``projects`` and ``names`` narrow them down, None does not."""
    if scope.job is not None:
        return []
    return [node for node in registry.nodes(scope.within(projects), names) if scope.shows_node(node)]


def machines(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield each machine once, by cluster and name: of several projects' records the one that was heard of last."""
    found: dict[tuple[str, str], Node] = {}
    for node in nodes:
        before = found.get((node.cluster, node.name))
        if before is None or (node.last_seen or 0) > (before.last_seen or 0):
            found[node.cluster, node.name] = node
    for place in sorted(found, key=lambda one: (natural(one[0]), natural(one[1]))):
        yield found[place]


def state_of(node: Node, silent_ms: int, now_ms: int) -> NodeState:
    """Return the state that follows from when a node was last heard of; a long interval allows a longer silence."""
    interval = node.info.get("interval_ms")
    patience = max(silent_ms, _INTERVALS * interval if isinstance(interval, int) and 0 < interval <= DAY else 0)
    if node.last_seen is not None and now_ms - node.last_seen < patience:
        return NodeState.UP
    return NodeState.DOWN if node.info else NodeState.UNKNOWN
