"""Tests of the current list of nodes: one for each name in a cluster, with a state derived from its silence."""

import pytest
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.policy import compile_policies
from jobmeter.access.principal import Scope
from jobmeter.model.job import Node
from jobmeter.model.time import MINUTE
from jobmeter.query.execute import Executor
from jobmeter.query.nodes import NodesQuestion
from jobmeter.settings import Limits

ALL = Scope(None)


def found(nodes, scope=ALL, **changes):
    registry = FakeRegistry()
    registry.stored_nodes = nodes
    executor = Executor(MemoryStore(), registry, SetClock(), Limits())
    return executor.run(NodesQuestion(**changes), scope)


def names(nodes, scope=ALL, **changes):
    return [(one.node.cluster, one.node.name) for one in found(nodes, scope, **changes)]


MANY = [
    Node(name="n10", cluster="c", resource_group="rg"),
    Node(name="n2", cluster="c"),
    Node(name="n2", cluster="b", resource_group="rg"),
    Node(name="n1", project="lab", cluster="b", resource_group="other"),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [("b", "n1"), ("b", "n2"), ("c", "n2"), ("c", "n10")]),
        ({"clusters": frozenset({"c"})}, [("c", "n2"), ("c", "n10")]),
        ({"names": frozenset({"n2", "n9"})}, [("b", "n2"), ("c", "n2")]),
        ({"resource_groups": frozenset({"rg"})}, [("b", "n2"), ("c", "n10")]),
        ({"clusters": frozenset({"c"}), "resource_groups": frozenset({"rg"})}, [("c", "n10")]),
        ({"clusters": frozenset({"d"})}, []),
    ],
)
def test_filters_and_order(filters, expected):
    assert names(MANY, **filters) == expected


def test_a_machine_that_several_projects_have_is_listed_once_as_it_was_heard_of_last():
    nodes = [
        Node(name="n1", project="a", last_seen=NOW - 9 * MINUTE, info={"cores": 1}),
        Node(name="n1", project="b", last_seen=NOW, info={"cores": 2}),
        Node(name="n1", project="c"),
    ]
    [one] = found(nodes)
    assert (one.node.project, one.state) == ("b", "up")
    [one] = found(nodes, Scope(frozenset({"a", "c"})))
    assert (one.node.project, one.state) == ("a", "down")


@pytest.mark.parametrize(
    ("silence", "info", "state"),
    [
        (3 * MINUTE - 1, {"cores": 1}, "up"),
        (3 * MINUTE, {"cores": 1}, "down"),
        (3 * MINUTE, {}, "unknown"),
        (0, {}, "up"),
        (5 * MINUTE - 1, {"interval_ms": MINUTE}, "up"),
        (5 * MINUTE, {"interval_ms": MINUTE}, "down"),
        (5 * MINUTE, {"interval_ms": "soon"}, "down"),
        (None, {"cores": 1}, "down"),
        (None, {}, "unknown"),
    ],
)
def test_the_state_of_a_node(silence, info, state):
    [one] = found([Node(name="n1", info=info, last_seen=None if silence is None else NOW - silence)])
    assert one.state == state


def test_a_setting_lengthens_the_patience():
    [one] = found([Node(name="n1", info={"cores": 1}, last_seen=NOW - 9 * MINUTE)], silent_ms=10 * MINUTE)
    assert one.state == "up"


def test_nobody_sees_other_nodes():
    assert names(MANY, Scope(frozenset({"lab"}))) == [("b", "n1")]
    assert names(MANY, Scope(frozenset())) == []
    assert names(MANY, Scope(None, job="j1")) == []
    policies = compile_policies(
        '[{"name": "p", "document": {"Version": "1", "Statement": [{"Effect": "Allow", "Action": "*",'
        ' "Resource": "acs:*:*:default:cluster/c"}]}}]'
    )
    assert policies is not None
    grant = policies["eflo", "ListClusterNodes"]
    assert names(MANY, Scope(None, grant=grant)) == [("c", "n2"), ("c", "n10")]
