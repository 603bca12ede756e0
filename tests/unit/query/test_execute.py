"""Tests of the executor: the jobs that queries cover, the series that answer them, and the names of lines."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.support.fakes import NOW, FakeRegistry, SetClock, running_job
from tests.support.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError, QueryTimeoutError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.catalog import Aggregate
from jobmeter.model.event import EventFilter
from jobmeter.model.job import Allocation, Job, JobFilter, JobState, Node, Replica
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, SECOND, TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.latest import LatestQuestion
from jobmeter.query.request import (
    By,
    JobQuestion,
    JobRef,
    JobViewsQuestion,
    Line,
    MetricQuery,
    MetricResult,
    NodeRef,
    Statistic,
)
from jobmeter.query.summary import SummaryQuestion
from jobmeter.settings import Limits

ALL = Scope(None)
START = NOW - HOUR


@dataclass
class House:
    store: MemoryStore
    registry: FakeRegistry
    clock: SetClock
    executor: Executor

    def put(self, series: Series, *points: tuple[int, float]) -> None:
        """Store points given as (seconds after ``START``, value)."""
        self.store.append_all(
            (
                SampleBatch(
                    [series],
                    np.zeros(len(points), np.uint32),
                    np.array([START + 1_000 * second for second, _ in points], np.int64),
                    np.array([value for _, value in points], np.float64),
                ),
            )
        )

    def ask(self, metric: str, scope: Scope = ALL, **changes: Any) -> MetricResult:
        fields: dict[str, Any] = {
            "subject": JobRef("j1"),
            "metrics": (metric,),
            "range": TimeRange(START, NOW),
            "step_ms": HOUR,
            "by": By.JOB,
            **changes,
        }
        return self.executor.run(MetricQuery(**fields), scope)

    def value(self, metric: str, **changes: Any) -> list[float]:
        (line,) = self.ask(metric, **changes).lines
        found: list[float] = line.value.tolist()
        return found


@pytest.fixture
def house() -> House:
    store, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    registry.add_job(running_job())
    return House(store, registry, clock, Executor(store, registry, clock, Limits()))


def replica(metric: str, name: str = "worker-0", **names: Any) -> Series:
    return Series(metric, job="j1", replica=name, **names)


def names(lines: "list[Line] | tuple[Line, ...] | Any") -> list[tuple[str, str, str]]:
    return [(line.replica, line.node, line.device) for line in lines]


class TestScope:
    @pytest.mark.parametrize(
        ("ref", "scope"),
        [
            pytest.param(JobRef("none"), ALL, id="unknown"),
            pytest.param(JobRef("j1"), Scope(frozenset({"other"})), id="another project"),
            pytest.param(JobRef("j1", "other"), ALL, id="named project"),
            pytest.param(JobRef("j1", "default"), Scope(frozenset({"other"})), id="named project outside"),
            pytest.param(JobRef("j1"), Scope(frozenset({"default"}), "j2"), id="share token of another job"),
            pytest.param(JobRef("j1"), Scope(frozenset()), id="no project"),
        ],
    )
    def test_what_is_outside_does_not_exist(self, house, ref, scope):
        house.put(replica("cpu.usage"), (0, 1.0))
        for visible_series in (
            lambda: house.ask("cpu.usage", scope, subject=ref),
            lambda: house.executor.run(JobQuestion(ref), scope),
            lambda: house.executor.run(LatestQuestion(ref, (), By.JOB), scope),
            lambda: house.executor.run(SummaryQuestion(ref), scope),
        ):
            with pytest.raises(NotFoundError) as caught:
                visible_series()
            assert caught.value.kind == "job"

    def test_an_id_of_several_projects_must_name_one(self, house):
        house.registry.add_job(running_job(project="other"))
        with pytest.raises(InvalidRequestError) as caught:
            house.ask("cpu.usage")
        assert caught.value.field == "project"
        assert house.ask("cpu.usage", subject=JobRef("j1", "other")).project == "other"
        assert house.ask("cpu.usage", Scope(frozenset({"default"}))).project == "default"

    def test_projects_with_the_same_job_id_stay_apart(self, house):
        house.registry.add_job(running_job(project="other"))
        house.put(replica("cpu.usage"), (0, 1.0))
        house.put(replica("cpu.usage", project="other"), (0, 5.0))
        assert house.value("cpu.usage", subject=JobRef("j1", "default")) == [1.0]
        assert house.value("cpu.usage", subject=JobRef("j1", "other")) == [5.0]

    def test_events_are_cut_to_the_scope(self, house):
        def visible_series(scope: Scope, **parts: Any) -> list[tuple[Any, Any]]:
            house.registry.event_questions.clear()
            house.executor.run(EventFilter(**parts), scope)
            return [(one.projects, one.jobs) for one in house.registry.event_questions]

        own, both = frozenset({"default"}), frozenset({"default", "other"})
        assert visible_series(ALL) == [(None, ())]
        assert visible_series(ALL, projects=both, jobs=("j1",)) == [(both, ("j1",))]
        assert visible_series(Scope(own), projects=both) == [(own, ())]
        assert visible_series(Scope(own), nodes=frozenset({"n"})) == [(own, ())]
        assert visible_series(Scope(own), projects=frozenset({"other"})) == []
        assert visible_series(Scope(own, "j1")) == [(own, ("j1",))]
        assert visible_series(Scope(own, "j1"), jobs=("j1", "j2")) == [(own, ("j1",))]
        assert visible_series(Scope(own, "j1"), jobs=("j2",)) == []

    def test_listings_are_cut_to_the_scope(self, house):
        house.registry.add_job(running_job("j2", "other"))
        list_ids = lambda scope, **visible_series: [  # noqa: E731
            job.id for job in house.executor.run(JobFilter(**visible_series), scope).jobs
        ]
        assert list_ids(ALL) == ["j1", "j2"]
        assert list_ids(Scope(frozenset({"other"}))) == ["j2"]
        assert list_ids(Scope(frozenset({"other"})), projects=frozenset({"default"})) == []
        assert list_ids(Scope(frozenset({"default", "other"}), "j1")) == [], "a share token lists nothing"

    def test_a_share_token_shows_no_node(self, house):
        house.registry.stored_nodes.append(Node(name="n1"))
        with pytest.raises(NotFoundError) as caught:
            house.ask("gpu.utilization", Scope(None, "j1"), subject=NodeRef("n1"), by=By.NODE)
        assert caught.value.kind == "node"


class TestViews:
    """Tests of several jobs at once, within the caller's scope."""

    def test_those_that_the_caller_sees(self, house):
        house.registry.add_job(Job(id="j1", user="ann", recorded=True), [Replica(name="w", reason="secret")])
        house.registry.add_job(Job(id="j1", project="lab", recorded=True))
        house.registry.add_job(Job(id="j2", recorded=True))
        question = JobViewsQuestion((("default", "j1"), ("lab", "j1"), ("default", "nobody")))

        def found(scope: Scope) -> set[tuple[str, str]]:
            return {(view.job.project, view.job.id) for view in house.executor.run(question, scope)}

        assert found(ALL) == {("default", "j1"), ("lab", "j1")}
        assert found(Scope(frozenset({"lab"}))) == {("lab", "j1")}
        assert found(Scope(None, job="j2")) == set()
        [shared] = house.executor.run(question, Scope(frozenset({"default"}), job="j1"))
        assert (shared.job.user, shared.replicas[0].reason) == ("", ""), "a share token opens no record"
        [linked] = house.executor.run(question, Scope(frozenset({"default"}), job="j1", record=True))
        assert (linked.job.user, linked.replicas[0].reason) == ("ann", "secret")


class TestLines:
    def test_names_sort_as_people_count(self, house):
        for name in ("worker-10", "worker-2"):
            for device in ("gpu10", "gpu2"):
                house.put(replica("gpu.utilization", name, node="n1", device=device), (0, 0.5))
        found = house.ask("gpu.utilization", by=By.DEVICE).lines
        assert [(line.replica, line.device) for line in found] == [
            ("worker-2", "gpu2"),
            ("worker-2", "gpu10"),
            ("worker-10", "gpu2"),
            ("worker-10", "gpu10"),
        ]

    def test_metrics_come_in_order_each_once(self, house):
        house.put(replica("memory.usage"), (0, 1.0))
        house.put(replica("cpu.usage"), (0, 1.0))
        found = house.ask("", metrics=("memory.usage", "cpu.usage", "memory.usage")).lines
        assert [line.metric for line in found] == ["cpu.usage", "memory.usage"]

    def test_ranks_come_from_allocations_then_replicas(self, house):
        house.registry.add_job(
            running_job(),
            [Replica(name="worker-0", rank=7)],
            [Allocation(replica="worker-0", node="n1", device="gpu1", start=START, rank=9)],
        )
        for device in ("gpu0", "gpu1"):
            house.put(replica("gpu.utilization", node="n1", device=device), (0, 0.5))
        assert [line.rank for line in house.ask("gpu.utilization", by=By.DEVICE).lines] == [7, 9]
        assert [line.rank for line in house.ask("gpu.utilization", by=By.REPLICA).lines] == [7]
        assert [line.rank for line in house.ask("gpu.utilization", by=By.JOB).lines] == [None]

    def test_replicas_devices_and_labels_narrow(self, house):
        for name in ("worker-0", "worker-1"):
            for device in ("gpu0", "gpu1"):
                house.put(replica("gpu.utilization", name, node="n1", device=device), (0, 0.5))
        house.put(replica("network.receive", labels=(("interface", "eth0"),)), (0, 0.0), (10, 10.0))
        house.put(replica("network.receive", labels=(("interface", "ib0"),)), (0, 0.0), (10, 70.0))
        found = house.ask(
            "gpu.utilization", by=By.DEVICE, replicas=frozenset({"worker-1"}), devices=frozenset({"gpu0"})
        )
        assert names(found.lines) == [("worker-1", "n1", "gpu0")]
        assert house.value("network.receive") == [8.0]
        assert house.value("network.receive", labels=(("interface", "ib0"),)) == [7.0]

    def test_a_replica_that_moved_is_one_line(self, house):
        house.put(replica("memory.usage", node="n1"), (0, 1.0), (10, 3.0))
        house.put(replica("memory.usage", node="n2", attempt=1), (20, 8.0))
        (line,) = house.ask("memory.usage", by=By.REPLICA).lines
        assert (line.replica, line.node, line.value.tolist()) == ("worker-0", "n2", [4.0])

    def test_units_follow_the_statistic(self, house):
        house.put(replica("network.receive"), (0, 0.0), (10, 50.0))
        for statistic, unit, value in (
            (Statistic.MEAN, "By/s", 5.0),
            (Statistic.INCREASE, "By", 50.0),
            (Statistic.LAST, "By", 50.0),
            (Statistic.COUNT, "{sample}", 2.0),
        ):
            (line,) = house.ask("network.receive", statistic=statistic).lines
            assert (line.unit, line.value.tolist()) == (unit, [value])

    def test_an_aggregate_that_is_requested_is_taken(self, house):
        house.put(replica("memory.usage", "worker-0"), (0, 1.0))
        house.put(replica("memory.usage", "worker-1"), (0, 4.0))
        for how, value in ((None, 2.5), (Aggregate.SUM, 5.0), (Aggregate.MIN, 1.0), (Aggregate.MAX, 4.0)):
            assert house.value("memory.usage", aggregate=how) == [value]

    def test_nothing_measured_is_an_empty_answer(self, house):
        result = house.ask("cpu.usage")
        assert (list(result.lines), result.samples, result.tiers) == ([], 0, ())
        assert list(house.ask("cpu.usage", range=TimeRange(NOW, NOW)).lines) == []


class TestDerivations:
    def test_cpu_usage_is_the_rate_of_cpu_time_unless_measured(self, house):
        house.put(replica("cpu.time", "worker-0"), (0, 0.0), (10, 5.0))
        house.put(replica("cpu.time", "worker-1"), (0, 0.0), (10, 20.0))
        house.put(replica("cpu.usage", "worker-1"), (0, 3.0))
        found = house.ask("cpu.usage", by=By.REPLICA).lines
        assert [(line.replica, line.value.tolist(), line.unit) for line in found] == [
            ("worker-0", [0.5], "{core}"),
            ("worker-1", [3.0], "{core}"),
        ]

    def test_a_job_s_ratio_is_one_of_sums(self, house):
        for name, usage, limit in (("worker-0", 1.0, 2.0), ("worker-1", 9.0, 10.0)):
            house.put(replica("memory.usage", name), (0, usage))
            house.put(replica("memory.limit", name), (0, limit))
        house.put(replica("memory.usage", "worker-2"), (0, 99.0))
        assert house.value("memory.utilization") == [10.0 / 12.0]
        found = house.ask("memory.utilization", by=By.REPLICA).lines
        assert [(line.replica, line.value.tolist()) for line in found] == [("worker-0", [0.5]), ("worker-1", [0.9])]

    def test_a_measured_ratio_is_used_as_it_is(self, house):
        house.put(replica("memory.usage", "worker-0"), (0, 1.0))
        house.put(replica("memory.limit", "worker-0"), (0, 2.0))
        house.put(replica("memory.utilization", "worker-1"), (0, 0.1))
        house.put(replica("memory.usage", "worker-1"), (0, 2.0))
        house.put(replica("memory.limit", "worker-1"), (0, 2.0))
        assert house.value("memory.utilization") == [pytest.approx(0.3)]

    def test_a_missing_limit_comes_from_the_job_s_record(self, house):
        house.registry.add_job(running_job(limits={"memory.limit": 4.0, "cpu.limit": 2.0}))
        house.put(replica("memory.usage", "worker-0"), (0, 1.0))
        house.put(replica("memory.usage", "worker-1"), (0, 1.0))
        house.put(replica("memory.limit", "worker-1"), (0, 2.0))
        house.put(replica("cpu.time", "worker-0"), (0, 0.0), (10, 10.0))
        found = house.ask("memory.utilization", by=By.REPLICA).lines
        assert [line.value.tolist() for line in found] == [[0.25], [0.5]]
        assert house.value("cpu.utilization") == [0.5]

    def test_a_limit_of_zero_divides_nothing(self, house):
        house.put(replica("memory.usage"), (0, 1.0))
        house.put(replica("memory.limit"), (0, 0.0))
        assert list(house.ask("memory.utilization").lines) == []

    def test_a_counter_s_reference_lies_before_the_range_and_its_first_sample_has_no_rate(self, house):
        house.put(replica("network.receive"), (0, 100.0), (1800, 1900.0), (1860, 1960.0))
        assert house.value("network.receive", range=TimeRange(START + 1000 * SECOND, START + 1801 * SECOND)) == [1.0]
        assert list(house.ask("network.receive", range=TimeRange(START, START + SECOND)).lines) == []


class TestDevices:
    @pytest.fixture
    def lent(self, house: House) -> House:
        """Store samples of gpu0 of n1 for each minute of the hour, allocated to a job from minute 20 to 40."""
        end = START + 40 * MINUTE
        house.registry.add_job(
            running_job(),
            [Replica(name="worker-0", node="n1")],
            [Allocation(replica="worker-0", node="n1", device="gpu0", start=START + 20 * MINUTE, end=end)],
        )
        minutes = range(60)
        house.put(Series("gpu.utilization", node="n1", device="gpu0"), *((60 * m, m / 100) for m in minutes))
        house.put(Series("gpu.energy", node="n1", device="gpu0"), *((60 * m, 60.0 * m * m) for m in minutes))
        return house

    @pytest.mark.parametrize("rolled", [False, True])
    def test_a_device_s_own_samples_count_while_the_job_had_it(self, lent, rolled):
        if rolled:
            lent.store.roll_up(NOW)
        found = lent.ask("gpu.utilization", by=By.DEVICE, step_ms=10 * MINUTE).lines
        assert names(found) == [("worker-0", "n1", "gpu0")]
        assert found[0].time.tolist() == [START + 20 * MINUTE, START + 30 * MINUTE]
        assert found[0].value.tolist() == [pytest.approx(0.245), pytest.approx(0.345)]

    @pytest.mark.parametrize("rolled", [False, True])
    @pytest.mark.parametrize("start", [0, 20, 25])
    def test_a_counter_counts_from_the_first_sample_that_was_the_job_s(self, lent, rolled, start):
        if rolled:
            lent.store.roll_up(NOW)
        span = TimeRange(START + start * MINUTE, NOW)
        total = lent.value("gpu.energy", range=span, statistic=Statistic.INCREASE)
        first = max(start - 1, 20)
        assert total == [60.0 * (39 * 39 - first * first)]

    def test_the_job_s_own_series_goes_before_nobody_s(self, lent):
        lent.put(replica("gpu.utilization", node="n1", device="gpu0"), (1500, 1.0))
        assert lent.value("gpu.utilization") == [1.0]
        assert lent.value("gpu.energy")

    def test_overlapping_allocations_count_once(self, lent):
        view = lent.registry.views["default", "j1"]
        again = Allocation(
            replica="worker-0", node="n1", device="gpu0", start=START + 25 * MINUTE, end=NOW - 15 * MINUTE
        )
        lent.registry.add_job(view.job, view.replicas, [*view.allocations, again])
        assert lent.value("gpu.utilization", statistic=Statistic.COUNT) == [25.0]

    def test_another_project_s_device_is_not_lent(self, lent):
        lent.put(Series("gpu.temperature", project="other", node="n1", device="gpu0"), (1500, 60.0))
        assert list(lent.ask("gpu.temperature").lines) == []

    def test_a_device_of_a_named_cluster_is_found(self, lent):
        lent.registry.stored_nodes.append(Node(name="n1", cluster="c1"))
        lent.put(Series("gpu.power", cluster="c1", node="n1", device="gpu0"), (1500, 300.0))
        assert lent.value("gpu.power") == [300.0]

    def test_two_jobs_that_share_a_device_have_their_own(self, house):
        house.registry.add_job(running_job("j2"))
        house.put(replica("gpu.utilization", node="n1", device="gpu0"), (0, 0.25))
        house.put(Series("gpu.utilization", job="j2", replica="worker-0", node="n1", device="gpu0"), (0, 0.75))
        assert house.value("gpu.utilization") == [0.25]
        assert house.value("gpu.utilization", subject=JobRef("j2")) == [0.75]


class TestNodes:
    @pytest.fixture
    def node(self, house: House) -> House:
        house.registry.stored_nodes.append(Node(name="n1", last_seen=NOW))
        house.put(Series("node.memory.available", node="n1"), (3590, 5.0))
        house.put(Series("gpu.utilization", node="n1", device="gpu0"), (3590, 0.5))
        house.put(replica("gpu.utilization", node="n1", device="gpu1"), (3590, 0.7))
        house.put(replica("gpu.utilization", node="n2", device="gpu1"), (3590, 0.9))
        return house

    def test_a_node_is_reported_whatever_was_measured_there(self, node):
        found = node.ask("gpu.utilization", subject=NodeRef("n1"), by=By.DEVICE).lines
        assert [(line.node, line.device, line.value.tolist()) for line in found] == [
            ("n1", "gpu0", [0.5]),
            ("n1", "gpu1", [0.7]),
        ]
        (line,) = node.ask("gpu.utilization", subject=NodeRef("n1"), by=By.NODE).lines
        assert line.value.tolist() == [pytest.approx(0.6)]
        (line,) = node.ask("node.memory.available", subject=NodeRef("n1"), by=By.NODE).lines
        assert (line.node, line.value.tolist()) == ("n1", [5.0])

    def test_a_device_measured_as_a_whole_is_not_mixed_with_a_job_s_part(self, node):
        node.put(replica("gpu.utilization", node="n1", device="gpu0"), (3590, 0.1))
        found = node.ask("gpu.utilization", subject=NodeRef("n1"), by=By.DEVICE).lines
        assert found[0].value.tolist() == [0.5]

    def test_jobs_with_equal_replica_names_stay_apart(self, node):
        for job in ("j1", "j2"):
            node.put(Series("memory.usage", job=job, replica="worker-0", node="n1"), (0, 1.0))
        found = node.ask("memory.usage", subject=NodeRef("n1"), by=By.DEVICE).lines
        assert len(found) == 2

    def test_an_unknown_node_is_not_found(self, node):
        for ref in (NodeRef("n9"), NodeRef("n1", cluster="c9"), NodeRef("n1", project="other")):
            with pytest.raises(NotFoundError) as caught:
                node.ask("gpu.utilization", subject=ref, by=By.NODE)
            assert caught.value.kind == "node"

    def test_latest_of_a_node(self, node):
        found = node.executor.run(LatestQuestion(NodeRef("n1"), ("gpu.utilization",), By.DEVICE), ALL)
        assert [(one.device, one.value) for one in found] == [("gpu0", 0.5), ("gpu1", 0.7)]


class TestLimits:
    def test_points_series_rows_and_time_are_limited(self, house):
        for name in ("worker-0", "worker-1"):
            house.put(replica("memory.usage", name), *((10 * at, 1.0) for at in range(60)))
        for limits, field in (
            (Limits(query_points=119), "step"),
            (Limits(query_series=1), "series"),
            (Limits(query_rows=119), "range"),
        ):
            visible_series = House(
                house.store, house.registry, house.clock, Executor(house.store, house.registry, house.clock, limits)
            )
            with pytest.raises(LimitExceededError) as caught:
                visible_series.ask("memory.usage", by=By.REPLICA, step_ms=10 * SECOND)
            assert caught.value.field == field

    def test_a_question_has_its_time(self, house):
        house.put(replica("memory.usage"), (0, 1.0))

        class Slow(MemoryStore):
            def find(self, selector):
                house.clock.time_ms += 31 * SECOND
                return house.store.find(selector)

        with pytest.raises(QueryTimeoutError):
            House(
                house.store, house.registry, house.clock, Executor(Slow(), house.registry, house.clock, Limits())
            ).ask("memory.usage")


class TestLatest:
    def test_the_newest_sample_of_each_line_with_its_time(self, house):
        house.put(replica("memory.usage", "worker-0"), (3580, 1.0), (3590, 2.0))
        house.put(replica("memory.usage", "worker-1"), (3585, 6.0))
        house.put(replica("cpu.time", "worker-0"), (3580, 10.0), (3590, 25.0))
        found = house.executor.run(LatestQuestion(JobRef("j1"), ("memory.usage", "cpu.usage"), By.REPLICA), ALL)
        assert [(one.metric, one.replica, one.value, one.time - START) for one in found] == [
            ("cpu.usage", "worker-0", 1.5, 3_590_000),
            ("memory.usage", "worker-0", 2.0, 3_590_000),
            ("memory.usage", "worker-1", 6.0, 3_585_000),
        ]
        (joined,) = house.executor.run(LatestQuestion(JobRef("j1"), ("memory.usage",), By.JOB), ALL)
        assert (joined.value, joined.time - START, joined.unit) == (4.0, 3_590_000, "By")

    def test_what_ended_long_before_the_newest_sample_is_left_out(self, house):
        house.put(replica("memory.usage", "worker-0"), (3000, 1.0))
        house.put(replica("memory.usage", "worker-1"), (3590, 6.0))
        found = house.executor.run(LatestQuestion(JobRef("j1"), (), By.REPLICA), ALL)
        assert [one.replica for one in found] == ["worker-1"]

    def test_a_finished_job_reports_its_last(self, house):
        house.registry.add_job(Job(id="j1", state=JobState.SUCCEEDED, end=START + 10 * SECOND))
        house.put(replica("memory.usage"), (0, 1.0), (10, 2.0))
        assert [one.value for one in house.executor.run(LatestQuestion(JobRef("j1"), (), By.JOB), ALL)] == [2.0]

    def test_nothing_measured_is_nothing(self, house):
        assert house.executor.run(LatestQuestion(JobRef("j1"), (), By.JOB), ALL) == []


class TestSummary:
    def test_a_job_in_one_object(self, house):
        end = START + 30 * MINUTE
        house.registry.add_job(
            Job(id="j1", state=JobState.FAILED, start=START, end=end), [Replica(name="worker-0", node="n1")]
        )
        for at, name in enumerate(("worker-0", "worker-1")):
            house.put(replica("memory.usage", name), *((60 * m, float(m + 100 * at)) for m in range(30) if m != 10))
            house.put(replica("network.receive", name), *((60 * m, 600.0 * m) for m in range(30)))
        house.put(replica("gpu.energy", node="n1", device="gpu0"), (0, 1000.0), (600, 4000.0))
        found = house.executor.run(SummaryQuestion(JobRef("j1")), ALL)
        assert (found.state, found.duration_ms, found.replicas, found.nodes, found.devices) == (
            JobState.FAILED,
            30 * MINUTE,
            2,
            1,
            1,
        )
        assert found.gpu_energy_joules == 3000.0
        by_name = {one.metric: one for one in found.metrics}
        assert set(by_name) == {"memory.usage", "network.receive", "gpu.energy"}
        memory, network = by_name["memory.usage"], by_name["network.receive"]
        assert memory.max == 129.0
        assert memory.mean == pytest.approx(50 + sum(m for m in range(30) if m != 10) / 29)
        assert memory.total is None
        assert (network.mean, network.max, network.last, network.total) == (10.0, 10.0, 20.0, 2 * 600.0 * 29)
        assert (network.job_mean, network.job_max) == (20.0, 20.0), "of both replicas together"
        assert (memory.job_max, memory.job_mean) == (29.0 + 129.0, pytest.approx(2 * memory.mean))
        assert len(memory.points) <= 60
        place = (START + 10 * MINUTE - found.start_ms) // found.step_ms
        assert memory.points[place] is None
        assert memory.last == 2 * 79.0

    def test_the_total_of_a_rate_is_the_increase_of_its_counter(self, house):
        house.registry.add_job(Job(id="j1", start=START, end=START + 30 * MINUTE))
        house.put(replica("cpu.time", "worker-0"), *((60 * m, 90.0 * m) for m in range(30)))
        house.put(replica("cpu.time", "worker-1"), *((60 * m, 30.0 * m) for m in range(30)))
        (cpu,) = house.executor.run(SummaryQuestion(JobRef("j1")), ALL).metrics
        assert (cpu.metric, cpu.job_mean) == ("cpu.usage", pytest.approx(2.0))
        assert (cpu.total, cpu.total_unit) == (pytest.approx(120.0 * 29), "s")

    def test_a_measured_gauge_has_no_total(self, house):
        house.registry.add_job(Job(id="j1", start=START, end=START + 30 * MINUTE))
        house.put(replica("cpu.usage", "worker-0"), *((60 * m, 1.5) for m in range(30)))
        (cpu,) = house.executor.run(SummaryQuestion(JobRef("j1")), ALL).metrics
        assert (cpu.total, cpu.total_unit) == (None, "")

    def test_the_highest_rate_is_that_of_a_moment_not_of_the_whole_life(self, house):
        series = Series("cpu.time", job="j1", replica="worker-0")
        busy = [(at, at / 10) for at in range(0, 1800, 10)]
        house.put(series, *busy, *[(at, 180 + (at - 1800) * 4.0) for at in range(1800, 1860, 10)])
        metrics = house.executor.run(SummaryQuestion(JobRef("j1")), ALL).metrics
        (cpu,) = [one for one in metrics if one.metric == "cpu.usage"]
        assert cpu.mean == pytest.approx(0.2, abs=0.05)
        assert cpu.max == max(point for point in cpu.points if point is not None)
        assert cpu.max > 3

    def test_a_job_without_samples_has_a_summary(self, house):
        found = house.executor.run(SummaryQuestion(JobRef("j1")), ALL)
        assert (found.metrics, found.duration_ms, found.gpu_energy_joules) == ([], HOUR, None)
