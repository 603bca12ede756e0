"""Who used how much of a resource group: told once more by hand, and what belongs to somebody else stays unseen."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import NOW, FakeRegistry, SetClock
from tests.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.job import Allocation, InstanceType, Job, JobState, Node, Replica
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange
from jobmeter.query import groups
from jobmeter.query.execute import Executor
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupNodesQuestion,
    GroupQuestion,
    GroupUsage,
    Load,
    NodeLoad,
    NodeLoadsQuestion,
    RequestsQuestion,
    ResourceGroup,
    ResourceGroupsQuestion,
    ResourceUsage,
    total,
)
from jobmeter.query.latest import LatestQuestion
from jobmeter.query.reported import ReportedQuestion
from jobmeter.query.request import By, GroupRef, JobRef, MetricQuery, NodeRef
from jobmeter.settings import Limits

ALL = Scope(None)
SPAN = TimeRange(NOW - 5 * MINUTE, NOW)
RG = GroupRef("rg")
GIB = 2.0**30


class Registry(FakeRegistry):
    """Lists jobs by group and workspace too."""

    def jobs(self, question, now_ms):
        page = super().jobs(question, now_ms)
        found = [
            job
            for job in page.jobs
            if (not question.resource_groups or job.resource_group in question.resource_groups)
            and (not question.workspaces or job.workspace in question.workspaces)
        ]
        return type(page)(found[: question.limit], len(found))


@dataclass
class House:
    store: MemoryStore
    registry: Registry
    executor: Executor

    def job(self, name: str, *replicas: Replica, allocations: tuple[Allocation, ...] = (), **fields: Any) -> None:
        record_fields: dict[str, Any] = {
            "resource_group": "rg",
            "user": "ann",
            "recorded": True,
            "start": NOW - HOUR,
            **fields,
        }
        self.registry.add_job(Job(id=name, **record_fields), replicas, allocations)

    def put(self, metric: str, *points: tuple[float, float], **names: Any) -> None:
        """Store points given as (seconds before now, value)."""
        series = Series(metric, **names)
        times = np.array([NOW - int(1_000 * second) for second, _ in points], np.int64)
        values = np.array([value for _, value in points], np.float64)
        self.store.append(SampleBatch([series], np.zeros(len(points), np.uint32), times, values))

    def usage(self, scope: Scope = ALL, **changes: Any) -> GroupUsage:
        return self.executor.run(GroupQuestion(**{"group": RG, "range": SPAN, **changes}), scope)

    def only(self, **changes: Any) -> ResourceUsage:
        (one,) = self.usage(**changes).users
        return one

    def capacity(self) -> Amounts:
        return self.executor.run(CapacityQuestion(group=RG, range=SPAN), ALL)

    def requests(self, *states: JobState) -> Amounts:
        return self.executor.run(RequestsQuestion(group=RG, range=SPAN, states=frozenset(states)), ALL)


@pytest.fixture
def house() -> House:
    store, registry = MemoryStore(), Registry()
    return House(store, registry, Executor(store, registry, SetClock(), Limits()))


def replica(name: str = "worker-0", node: str = "n1", **fields: Any) -> Replica:
    return Replica(name=name, node=node, **fields)


def had(device: str, name: str = "worker-0", node: str = "n1", **fields: Any) -> Allocation:
    return Allocation(**{"replica": name, "node": node, "device": device, "start": NOW - HOUR, **fields})


class TestRates:
    def test_usage_is_reported_of_what_is_allowed(self, house):
        house.job("j1", replica(), replica("worker-1"), limits={"cpu.limit": 4.0, "memory.limit": 8 * GIB})
        house.put("cpu.usage", (200, 1.0), (100, 3.0), job="j1", replica="worker-0")
        house.put("cpu.usage", (100, 4.0), job="j1", replica="worker-1")
        house.put("memory.usage", (10, 2 * GIB), job="j1", replica="worker-0")
        one = house.only()
        assert one.cpu == pytest.approx((2.0 + 4.0) / 8.0)
        assert one.memory == pytest.approx(0.25), "a replica that was not measured counts in neither sum"
        assert (one.requested.cpu, one.requested.memory) == (8.0, 16 * GIB)
        assert (one.device, one.network_receive, one.disk_write) == (None, None, None)

    def test_a_measured_limit_comes_before_the_record_and_the_instance_type_after_it(self, house):
        kind = InstanceType(cpu=16.0, memory=int(32 * GIB))
        house.job("j1", replica(), replica("worker-1"), limits={"cpu.limit": 4.0}, instance_type=kind)
        house.put("cpu.limit", (10, 2.0), job="j1", replica="worker-0")
        assert house.only().requested == Amounts(cpu=6.0, memory=64 * GIB)

    def test_a_measured_utilization_is_used_as_it_is(self, house):
        house.job("j1", replica(), replica("worker-1"), limits={"cpu.limit": 4.0})
        house.put("cpu.utilization", (10, 0.5), job="j1", replica="worker-0")
        house.put("cpu.usage", (10, 1.0), job="j1", replica="worker-0")
        house.put("cpu.usage", (10, 4.0), job="j1", replica="worker-1")
        assert house.only().cpu == pytest.approx((0.5 * 4 + 4) / 8)

    def test_without_any_limit_measured_utilizations_have_their_mean(self, house):
        house.job("j1", replica(), replica("worker-1"))
        house.put("cpu.utilization", (10, 0.5), job="j1", replica="worker-0")
        house.put("cpu.utilization", (10, 0.1), job="j1", replica="worker-1")
        house.put("memory.usage", (10, GIB), job="j1", replica="worker-0")
        one = house.only()
        assert one.cpu == pytest.approx(0.3)
        assert one.memory is None, "nobody knows of what"
        assert one.requested.memory == 0.0

    def test_counters_are_counted_from_before_the_range(self, house):
        house.job("j1", replica(), limits={"cpu.limit": 2.0})
        house.put("cpu.time", (400, 100.0), (200, 300.0), (100, 350.0), job="j1", replica="worker-0")
        house.put("network.receive", (400, 0.0), (100, 3e8), job="j1", replica="worker-0")
        one = house.only()
        assert one.cpu == pytest.approx(250 / 300 / 2)
        assert one.network_receive == pytest.approx(1e6)

    def test_rates_of_replicas_are_added(self, house):
        house.job("j1", replica(), replica("worker-1"))
        for name in ("worker-0", "worker-1"):
            house.put("disk.read", (200, 0.0), (100, 1e8), job="j1", replica=name)
        assert house.only().disk_read == pytest.approx(2e6)

    def test_samples_outside_of_the_range_are_not_reported(self, house):
        house.job("j1", replica(), limits={"cpu.limit": 2.0})
        house.put("cpu.usage", (301, 2.0), (0, 2.0), job="j1", replica="worker-0")
        assert house.only().cpu is None

    def test_attempts_of_one_replica_are_one(self, house):
        house.job("j1", replica(attempt=0, end=NOW - 2 * MINUTE), replica(attempt=1), limits={"cpu.limit": 2.0})
        house.put("cpu.usage", (200, 2.0), job="j1", replica="worker-0", attempt=0)
        house.put("cpu.usage", (100, 1.0), job="j1", replica="worker-0", attempt=1)
        one = house.only()
        assert one.requested.cpu == 2.0
        assert one.cpu == pytest.approx(0.75)

    def test_a_job_that_names_no_replica_has_one(self, house):
        house.job("j1", limits={"cpu.limit": 2.0})
        assert house.only().requested.cpu == 2.0
        house.put("cpu.usage", (10, 1.0), job="j1")
        one = house.only()
        assert (one.requested.cpu, one.cpu) == (2.0, 0.5)

    def test_a_replica_of_samples_alone_counts(self, house):
        house.job("j1", limits={"cpu.limit": 2.0})
        house.put("cpu.usage", (10, 1.0), job="j1", replica="a", node="n1")
        house.put("cpu.usage", (10, 1.0), job="j1", replica="b", node="n2")
        one = house.only()
        assert (one.requested.cpu, one.cpu, one.cpu_nodes) == (4.0, 0.5, ("n1", "n2"))


class TestDevices:
    def test_the_mean_over_devices(self, house):
        house.job("j1", replica(), allocations=(had("gpu0"), had("gpu1"), had("gpu2")))
        house.put("gpu.utilization", (200, 1.0), (100, 0.5), job="j1", replica="worker-0", node="n1", device="gpu0")
        house.put("gpu.utilization", (100, 0.25), job="j1", replica="worker-0", node="n1", device="gpu1")
        one = house.only()
        assert one.device == pytest.approx(0.5)
        assert one.requested.devices == 3
        assert (one.device_jobs, one.cpu_jobs, one.device_nodes, one.cpu_nodes) == (("j1",), (), ("n1",), ())

    def test_devices_that_were_measured_for_nobody(self, house):
        house.job("j1", replica(), allocations=(had("gpu0"), had("gpu1", start=NOW - 2 * MINUTE)))
        house.job("j2", replica(), user="bob", allocations=(had("gpu1", end=NOW - 2 * MINUTE),))
        house.put("gpu.utilization", (200, 0.5), (100, 0.7), node="n1", device="gpu0")
        house.put("gpu.utilization", (200, 0.1), (100, 0.9), node="n1", device="gpu1")
        ann, bob = house.usage().users
        assert ann.device == pytest.approx((0.6 + 0.9) / 2)
        assert bob.device == pytest.approx(0.1)

    def test_an_npu_is_a_device_too(self, house):
        house.job("j1", replica())
        house.put("npu.utilization", (10, 0.5), job="j1", replica="worker-0", node="n1", device="npu0")
        one = house.only()
        assert (one.device, one.requested.devices, one.device_jobs) == (0.5, 1, ("j1",))

    def test_what_was_promised_comes_before_what_was_sampled(self, house):
        kind = InstanceType(gpu_count=8, gpu_type="A100")
        house.job("j1", replica(), replica("worker-1"), instance_type=kind, allocations=(had("gpu0"),))
        assert house.only().requested == Amounts(devices=16, device_types={"A100": 16})
        house.job("j1", replica(), replica("worker-1"), limits={"gpu.limit": 4.0})
        assert house.only().requested.devices == 8

    def test_devices_of_a_node_that_the_replica_left_are_not_counted_twice(self, house):
        moved = (replica(attempt=0, end=NOW - 3 * MINUTE), replica(attempt=1, node="n2", start=NOW - 2 * MINUTE))
        gone, got = had("gpu0", end=NOW - 3 * MINUTE), had("gpu0", node="n2", start=NOW - 2 * MINUTE)
        house.job("j1", *moved, allocations=(gone, got))
        assert house.only().requested.devices == 1

    def test_a_device_that_only_samples_name_is_counted_once_after_a_restart(self, house):
        house.job("j1", replica(attempt=0), replica(attempt=1, node="n2"))
        house.job("j2", replica(node="n3"))
        for attempt, node in enumerate(("n1", "n2")):
            points = [(280 - 120 * attempt - second, 0.8) for second in range(0, 120, 10)]
            own = {"job": "j1", "replica": "worker-0", "attempt": attempt}
            house.put("gpu.utilization", *points, node=node, device="gpu0", **own)
        house.put("gpu.utilization", (10, 0.2), job="j2", replica="worker-0", node="n3", device="gpu0")
        one = house.only()
        assert (one.requested.devices, one.device) == (2, pytest.approx(0.5))


class TestWho:
    def test_each_user_and_all_of_them(self, house):
        for number, user in enumerate(("u10", "u2", "u2", "")):
            house.job(f"j{number}", replica(node=f"n{number}"), user=user, limits={"cpu.limit": 1.0}, type="TFJob")
            house.put("cpu.usage", (10, number / 10), job=f"j{number}", replica="worker-0")
        found = house.usage()
        assert [one.user for one in found.users] == ["", "u2", "u10"]
        assert [one.cpu for one in found.users] == pytest.approx([0.3, 0.15, 0.0])
        assert found.summary.cpu == pytest.approx(0.15)
        assert (found.summary.user, found.summary.types) == ("", ("TFJob",))
        assert found.summary.cpu_jobs == ("j0", "j1", "j2", "j3")
        assert found.summary.requested.cpu == 4.0

    def test_a_workspace_narrows_the_jobs_and_not_the_capacity(self, house):
        for number in range(2):
            house.job(f"j{number}", replica(node=f"n{number}"), workspace=f"w{number}", limits={"cpu.limit": 3.0})
        found = house.usage(workspace="w1")
        assert found.summary.cpu_jobs == ("j1",)
        assert found.summary.requested.cpu == 3.0
        assert found.capacity.cpu == 6.0

    @pytest.mark.parametrize(
        ("fields", "there"),
        [
            ({"state": JobState.QUEUED, "start": None}, False),
            ({"state": JobState.SUCCEEDED, "end": NOW - 6 * MINUTE}, False),
            ({"state": JobState.SUCCEEDED, "end": NOW - 4 * MINUTE}, True),
            ({"state": JobState.RUNNING, "start": NOW}, False),
            ({"state": JobState.RUNNING, "start": NOW - DAY}, True),
            ({"state": JobState.RUNNING, "recorded": False, "end": NOW - 6 * MINUTE}, True),
            ({"resource_group": "other"}, False),
        ],
    )
    def test_a_job_counts_while_it_runs(self, house, fields, there):
        house.registry.stored_nodes = [Node(name="n9", resource_group="rg")]
        house.job("j1", replica(), **fields)
        assert [one.cpu_jobs for one in house.usage().users] == ([("j1",)] if there else [])

    def test_a_group_without_jobs_reports_nothing(self, house):
        house.registry.stored_nodes = [Node(name="n1", resource_group="rg", info={"cores": 8})]
        found = house.usage()
        assert (found.users, found.summary, found.capacity.cpu) == ([], ResourceUsage(), 8.0)


class TestCapacity:
    def test_nodes_say_what_they_have(self, house):
        devices = [{"name": "NVIDIA A100"}, {"name": "NVIDIA A100"}, {"name": "Tesla T4"}]
        house.registry.stored_nodes = [
            Node(name="n1", resource_group="rg", info={"cores": 64, "memory": 256, "devices": devices}),
            Node(name="n2", resource_group="rg", info={"cores": 32, "memory": 128}),
            Node(name="n3", resource_group="other", info={"cores": 999, "memory": 999}),
        ]
        assert house.capacity() == Amounts(
            cpu=96.0, memory=384.0, devices=3, device_types={"NVIDIA A100": 2, "Tesla T4": 1}
        )

    def test_else_what_was_measured_of_them(self, house):
        house.registry.stored_nodes = [Node(name="n1", cluster="c", resource_group="rg", info={"memory": 5})]
        house.put("node.cpu.count", (100, 8.0), (50, 16.0), node="n1", cluster="c")
        house.put("node.memory.total", (50, 100.0), node="n1", cluster="c")
        assert house.capacity() == Amounts(cpu=16.0, memory=5.0)

    def test_else_what_replicas_are_allowed_there(self, house):
        house.registry.stored_nodes = [Node(name="n1", resource_group="rg"), Node(name="n2", resource_group="rg")]
        house.job("j1", replica(), replica("worker-1", "n2"), limits={"cpu.limit": 3.0}, allocations=(had("gpu0"),))
        assert house.capacity() == Amounts(cpu=6.0, devices=1, device_types={"": 1})

    def test_a_group_that_no_node_names_has_the_nodes_of_its_jobs(self, house):
        house.registry.stored_nodes = [
            Node(name="n1", info={"cores": 8}),
            Node(name="n2", info={"cores": 16}),
            Node(name="n3", info={"cores": 32}, resource_group="other"),
            Node(name="n4", info={"cores": 64}),
        ]
        house.job("j1", replica(), replica("worker-1", "n3"))
        house.job("j2", replica(node="n2"), state=JobState.SUCCEEDED, start=NOW - 3 * HOUR, end=NOW - 2 * HOUR)
        house.job("j3", replica(node="n4"), state=JobState.SUCCEEDED, start=NOW - 3 * DAY, end=NOW - 2 * DAY)
        assert house.capacity().cpu == 24.0

    def test_without_any_node_what_replicas_are_allowed(self, house):
        house.job("j1", replica(node=""), replica("worker-1", ""), limits={"cpu.limit": 2.0})
        assert house.capacity().cpu == 4.0

    @pytest.mark.parametrize("info", [{"cores": "many"}, {"cores": True}, {"cores": float("inf")}, {"devices": "two"}])
    def test_what_a_node_says_may_be_anything(self, house, info):
        house.registry.stored_nodes = [Node(name="n1", resource_group="rg", info=info)]
        assert house.capacity() == Amounts()


class TestRequests:
    def test_by_state_of_the_replica(self, house):
        house.job(
            "j1",
            replica(state=JobState.RUNNING),
            replica("worker-1", state=JobState.QUEUED, start=None),
            replica("worker-2", state=JobState.FAILED, end=NOW - MINUTE),
            limits={"cpu.limit": 2.0},
        )
        house.job("j2", state=JobState.QUEUED, start=None, limits={"cpu.limit": 5.0})
        house.put("cpu.limit", (10, 100.0), job="j1", replica="worker-2")
        assert house.requests(JobState.RUNNING).cpu == 2.0
        assert house.requests(JobState.QUEUED).cpu == 7.0
        assert house.requests(JobState.FAILED, JobState.SUCCEEDED, JobState.STOPPED).cpu == 100.0

    def test_a_limit_that_was_measured_long_ago_holds_until_another_is(self, house):
        house.job("j1", replica(attempt=0), replica(attempt=1), replica("worker-1"), limits={"memory.limit": GIB})
        house.put("cpu.limit", (3_000, 2.0), (2_000, 4.0), job="j1", replica="worker-0", attempt=0)
        house.put("cpu.limit", (1_000, 8.0), job="j1", replica="worker-0", attempt=1)
        house.put("memory.limit", (1_000, 4 * GIB), job="j1", replica="worker-0", attempt=1)
        assert house.requests(JobState.RUNNING) == Amounts(cpu=8.0, memory=5 * GIB)
        assert house.only().requested == Amounts(cpu=8.0, memory=5 * GIB)
        house.put("cpu.limit", (10, 16.0), job="j1", replica="worker-0", attempt=1)
        assert house.requests(JobState.RUNNING).cpu == 16.0

    def test_devices_that_were_measured_long_ago_are_still_there(self, house):
        house.registry.stored_nodes = [Node(name="n1", info={"devices": [{"device": "gpu0", "name": "A100"}]})]
        house.job("j1", replica(), replica("worker-1", "n2", state=JobState.FAILED))
        for second in (4_000, 1_000):
            house.put("gpu.utilization", (second, 0.5), job="j1", replica="worker-0", node="n1", device="gpu0")
            house.put("gpu.utilization", (second, 0.5), job="j1", replica="worker-1", node="n2", device="gpu0")
        house.put("gpu.utilization", (4_000, 0.5), job="j1", replica="worker-0", node="n1", device="gpu7")
        assert house.requests(JobState.RUNNING).device_types == {"A100": 1}
        house.job("j1", replica(), state=JobState.SUCCEEDED, end=NOW - MINUTE)
        assert house.requests(JobState.SUCCEEDED).devices == 0

    def test_a_rate_follows_from_a_limit_that_was_measured_before_the_range(self, house):
        house.job("j1", replica())
        house.put("cpu.limit", (400, 4.0), job="j1", replica="worker-0")
        house.put("cpu.usage", (10, 1.0), job="j1", replica="worker-0")
        assert house.only().cpu == 0.25
        assert house.capacity().cpu == 4.0

    def test_devices_have_the_types_that_their_nodes_name(self, house):
        listed = [{"device": "gpu0", "name": "A100"}, {"device": "gpu1", "name": "V100"}]
        house.registry.stored_nodes = [
            Node(name="n1", info={"devices": listed}),
            Node(name="n2", info={"devices": [{"name": "T4"}, {"name": "T4"}]}),
            Node(name="n3", info={"devices": "none of your business"}),
        ]
        house.job("j1", replica(), allocations=(had("gpu0"), had("gpu1")))
        assert house.requests(JobState.RUNNING).device_types == {"A100": 1, "V100": 1}
        house.job("j1", replica(), limits={"gpu.limit": 2.0}, allocations=(had("gpu1"),))
        assert house.requests(JobState.RUNNING).device_types == {"V100": 1, "": 1}, "n1 has two types"
        house.job("j1", replica(node="n2"), limits={"gpu.limit": 2.0})
        assert house.requests(JobState.RUNNING).device_types == {"T4": 2}
        house.job("j1", replica(node="n3"), allocations=(had("gpu0", node="n3"),))
        assert house.requests(JobState.RUNNING).device_types == {"": 1}


class TestLoads:
    """What runs on each node, and how the sums agree with those of the group."""

    def loads(self, house: House, scope: Scope = ALL) -> dict[str, NodeLoad]:
        found = house.executor.run(NodeLoadsQuestion(group=RG, range=SPAN), scope)
        assert total(one.capacity for one in found) == house.capacity()
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
        whole, requested = total(one.load.requested for one in loads), house.requests(JobState.RUNNING)
        assert (whole.cpu, whole.memory) == (requested.cpu, requested.memory)
        assert whole.devices == requested.devices


class TestListing:
    """Which groups there are."""

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


def test_too_many_jobs_are_refused(house, monkeypatch):
    monkeypatch.setattr(groups, "MOST_JOBS", 2)
    for number in range(3):
        house.job(f"j{number}", replica())
    with pytest.raises(LimitExceededError):
        house.usage()


_JOBS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "eve"]),
        st.sampled_from([None, 1.0, 4.0]),
        st.lists(st.lists(st.integers(0, 40), max_size=3), min_size=1, max_size=3),
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(_JOBS)
def test_the_rate_of_any_group_is_that_of_a_slow_count(jobs):
    """Each replica's usage is a list of tenths of a core, one every 10 seconds."""
    store, registry = MemoryStore(), Registry()
    house = House(store, registry, Executor(store, registry, SetClock(), Limits()))
    registry.stored_nodes = [Node(name="n", resource_group="rg")]
    used: dict[str, float] = {}
    allowed: dict[str, float] = {}
    requested: dict[str, float] = {}
    for number, (user, limit, replicas) in enumerate(jobs):
        names = [replica(f"worker-{at}") for at in range(len(replicas))]
        house.job(f"j{number}", *names, user=user, limits={} if limit is None else {"cpu.limit": limit})
        requested[user] = requested.get(user, 0.0) + (limit or 0.0) * len(replicas)
        for at, values in enumerate(replicas):
            points = [(10.0 * (1 + place), value / 10) for place, value in enumerate(values)]
            if points:
                house.put("cpu.usage", *points, job=f"j{number}", replica=f"worker-{at}")
            if points and limit:
                used[user] = used.get(user, 0.0) + sum(values) / 10 / len(values)
                allowed[user] = allowed.get(user, 0.0) + limit
    found = house.usage()
    assert {one.user: one.requested.cpu for one in found.users} == pytest.approx(requested)
    for one in found.users:
        expected = used[one.user] / allowed[one.user] if one.user in allowed else None
        assert one.cpu == (None if expected is None else pytest.approx(expected))
    total = sum(allowed.values())
    assert found.summary.cpu == (pytest.approx(sum(used.values()) / total) if total else None)


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
