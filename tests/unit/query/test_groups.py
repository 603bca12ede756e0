"""Tests of usage of a resource group by user: compared with a second computation, without data of other owners."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fakes import NOW, SetClock
from tests.support.groups import GIB, House, Registry, had, new_house, replica
from tests.support.memory_store import MemoryStore

from jobmeter.errors import LimitExceededError
from jobmeter.model.job import InstanceType, JobState, Node
from jobmeter.model.time import DAY, HOUR, MINUTE
from jobmeter.query import groups
from jobmeter.query.execute import Executor
from jobmeter.query.group import (
    Amounts,
    ResourceUsage,
)
from jobmeter.settings import Limits


@pytest.fixture
def house() -> House:
    return new_house()


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
    """Each replica's usage is a list of tenths of a core, one value every 10 seconds."""
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
