"""Tests of replicas that restarted elsewhere: every answer about the job counts their devices once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fakes import NOW, FakeRegistry, SetClock, running_job
from tests.support.frames import samples
from tests.support.memory_store import MemoryStore
from tests.support.serving import serving

from jobmeter.access.principal import Scope
from jobmeter.model.batch import SampleBatch
from jobmeter.model.catalog import Aggregate
from jobmeter.model.job import Allocation, AllocationSource, Replica
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, SECOND, TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.latest import LatestQuestion
from jobmeter.query.request import By, JobRef, MetricQuery
from jobmeter.query.summary import SummaryQuestion
from jobmeter.settings import Limits

ALL = Scope(None)
START = NOW - HOUR
WATTS = 300.0


class House:
    """Job whose replicas have devices, on a store and a registry in memory."""

    def __init__(self) -> None:
        self.store, self.registry, self.clock = MemoryStore(), FakeRegistry(), SetClock()
        self.executor = Executor(self.store, self.registry, self.clock, Limits())
        self.registry.add_job(running_job())

    def put(self, series: Series, first: int, last: int, value: float = WATTS, every: int = 10 * SECOND) -> None:
        """Store samples of ``value`` from ``first`` until before ``last``, in ms since ``START``."""
        time = np.arange(START + first, START + last, every)
        columns = np.zeros(len(time), np.uint32), time, np.full(len(time), value)
        self.store.append_all((SampleBatch([series], *columns),))

    def job(self, *replicas: Replica, allocations: tuple[Allocation, ...] = ()) -> None:
        self.registry.add_job(running_job(), replicas=list(replicas), allocations=list(allocations))

    def points(self, metric: str, by: By = By.JOB, step: int = HOUR, **changes: Any) -> dict[Any, list[float]]:
        fields = {"aggregate": Aggregate.WHOLE, "range": TimeRange(START, NOW), **changes}
        query = MetricQuery(subject=JobRef("j1"), metrics=(metric,), step_ms=step, by=by, **fields)
        lines = self.executor.run(query, ALL).lines
        return {(line.replica, line.node, line.device): line.value.tolist() for line in lines}

    def value(self, metric: str, **changes: Any) -> float:
        ((value,),) = self.points(metric, **changes).values()
        return float(value)


def of(device: str, node: str, attempt: int = 0, metric: str = "gpu.power", replica: str = "worker-0") -> Series:
    return Series(metric, node=node, device=device, job="j1", replica=replica, attempt=attempt)


HALF = 30 * MINUTE


@pytest.mark.parametrize("how", [Aggregate.WHOLE, Aggregate.SUM, Aggregate.MEAN, Aggregate.MAX, None])
@pytest.mark.parametrize(
    ("first", "second"),
    [(("n1", "gpu0"), ("n2", "gpu0")), (("n1", "gpu0"), ("n1", "gpu1")), (("n1", "gpu3"), ("n2", "gpu7"))],
    ids=["node", "device", "both"],
)
def test_a_job_that_restarted_has_the_power_of_its_device_once(how, first, second):
    house = House()
    for attempt, (node, device) in enumerate((first, second)):
        house.put(of(device, node, attempt), attempt * HALF, (attempt + 1) * HALF)
    assert house.value("gpu.power", aggregate=how) == WATTS
    assert house.points("gpu.power", By.REPLICA, aggregate=how) == {("worker-0", second[0], ""): [WATTS]}


def test_every_sample_of_a_member_weighs_alike():
    house = House()
    house.put(of("gpu0", "n1"), 0, 45 * MINUTE, 100.0)
    house.put(of("gpu0", "n2", 1), 45 * MINUTE, HOUR, 500.0)
    assert house.value("gpu.power") == 200.0
    # Next to a replica that stays where it is, the moved one counts once.
    house.put(of("gpu0", "n3", replica="worker-1"), 0, HOUR, 400.0)
    assert house.value("gpu.power", aggregate=None) == 300.0
    assert house.value("gpu.power") == 600.0


def test_each_device_has_a_line_of_its_own():
    house = House()
    house.put(of("gpu0", "n1"), 0, HALF, 100.0)
    house.put(of("gpu0", "n2", 1), HALF, HOUR, 500.0)
    found = house.points("gpu.power", By.DEVICE)
    assert found == {("worker-0", "n1", "gpu0"): [100.0], ("worker-0", "n2", "gpu0"): [500.0]}
    assert house.points("gpu.power", By.NODE) == {("", "n1", ""): [100.0], ("", "n2", ""): [500.0]}


def test_a_restart_on_other_devices_of_its_node_counts_once_there():
    house = House()
    house.put(of("gpu0", "n1"), 0, HALF)
    house.put(of("gpu1", "n1", 1), HALF, HOUR)
    assert house.points("gpu.power", By.NODE) == {("", "n1", ""): [WATTS]}


def test_energy_and_memory_of_a_job_that_restarted():
    house = House()
    for attempt, node in enumerate(("n1", "n2")):
        first, last = attempt * HALF, (attempt + 1) * HALF
        house.put(of("gpu0", node, attempt, "gpu.memory.usage"), first, last, 40.0)
        house.put(of("gpu0", node, attempt, "gpu.memory.limit"), first, last, 80.0)
        time = np.arange(START + first, START + last, 10_000)
        columns = np.zeros(len(time), np.uint32), time, (time - time[0]) / 1000 * WATTS
        house.store.append_all((SampleBatch([of("gpu0", node, attempt, "gpu.energy")], *columns),))
    assert house.value("gpu.memory.usage") == 40.0
    assert house.value("gpu.memory.utilization", aggregate=None) == 0.5
    assert house.value("gpu.energy") == pytest.approx(WATTS)
    summary = house.executor.run(SummaryQuestion(JobRef("j1")), ALL)
    found = {one.metric: one for one in summary.metrics}
    assert (found["gpu.memory.usage"].job_max, found["gpu.memory.usage"].job_mean) == (40.0, 40.0)
    assert summary.gpu_energy_joules == pytest.approx(2 * (HALF - 10_000) / 1000 * WATTS)


@st.composite
def lives(draw: st.DrawFn) -> list[list[tuple[str, list[str]]]]:
    """Draw the stays of each replica: a node, and an unchanging number of devices of it."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))
        devices = st.lists(st.integers(0, 5), min_size=count, max_size=count, unique=True)
        stay = st.tuples(st.sampled_from(["n1", "n2", "n3"]), devices.map(lambda own: [f"gpu{one}" for one in own]))
        found.append(draw(st.lists(stay, min_size=1, max_size=4)))
    return found


@settings(deadline=None, max_examples=60)
@given(lives(), st.sampled_from([MINUTE, 7 * MINUTE, 20 * MINUTE, HOUR]), st.data())
def test_power_is_constant_however_often_replicas_restart(stays, step, data):
    """Each device draws constant power, so a job does too, from its first bucket to its last."""
    house = House()
    for number, own in enumerate(stays):
        cuts = sorted(
            data.draw(st.lists(st.integers(1, 59), min_size=len(own) - 1, max_size=len(own) - 1, unique=True))
        )
        bounds = [0, *(cut * MINUTE for cut in cuts), HOUR]
        for attempt, (node, devices) in enumerate(own):
            for device in devices:
                house.put(of(device, node, attempt, replica=f"worker-{number}"), bounds[attempt], bounds[attempt + 1])
    devices_at_once = sum(len(own[0][1]) for own in stays)
    (values,) = house.points("gpu.power", step=step).values()
    assert values == pytest.approx([devices_at_once * WATTS] * len(values))
    (values,) = house.points("gpu.power", step=step, aggregate=None).values()
    assert values == pytest.approx([WATTS] * len(values))
    for (replica, _, _), values in house.points("gpu.power", By.REPLICA, step).items():
        mine = len(stays[int(replica.removeprefix("worker-"))][0][1])
        assert values == pytest.approx([mine * WATTS] * len(values))


def allocation(node: str, device: str, first: int, last: int | None, **more: Any) -> Allocation:
    end = None if last is None else START + last
    return Allocation(replica="worker-0", node=node, device=device, start=START + first, end=end, **more)


def seen(node: str, device: str, first: int, last: int) -> Allocation:
    return allocation(node, device, first, last, source=AllocationSource.IMPORT)


class TestWithoutAttempts:
    """Tests of samples whose sender does not send attempts."""

    @pytest.mark.parametrize(("node", "device"), [("n2", "gpu0"), ("n1", "gpu1"), ("n2", "gpu5")])
    @pytest.mark.parametrize(("begin", "factor"), [(HALF, 1), (HALF - 10 * SECOND, 1), (10 * MINUTE, 2)])
    def test_devices_that_were_had_one_after_another_count_once(self, node, device, begin, factor):
        house = House()
        house.put(of("gpu0", "n1"), 0, HALF)
        house.put(of(device, node), begin, HOUR)
        last = HALF - 10 * SECOND
        factor = 2 if begin <= last else factor
        house.job(allocations=(seen("n1", "gpu0", 0, last), seen(node, device, begin, HOUR)))
        assert house.value("gpu.power") == factor * WATTS

    def test_a_replica_is_in_one_place_where_nobody_says_otherwise(self):
        house = House()
        house.put(of("gpu0", "n1"), 0, HALF)
        house.put(of("gpu0", "n2"), HALF, HOUR)
        assert house.value("gpu.power") == WATTS

    def test_devices_of_one_node_are_had_together_where_nobody_says_otherwise(self):
        house = House()
        house.put(of("gpu0", "n1"), 0, HALF)
        house.put(of("gpu1", "n1"), HALF, HOUR)
        assert house.value("gpu.power") == 2 * WATTS

    def test_first_samples_do_not_follow_each_other(self):
        """Each device has a single sample, each at another moment."""
        house = House()
        for number in range(4):
            house.put(of(f"gpu{number}", "n1"), number, number + 1)
        house.job(allocations=tuple(seen("n1", f"gpu{number}", number, number) for number in range(4)))
        assert house.value("gpu.power") == 4 * WATTS

    def test_later_allocations_change_the_answer(self):
        house = House()
        house.put(of("gpu0", "n1"), 0, HOUR)
        house.put(of("gpu0", "n2"), HALF, HOUR)
        house.job(allocations=(seen("n1", "gpu0", 0, HALF - MINUTE), seen("n2", "gpu0", HALF, HALF)))
        assert house.value("gpu.power") == WATTS
        house.job(allocations=(seen("n1", "gpu0", 0, HOUR), seen("n2", "gpu0", HALF, HOUR)))
        assert house.value("gpu.power") == 2 * WATTS

    def test_devices_without_a_replica_are_had_together(self):
        house = House()
        for node in ("n1", "n2"):
            house.put(of("gpu0", node, replica=""), 0, HOUR)
        assert house.value("gpu.power") == 2 * WATTS


def test_devices_that_were_measured_for_nobody_follow_each_other_too():
    """The attempts of the replica determine the times of its devices."""
    house = House()
    for node in ("n1", "n2"):
        house.put(Series("gpu.power", node=node, device="gpu0"), 0, HOUR)
    house.job(
        Replica(name="worker-0", attempt=0, node="n1"),
        Replica(name="worker-0", attempt=1, node="n2"),
        allocations=(allocation("n1", "gpu0", 0, HALF), allocation("n2", "gpu0", HALF, None)),
    )
    assert house.value("gpu.power") == WATTS


class TestLatest:
    """Tests of the newest values, five minutes after the restart at most."""

    def house(self) -> House:
        house = House()
        for attempt, node in enumerate(("n1", "n2")):
            first, last = (0, 58 * MINUTE) if attempt == 0 else (58 * MINUTE, HOUR)
            house.put(of("gpu0", node, attempt), first, last, 100.0 + 200 * attempt)
            series = Series("memory.usage", node=node, job="j1", replica="worker-0", attempt=attempt)
            house.put(series, first, last, 10.0 + 20 * attempt)
        return house

    @pytest.mark.parametrize("by", [By.JOB, By.REPLICA, By.DEVICE])
    def test_they_are_of_the_last_attempt_alone(self, by):
        found = self.house().executor.run(LatestQuestion(JobRef("j1"), ("gpu.power", "memory.usage"), by), ALL)
        assert [(one.metric, one.value) for one in found] == [("gpu.power", 300.0), ("memory.usage", 30.0)]


def test_an_import_of_a_job_that_moved(tmp_path):
    """The server gets samples without attempts, and its registry derives the allocations of devices."""
    server = serving(tmp_path / "data")
    begin = server.clock.time_ms - HOUR
    rows = []
    for number, node in enumerate(("n1", "n2")):
        times = range(begin + number * HALF, begin + (number + 1) * HALF, 10_000)
        for device in ("gpu0", "gpu1"):
            series = {"metric": "gpu.power", "job": "j1", "replica": "worker-0", "node": node, "device": device}
            rows.append((series, [(at, WATTS) for at in times]))
    assert server.ingest(samples(rows)).status == 200
    query = f"metric=gpu.power&by=job&aggregate=whole&step=20m&start={begin}&end={begin + HOUR}"
    (line,) = server.call("GET", f"/jobs/j1/metrics?{query}").json()["lines"]
    assert {value for _, value in line["points"]} == {2 * WATTS}
    server.application.close()
