"""Tests of nodes, loads, lists and reports of resource groups, and of the parts that a scope hides."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fakes import NOW, SetClock
from tests.support.groups import ALL, GIB, RG, SPAN, House, Registry, had, new_house, replica
from tests.support.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import JobState, Node
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupNodesQuestion,
    GroupQuestion,
    Load,
    NodeLoad,
    NodeLoadsQuestion,
    RequestsQuestion,
    ResourceGroup,
    ResourceGroupsQuestion,
    sum_amounts,
)
from jobmeter.query.latest import LatestQuestion
from jobmeter.query.reported import ReportedQuestion
from jobmeter.query.request import By, GroupRef, JobRef, MetricQuery, NodeRef
from jobmeter.settings import Limits


@pytest.fixture
def house() -> House:
    return new_house()


class TestLoads:
    """Tests of the load of each node, whose sum equals the load of the group."""

    def loads(self, house: House, scope: Scope = ALL) -> dict[str, NodeLoad]:
        found = house.executor.run(NodeLoadsQuestion(group=RG, range=SPAN), scope)
        assert sum_amounts(one.capacity for one in found) == house.capacity()
        return {one.node.name: one for one in found}

    def test_what_a_node_has_and_what_runs_there(self, house):
        listed = [{"device": "gpu0", "name": "A100"}, {"device": "gpu1", "name": "A100"}]
        house.registry.stored_nodes = [
            Node(name="n10", resource_group="rg", info={"cores": 64, "memory": 256, "devices": listed}, last_seen=NOW),
            Node(name="n2", resource_group="rg", info={"cores": 32}, last_seen=NOW - HOUR),
            Node(name="n3", resource_group="other"),
        ]
        running = {"state": JobState.RUNNING}
        house.job(
            "j1", replica(node="n10", **running), limits={"cpu.limit": 4.0}, allocations=(had("gpu1", node="n10"),)
        )
        house.job(
            "j2",
            replica(node="n10", **running),
            replica("worker-1", "n2", **running),
            replica("worker-2", "n2", state=JobState.QUEUED, start=None),
            user="bob",
            limits={"cpu.limit": 2.0, "memory.limit": GIB, "gpu.limit": 1.0},
        )
        house.job("j3", replica(node="n10"), state=JobState.SUCCEEDED, end=NOW - MINUTE, limits={"cpu.limit": 9.0})
        found = self.loads(house)
        assert list(found) == ["n2", "n10"]
        assert [one.state for one in found.values()] == ["down", "up"]
        assert found["n10"].capacity == Amounts(cpu=64.0, memory=256.0, devices=2, device_types={"A100": 2})
        assert found["n10"].load == Load(
            requested=Amounts(cpu=6.0, memory=GIB, devices=2), replicas=2, jobs=("j1", "j2"), users=("ann", "bob")
        )
        assert found["n2"].load == Load(
            requested=Amounts(cpu=2.0, memory=GIB, devices=1), replicas=1, jobs=("j2",), users=("bob",)
        )

    def test_machines_of_one_name_in_two_clusters(self, house):
        house.registry.stored_nodes = [Node(name="n1", cluster=cluster, resource_group="rg") for cluster in ("a", "b")]
        house.job("j1", replica(cluster="b"), limits={"cpu.limit": 1.0}, allocations=(had("gpu0", cluster="b"),))
        house.job("j2", replica(), limits={"cpu.limit": 2.0})
        found = house.executor.run(NodeLoadsQuestion(group=RG, range=SPAN), ALL)
        amounts = [(one.node.cluster, one.load.requested.cpu, one.load.requested.devices) for one in found]
        assert amounts == [("a", 2.0, 0), ("b", 1.0, 1)], "a replica that names no cluster is on the first"

    @settings(max_examples=30, deadline=None)
    @given(data=st.data())
    def test_the_loads_of_all_nodes_are_the_requests_of_the_group(self, data):
        store, registry = MemoryStore(), Registry()
        house = House(store, registry, Executor(store, registry, SetClock(), Limits()))
        nodes = data.draw(st.integers(1, 4))
        registry.stored_nodes = [Node(name=f"n{at}", resource_group="rg") for at in range(nodes)]
        for number in range(data.draw(st.integers(1, 5))):
            replicas = [
                replica(
                    f"worker-{at}",
                    f"n{data.draw(st.integers(0, nodes - 1))}",
                    state=data.draw(st.sampled_from(JobState)),
                )
                for at in range(data.draw(st.integers(1, 3)))
            ]
            limits = {"cpu.limit": float(number + 1), "memory.limit": GIB * (number + 1)}
            gpus = {"gpu.limit": 2.0} if data.draw(st.booleans()) else {}
            devices = [had(f"gpu{number}-{one.name}", one.name, one.node) for one in replicas]
            house.job(f"j{number}", *replicas, limits={**limits, **gpus}, allocations=tuple(devices))
        loads = house.executor.run(NodeLoadsQuestion(group=RG, range=SPAN), ALL)
        whole, requested = sum_amounts(one.load.requested for one in loads), house.requests(JobState.RUNNING)
        assert (whole.cpu, whole.memory) == (requested.cpu, requested.memory)
        assert whole.devices == requested.devices


class TestListing:
    """Tests of the list of groups."""

    def listed(self, house: House, scope: Scope = ALL, **changes: Any) -> list[str]:
        return [one.name for one in house.executor.run(ResourceGroupsQuestion(**changes), scope)]

    def test_the_groups_of_nodes_and_of_jobs(self, house):
        house.registry.stored_nodes = [
            Node(name="n1", cluster="c", resource_group="rg", first_seen=NOW - DAY),
            Node(name="n1", cluster="c", project="other", resource_group="rg", first_seen=NOW - HOUR),
            Node(name="n2", cluster="b", resource_group="rg", first_seen=NOW - MINUTE),
            Node(name="n3"),
        ]
        house.job("j1", workspace="w2", created=NOW - 2 * DAY, updated=NOW - DAY)
        house.job("j2", workspace="w1", created=NOW - HOUR, updated=NOW - HOUR)
        house.job("j3", resource_group="rg10", created=5, updated=7)
        house.job("j4", resource_group="")
        first, last = house.executor.run(ResourceGroupsQuestion(), ALL)
        assert first == ResourceGroup(
            name="rg",
            nodes=2,
            clusters=("b", "c"),
            jobs=2,
            workspaces=("w1", "w2"),
            created=NOW - 2 * DAY,
            updated=NOW - MINUTE,
        )
        assert last == ResourceGroup(name="rg10", jobs=1, created=5, updated=7)
        assert self.listed(house, names=frozenset({"rg10", "nowhere"})) == ["rg10"]

    def test_every_listed_group_has_an_answer_and_nobody_sees_others(self, house):
        house.registry.stored_nodes = [Node(name="n1", project="a", resource_group="one")]
        house.job("j1", project="b", resource_group="two")
        for scope, expected in (
            (ALL, ["one", "two"]),
            (Scope(frozenset({"a"})), ["one"]),
            (Scope(frozenset({"b"})), ["two"]),
            (Scope(frozenset({"c"})), []),
            (Scope(None, job="j1"), []),
        ):
            assert self.listed(house, scope) == expected
            for name in ("one", "two"):
                question = NodeLoadsQuestion(group=GroupRef(name), range=SPAN)
                if name in expected:
                    house.executor.run(question, scope)
                else:
                    with pytest.raises(NotFoundError):
                        house.executor.run(question, scope)


class TestNodes:
    def test_one_metric_by_node(self, house):
        house.registry.stored_nodes = [Node(name=f"n{at}", resource_group="rg" if at < 2 else "") for at in range(3)]
        for node in ("n0", "n1", "n2"):
            for mode, seconds in (("user", 30.0), ("idle", 60.0), ("iowait", 10.0)):
                labels = (("mode", mode),)
                house.put("node.cpu.time", (200, 0.0), (100, seconds), node=node, labels=labels)
            house.put("node.cpu.count", (100, 1.0), node=node)
            house.put("node.memory.total", (100, 100.0), node=node)
            house.put("node.memory.available", (100, 40.0), node=node)
        metrics = ("node.cpu.utilization", "node.memory.utilization")
        asked = MetricQuery(subject=RG, metrics=metrics, range=SPAN, step_ms=HOUR, by=By.NODE)
        found = [(line.metric, line.node, line.value.tolist()) for line in house.executor.run(asked, ALL).lines]
        assert found == [
            ("node.cpu.utilization", "n0", pytest.approx([0.3])),
            ("node.cpu.utilization", "n1", pytest.approx([0.3])),
            ("node.memory.utilization", "n0", pytest.approx([0.6])),
            ("node.memory.utilization", "n1", pytest.approx([0.6])),
        ]

    def by_node(self, house: House, metric: str) -> dict[str, float]:
        asked = MetricQuery(subject=RG, metrics=(metric,), range=SPAN, step_ms=HOUR, by=By.NODE)
        lines = house.executor.run(asked, ALL).lines
        latest = house.executor.run(LatestQuestion(NodeRef("n1"), (metric,), By.NODE), ALL)
        assert [one.node for one in latest] == [line.node for line in lines if line.node == "n1"]
        assert [one.value for one in latest] == [line.value[-1] for line in lines if line.node == "n1"]
        return {line.node: line.value.item() for line in lines}

    def test_what_flows_through_a_node_adds_up_and_shares_have_a_mean(self, house):
        house.registry.stored_nodes = [Node(name=name, resource_group="rg") for name in ("n1", "n2")]
        for job, name, node in (("j1", "worker-0", "n1"), ("j1", "worker-1", "n1"), ("j2", "worker-0", "n1")):
            house.put("network.receive", (200, 0.0), (100, 1e8), job=job, replica=name, node=node)
            house.put("cpu.time", (200, 0.0), (100, 50.0), job=job, replica=name, node=node)
            house.put("memory.usage", (100, GIB), job=job, replica=name, node=node)
            house.put("pressure.io", (200, 0.0), (100, 50.0), job=job, replica=name, node=node)
        for device, share in (("gpu0", 0.2), ("gpu1", 0.4)):
            house.put("gpu.power", (100, 300.0), node="n2", device=device)
            house.put("gpu.utilization", (100, share), node="n2", device=device)
        assert self.by_node(house, "network.receive") == {"n1": pytest.approx(3e6)}
        assert self.by_node(house, "cpu.usage") == {"n1": pytest.approx(1.5)}
        assert self.by_node(house, "memory.usage") == {"n1": 3 * GIB}
        assert self.by_node(house, "pressure.io") == {"n1": pytest.approx(0.5)}
        assert self.by_node(house, "gpu.power") == {"n2": 600.0}
        assert self.by_node(house, "gpu.utilization") == {"n2": pytest.approx(0.3)}

    def test_by_replica_makes_no_sense(self, house):
        house.job("j1", replica())
        asked = MetricQuery(subject=RG, metrics=("cpu.usage",), range=SPAN, step_ms=HOUR, by=By.REPLICA)
        with pytest.raises(InvalidRequestError, match="by replica"):
            house.executor.run(asked, ALL)

    def test_their_types(self, house):
        devices = [{"name": "B"}, {"name": "A"}, {"name": "B"}, {}]
        house.registry.stored_nodes = [
            Node(name="n2", resource_group="rg"),
            Node(name="n1", resource_group="rg", info={"devices": devices}),
        ]
        found = house.executor.run(GroupNodesQuestion(group=RG, range=SPAN), ALL)
        assert [(node.name, node.device_types) for node in found] == [("n1", ("A", "B")), ("n2", ())]


class TestScope:
    @pytest.mark.parametrize(
        ("group", "scope"),
        [
            pytest.param(GroupRef("none"), ALL, id="unknown"),
            pytest.param(RG, Scope(frozenset({"b"})), id="another project's"),
            pytest.param(RG, Scope(frozenset()), id="nobody"),
            pytest.param(RG, Scope(frozenset({"a"}), job="j1"), id="a share token of one job"),
            pytest.param(GroupRef("rg", "a"), Scope(frozenset({"b"})), id="a named project out of reach"),
        ],
    )
    def test_a_group_out_of_reach_is_not_there(self, house, group, scope):
        house.job("j1", replica(), project="a")
        states = frozenset({JobState.RUNNING})
        metrics = MetricQuery(subject=group, metrics=("cpu.usage",), range=SPAN, step_ms=HOUR, by=By.NODE)
        for question in (
            GroupQuestion(group=group, range=SPAN),
            CapacityQuestion(group=group, range=SPAN),
            RequestsQuestion(group=group, range=SPAN, states=states),
            GroupNodesQuestion(group=group, range=SPAN),
            metrics,
        ):
            with pytest.raises(NotFoundError) as caught:
                house.executor.run(question, scope)
            assert caught.value.kind == "resource_group"

    def test_a_workspace_out_of_reach_is_not_there(self, house):
        house.job("j1", replica(), project="a")
        house.job("j2", replica(), project="b", workspace="w")
        with pytest.raises(NotFoundError) as caught:
            house.usage(Scope(frozenset({"a"})), workspace="w")
        assert caught.value.kind == "workspace"

    def test_nothing_of_another_project_is_reported(self, house):
        house.registry.stored_nodes = [
            Node(name="n1", project="a", info={"cores": 8}),
            Node(name="n1", project="b", info={"cores": 99, "devices": [{"name": "X"}]}),
        ]
        for project, user in (("a", "ann"), ("b", "spy")):
            house.job("j1", replica(), project=project, user=user, limits={"cpu.limit": 2.0})
            house.put("cpu.usage", (10, 1.0 if project == "a" else 2.0), job="j1", replica="worker-0", project=project)
            house.put("gpu.utilization", (10, 0.9), node="n1", device="gpu0", project="b")
        found = house.usage(Scope(frozenset({"a"})))
        assert [(one.user, one.cpu) for one in found.users] == [("ann", 0.5)]
        assert found.capacity == Amounts(cpu=8.0)
        everything = house.usage()
        assert [(one.user, one.cpu) for one in everything.users] == [("ann", 0.5), ("spy", 1.0)]


class TestReported:
    def put(self, house):
        house.job("j1", replica())
        house.put("app.loss", (30, 3.0), (20, 2.0), (10, 1.0), job="j1", replica="worker-0")
        house.put("app.loss", (20, 9.0), job="j1", replica="worker-1")
        house.put("app.step", (400, 7.0), job="j1", replica="worker-0")
        house.put("cpu.usage", (10, 1.0), job="j1", replica="worker-0")
        house.put("app.loss", (10, 5.0), job="j1", replica="worker-0", project="other")

    def ask(self, house, scope=ALL, **changes):
        fields: dict[str, Any] = {"ref": JobRef("j1"), "range": TimeRange(NOW - HOUR, NOW), **changes}
        found = house.executor.run(ReportedQuestion(**fields), scope)
        return [(one.name, one.replica, (NOW - one.time) // SECOND, one.value) for one in found.reports], found.total

    def test_by_time_name_and_replica(self, house):
        self.put(house)
        everything = [
            ("step", "worker-0", 400, 7.0),
            ("loss", "worker-0", 30, 3.0),
            ("loss", "worker-0", 20, 2.0),
            ("loss", "worker-1", 20, 9.0),
            ("loss", "worker-0", 10, 1.0),
        ]
        assert self.ask(house) == (everything, 5)
        assert self.ask(house, descending=True) == (everything[::-1], 5)
        assert self.ask(house, offset=1, limit=2) == (everything[1:3], 5)
        assert self.ask(house, range=TimeRange(NOW - 20_000, NOW - 10_000)) == (everything[2:4], 2)
        assert self.ask(house, names=frozenset({"app.step"})) == (everything[:1], 1)
        assert self.ask(house, names=frozenset({"cpu.usage"})) == ([], 0)

    def test_the_latest(self, house):
        self.put(house)
        assert self.ask(house, latest=True) == ([("loss", "worker-0", 10, 1.0), ("step", "worker-0", 400, 7.0)], 2)

    def test_another_project_s_job_is_not_there(self, house):
        self.put(house)
        with pytest.raises(NotFoundError):
            self.ask(house, Scope(frozenset({"other"})))
