"""Tests that data cached from one query to the next never changes an answer."""

import bisect
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.store_contract.samples import FOREVER, batch_of
from tests.support.fakes import NOW, FakeRegistry, SetClock, running_job
from tests.support.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.model.batch import BucketColumns, SampleColumns
from jobmeter.model.catalog import CATALOG
from jobmeter.model.job import Allocation, Node, Replica
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, SECOND, TimeRange, floor_to
from jobmeter.query.execute import Executor
from jobmeter.query.layout import CachedLayout
from jobmeter.query.request import By, EncodedQuestion, JobRef, MetricQuery, MetricResult
from jobmeter.query.rollups import RollupsQuestion
from jobmeter.query.selected_series import SelectedSeries, SeriesPart, is_counter
from jobmeter.query.selection import make_member
from jobmeter.query.series import BucketsQuestion, SamplesQuestion
from jobmeter.settings import Limits
from jobmeter.store.cache import Cache
from jobmeter.store.window.store import WindowedStore

ALL = Scope(None)
METRICS = ("gpu.utilization", "network.receive", "memory.utilization")
START = floor_to(NOW, HOUR) - 6 * HOUR


def _series(metric: str, replica: int, attempt: int) -> Series:
    device = "gpu0" if metric.startswith("gpu") else ""
    return Series(
        metric, job="j1", replica=f"worker-{replica}", node=f"n{replica + attempt}", device=device, attempt=attempt
    )


def _plain(result: MetricResult) -> list[tuple[Any, ...]]:
    return [
        (one.metric, one.replica, one.node, one.device, one.time.tolist(), np.round(one.value, 9).tolist())
        for one in result.lines
    ]


def _encoded(result: MetricResult) -> bytes:
    return repr(_plain(result)).encode()


def _inside(columns: SampleColumns | BucketColumns, span: TimeRange, cuts: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return the columns' content in a span: the samples, or the statistics of each series between two cuts."""
    if isinstance(columns, SampleColumns):
        return list(zip(columns.index.tolist(), columns.time.tolist(), columns.value.tolist(), strict=True))
    joined: dict[tuple[int, int], list[Any]] = {}
    for row in np.flatnonzero((columns.first_time < span.end_ms) & (columns.last_time >= span.start_ms)).tolist():
        key = int(columns.index[row]), bisect.bisect_right(cuts, int(columns.first_time[row]))
        so_far = joined.setdefault(key, [0, 0.0, float("inf"), float("-inf"), columns.first[row].item(), 0.0])
        so_far[0] += int(columns.count[row])
        so_far[1] = round(so_far[1] + float(columns.sum[row]), 6)
        so_far[2] = min(so_far[2], float(columns.minimum[row]))
        so_far[3] = max(so_far[3], float(columns.maximum[row]))
        so_far[5] = float(columns.last[row])
    return [(*key, *values) for key, values in joined.items()]


class Interleaved(RuleBasedStateMachine):
    """State machine of writes, late and repeated writes, roll-ups, deletions and queries in any order.

    The oracle is a new executor on the plain engine.
    """

    @initialize(
        length=st.sampled_from([MINUTE, HOUR, 24 * HOUR]),
        window=st.sampled_from([6_000, 2**26]),
        bound=st.sampled_from([20_000, 2**26]),
        nodes=st.integers(0, 4),
    )
    def begin(self, length: int, window: int, bound: int, nodes: int) -> None:
        self.engine, self.registry, self.clock = MemoryStore(), FakeRegistry(), SetClock()
        self.registry.add_job(running_job())
        self.registry.stored_nodes = [Node(name=f"n{at}") for at in range(nodes)]
        self.written: list[tuple[Series, int]] = []
        self.sizes = length, window, bound
        self.start(0)

    @rule(filled=st.integers(0, 20))
    def start(self, filled: int) -> None:
        """Start a new executor on the engine's data, and load a part of the data into memory."""
        length, window, bound = self.sizes
        self.store = WindowedStore(self.engine, self.clock, length_ms=length, bound=window)
        self.store.fill(filled)
        self.executor = Executor(self.store, self.registry, self.clock, Limits(), Cache(bound), {"plain": _encoded})

    @rule(
        metric=st.sampled_from(METRICS),
        replica=st.integers(0, 2),
        attempt=st.integers(0, 1),
        start=st.integers(0, 6 * 60),
        step=st.sampled_from([7, 60, 240]),
        values=st.lists(st.integers(0, 9), min_size=1, max_size=20),
    )
    def write(self, metric: str, replica: int, attempt: int, start: int, step: int, values: list[int]) -> None:
        series = _series(metric, replica, attempt)
        times = [START + start * MINUTE + at * step * SECOND for at in range(len(values))]
        scale = 10.0 if CATALOG[metric].maximum else 1.0
        rows = {(series, time): value / scale for time, value in zip(times, values, strict=True)}
        self.written.append((series, times[0]))
        self.store.append_all((batch_of(rows),), FOREVER)

    @precondition(lambda self: self.written)
    @rule(at=st.integers(0, 99), later=st.integers(-600, 600), value=st.integers(0, 9))
    def write_more(self, at: int, later: int, value: int) -> None:
        series, time = self.written[at % len(self.written)]
        self.store.append_all((batch_of({(series, time + later * SECOND): value / 10}),), FOREVER)

    @rule(hours=st.integers(3, 6))
    def roll_up(self, hours: int) -> None:
        self.store.roll_up(START + hours * HOUR)

    @rule()
    def forget(self) -> None:
        self.store.delete_job(_series(METRICS[0], 0, 0).job_key)

    @rule(rank=st.integers(0, 3), attempt=st.integers(0, 1))
    def record(self, rank: int, attempt: int) -> None:
        view = self.registry.views["default", "j1"]
        replicas = [Replica(name="worker-1", rank=rank, attempt=attempt)]
        self.registry.views["default", "j1"] = msgspec.structs.replace(view, replicas=replicas)

    @rule(node=st.integers(0, 3), device=st.integers(0, 1), start=st.integers(0, 6 * 60), value=st.integers(0, 9))
    def write_for_nobody(self, node: int, device: int, start: int, value: int) -> None:
        series = Series("gpu.utilization", node=f"n{node}", device=f"gpu{device}")
        self.store.append_all((batch_of({(series, START + start * MINUTE): value / 10}),), FOREVER)

    @rule(
        node=st.integers(0, 3),
        device=st.integers(0, 1),
        start=st.integers(0, 60),
        length=st.one_of(st.none(), st.integers(0, 300)),
        rank=st.one_of(st.none(), st.integers(0, 3)),
        others=st.booleans(),
    )
    def allocate(
        self, node: int, device: int, start: int, length: int | None, rank: int | None, *, others: bool
    ) -> None:
        """Allocate a device of worker-1; without a length it has no end, and ``go_on`` may extend it."""
        begin = START + start * MINUTE
        one = Allocation(
            replica="worker-1",
            node=f"n{node}",
            device=f"gpu{device}",
            start=begin,
            end=None if length is None else begin + length * MINUTE,
            rank=rank,
        )
        view = self.registry.views["default", "j1"]
        others_only = [
            allocation
            for allocation in view.allocations
            if others and (allocation.node, allocation.device) != (one.node, one.device)
        ]
        self.registry.views["default", "j1"] = msgspec.structs.replace(view, allocations=[*others_only, one])

    @precondition(lambda self: self.registry.views["default", "j1"].allocations)
    @rule(length=st.integers(0, 300))
    def go_on(self, length: int) -> None:
        view = self.registry.views["default", "j1"]
        last = view.allocations[-1]
        longer = msgspec.structs.replace(last, end=max(last.end or 0, last.start + length * MINUTE))
        self.registry.views["default", "j1"] = msgspec.structs.replace(
            view, allocations=[*view.allocations[:-1], longer]
        )

    @rule(
        metric=st.sampled_from(METRICS),
        by=st.sampled_from([By.JOB, By.REPLICA, By.DEVICE]),
        start=st.integers(0, 6 * 3600),
        length=st.integers(0, 6 * 3600),
        step=st.sampled_from([MINUTE, 5 * MINUTE, 7 * MINUTE, HOUR, 2 * HOUR]),
    )
    def ask(self, metric: str, by: By, start: int, length: int, step: int) -> None:
        span = TimeRange(START + start * SECOND, START + (start + length) * SECOND)
        query = MetricQuery(subject=JobRef("j1"), metrics=(metric,), range=span, step_ms=step, by=by)
        expected = _plain(Executor(self.engine, self.registry, self.clock, Limits()).run(query, ALL))
        assert _plain(self.executor.run(query, ALL)) == expected
        assert self.executor.run(EncodedQuestion(query, "plain"), ALL) == repr(expected).encode()
        recalled = self.executor.answer_from_memory(query, ALL)
        assert recalled is None or _plain(recalled) == expected
        encoded = self.executor.answer_from_memory(EncodedQuestion(query, "plain"), ALL)
        assert encoded in {None, repr(expected).encode()}

    @precondition(lambda self: self.written)
    @rule(
        start=st.integers(0, 6 * 3600_000),
        length=st.integers(1, 6 * 3600_000),
        cuts=st.lists(st.integers(0, 6 * 3600_000), max_size=3),
        growth=st.booleans(),
    )
    def ask_for_series(self, start: int, length: int, cuts: list[int], *, growth: bool) -> None:
        """Query repeatedly, so that the cached parts answer too."""
        series = tuple(dict.fromkeys(one for one, _ in self.written))
        span = TimeRange(START + start, START + start + length)
        places = tuple(sorted({span.start_ms, *(START + cut for cut in cuts), span.end_ms}))
        questions: tuple[Any, ...] = (
            SamplesQuestion(series=series, range=span),
            BucketsQuestion(series=series, range=span, step_ms=5 * MINUTE),
            RollupsQuestion(series=series, range=span, cuts=places, growth=growth),
        )
        fresh = Executor(self.engine, self.registry, self.clock, Limits())
        for question in questions:
            expected = _inside(fresh.run(question, ALL).columns, span, places)
            for _ in range(3):
                assert _inside(self.executor.run(question, ALL).columns, span, places) == expected

    @invariant()
    def asked_again(self) -> None:
        if hasattr(self, "executor"):
            for metric in METRICS:
                self.ask(metric, By.REPLICA, 120, 6 * 3600 - 120, 5 * MINUTE)


def test_any_order_of_writes_roll_ups_and_questions():
    run_state_machine_as_test(
        Interleaved,
        settings=settings(
            max_examples=100, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_device_that_goes_on_does_not_change_the_layout_of_a_job_and_a_new_one_does():
    engine, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    registry.add_job(running_job())
    store = WindowedStore(engine, clock, length_ms=8 * HOUR, bound=2**26)
    layouts: dict[Hashable, object] = {}

    class Noted(Cache):
        def put(self, name: Hashable, validator: object, value: object, size: int) -> None:
            if isinstance(value, CachedLayout):
                layouts[name] = value.layout
            super().put(name, validator, value, size)

    executor = Executor(store, registry, clock, Limits(), Noted())
    own = _series("gpu.utilization", 1, 0)
    other = Series("gpu.utilization", node=own.node, device="gpu1")
    store.append_all(
        (batch_of({(one, START + at * MINUTE): 0.5 for one in (own, other) for at in range(60)}),), FOREVER
    )
    span = TimeRange(START, START + HOUR)
    query = MetricQuery(subject=JobRef("j1"), metrics=("gpu.utilization",), range=span, step_ms=HOUR, by=By.DEVICE)

    def ask(*devices: tuple[str, int]) -> tuple[list[str], list[object]]:
        view = registry.views["default", "j1"]
        registry.views["default", "j1"] = msgspec.structs.replace(
            view,
            allocations=[
                Allocation(replica="worker-1", node=own.node, device=device, start=START, end=START + minutes * MINUTE)
                for device, minutes in devices
            ],
        )
        lines = executor.run(query, ALL).lines
        return [one.device for one in lines], list(layouts.values())

    assert ask(("gpu0", 1)) == ask(("gpu0", 50))
    # An allocation seen once has no duration, and its device gets no line.
    assert ask(("gpu0", 50), ("gpu1", 0))[0] == ["gpu0"]
    assert ask(("gpu0", 50), ("gpu1", 50))[0] == ["gpu0", "gpu1"]
    assert ask(("gpu0", 50), ("gpu1", 0))[0] == ["gpu0"]


@pytest.mark.parametrize("in_order", [False, True])
def test_series_are_read_as_they_are_listed_or_in_the_order_of_their_keys(in_order):
    some = [_series(metric, replica, 0) for metric in (*METRICS, "cpu.time") for replica in range(9)]
    shape = SelectedSeries([SeriesPart(one, make_member(one), one.replica) for one in some])
    (read,) = shape.list_reads(TimeRange(START, START + HOUR), in_order=in_order)
    series = [shape.entries[at].series for at in read.positions.tolist()]
    assert read.keys.series.tolist() == [one.id for one in series]
    assert read.counters.tolist() == [is_counter(one.metric) for one in series]
    listed, by_key = list(range(len(some))), sorted(one.id for one in some)
    assert (read.positions.tolist() if in_order else read.keys.series.tolist()) == (listed if in_order else by_key)
    assert read.in_order is in_order


@pytest.fixture
def partly_measured():
    """Return store, registry and query of a job on gpu0 of n1 with measured utilization and without measured power."""
    registry = FakeRegistry()
    allocation = Allocation(replica="worker-1", node="n1", device="gpu0", start=START)
    registry.add_job(running_job(), allocations=[allocation])
    store = WindowedStore(MemoryStore(), SetClock(), length_ms=8 * HOUR, bound=2**26)
    executor = Executor(store, registry, SetClock(), Limits())
    own = _series("gpu.utilization", 1, 0)
    store.append_all((batch_of({(own, START + at * MINUTE): 0.5 for at in range(60)}),), FOREVER)

    def query(minutes: int = 60) -> MetricQuery:
        span = TimeRange(START, START + minutes * MINUTE)
        metrics = ("gpu.utilization", "gpu.power")
        return MetricQuery(subject=JobRef("j1"), metrics=metrics, range=span, step_ms=HOUR, by=By.DEVICE)

    return store, registry, executor, query


def test_a_layout_serves_other_ranges_where_no_device_has_series_of_what_the_job_does_not_measure(partly_measured):
    _, registry, executor, query = partly_measured
    registry.stored_nodes = [Node(name="n1")]
    expected = executor.run(query(60), ALL)
    found = executor.answer_from_memory(query(59), ALL)
    assert found is not None
    assert _plain(found) == _plain(expected)


def test_a_series_without_a_job_that_begins_later_is_in_the_answer(partly_measured):
    store, registry, executor, query = partly_measured
    registry.stored_nodes = [Node(name="n1")]
    executor.run(query(), ALL)
    other = Series("gpu.power", node="n1", device="gpu0")
    store.append_all((batch_of({(other, START + MINUTE): 300.0}),), FOREVER)
    assert executor.answer_from_memory(query(), ALL) is None
    assert [one.metric for one in executor.run(query(), ALL).lines] == ["gpu.power", "gpu.utilization"]


def test_a_node_that_the_registry_has_later_is_looked_at(partly_measured):
    """Its series are stored before the registry knows its cluster."""
    store, registry, executor, query = partly_measured
    other = Series("gpu.power", node="n1", device="gpu0", cluster="c")
    store.append_all((batch_of({(other, START + MINUTE): 300.0}),), FOREVER)
    assert [one.metric for one in executor.run(query(), ALL).lines] == ["gpu.utilization"]
    registry.stored_nodes = [Node(name="n1", cluster="c")]
    assert [one.metric for one in executor.run(query(), ALL).lines] == ["gpu.power", "gpu.utilization"]


def test_what_is_cached_is_not_read_again():
    reads: list[TimeRange] = []

    class Counting(MemoryStore):
        def read_buckets(self, keys, span, tier, budget):
            reads.append(span)
            return super().read_buckets(keys, span, tier, budget)

    engine, registry, clock = Counting(), FakeRegistry(), SetClock()
    registry.add_job(running_job())
    store = WindowedStore(engine, clock, length_ms=HOUR, bound=2**26)
    executor = Executor(store, registry, clock, Limits())
    series = _series("network.receive", 0, 0)
    store.append_all((batch_of({(series, START + at * MINUTE): float(at) for at in range(360)}),), FOREVER)
    store.roll_up(START + 6 * HOUR)

    def ask(start_s: int) -> MetricResult:
        span = TimeRange(START + start_s * SECOND, START + 6 * HOUR)
        query = MetricQuery(
            subject=JobRef("j1"), metrics=("network.receive",), range=span, step_ms=5 * MINUTE, by=By.REPLICA
        )
        return executor.run(query, ALL)

    first = ask(30)
    assert reads
    reads.clear()
    assert _plain(ask(30)) == _plain(first)
    ask(90)
    assert not reads, "a later start lies inside of what is kept"
    store.append_all((batch_of({(series, START + 30 * MINUTE + 1): 30.5}),), FOREVER)
    (line,) = ask(30).lines
    assert line.time.tolist() == first.lines[0].time.tolist()


@pytest.mark.parametrize("bound", [0, 10**9])
def test_memory_is_bounded(bound):
    cache = Cache(bound)
    engine = MemoryStore()
    store = WindowedStore(engine, SetClock(), length_ms=HOUR, bound=2**26)
    registry = FakeRegistry()
    registry.add_job(running_job())
    store.append_all(
        (batch_of({(_series("network.receive", 0, 0), START + at * MINUTE): float(at) for at in range(360)}),), FOREVER
    )
    store.roll_up(START + 6 * HOUR)
    executor = Executor(store, registry, SetClock(), Limits(), cache)
    query = MetricQuery(
        subject=JobRef("j1"),
        metrics=("network.receive",),
        range=TimeRange(START, START + 6 * HOUR),
        step_ms=5 * MINUTE,
        by=By.REPLICA,
    )
    assert executor.run(query, ALL).lines
    assert cache.statistics.bytes <= bound
    assert bool(cache.statistics.bytes) == bool(bound)


def test_an_encoded_answer_outlives_samples_whose_time_is_over_by_an_hour_at_most():
    """An ended job gets no writes, so no write reports that the engine has dropped its expired samples."""
    engine, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    registry.add_job(running_job())
    store = WindowedStore(engine, clock, length_ms=8 * HOUR, bound=2**26)
    made: list[bytes] = []

    def encode(result: MetricResult) -> bytes:
        made.append(_encoded(result))
        return made[-1]

    executor = Executor(store, registry, clock, Limits(), encoders={"plain": encode})
    series = _series("memory.usage", 0, 0)
    store.append_all((batch_of({(series, START + at * MINUTE): float(at) for at in range(100)}),), FOREVER)
    span = TimeRange(START, START + 3 * HOUR)
    query = MetricQuery(subject=JobRef("j1"), metrics=("memory.usage",), range=span, step_ms=HOUR, by=By.REPLICA)

    def ask() -> list[bytes]:
        """Return two answers; ``made`` has the encodings made for them."""
        made.clear()
        return [executor.run(EncodedQuestion(query, "plain"), ALL) for _ in range(2)]

    first = ask()
    assert (first[0], len(made)) == (first[1], 1)
    engine.delete_job(series.job_key)  # as the engine itself does when the samples expire
    assert (ask(), len(made)) == (first, 0)
    clock.time_ms += HOUR
    ask()
    assert len(made) == 1


def test_an_encoded_answer_names_the_tiers_that_there_are():
    engine, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    registry.add_job(running_job())
    store = WindowedStore(engine, clock, length_ms=HOUR, bound=2**26)
    executor = Executor(
        store, registry, clock, Limits(), encoders={"tiers": lambda result: " ".join(result.tiers).encode()}
    )
    series = _series("memory.usage", 0, 0)
    store.append_all((batch_of({(series, START + at * MINUTE): float(at) for at in range(360)}),), FOREVER)
    query = MetricQuery(
        subject=JobRef("j1"),
        metrics=("memory.usage",),
        range=TimeRange(START, START + 6 * HOUR),
        step_ms=HOUR,
        by=By.REPLICA,
    )

    def tiers() -> bytes:
        return executor.run(EncodedQuestion(query, "tiers"), ALL)

    assert tiers() == b"raw"
    store.roll_up(START + 6 * HOUR)
    assert b"hour" in tiers()


@pytest.mark.parametrize("by", [By.JOB, By.REPLICA, By.DEVICE])
@pytest.mark.parametrize("metrics", [("gpu.utilization", "gpu.power"), ("network.receive",), ("memory.utilization",)])
def test_a_short_range_that_was_queried_before_is_answered_from_memory(metrics, by):
    engine, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    registry.add_job(running_job())
    store = WindowedStore(engine, clock, length_ms=8 * HOUR, bound=2**26)
    executor = Executor(store, registry, clock, Limits(), encoders={"plain": _encoded})
    names = (*metrics, "memory.usage", "memory.limit")
    rows = {
        (_series(name, replica, 0), START + at * MINUTE): (at % 7 + replica + 1) / 10
        for name in names
        for replica in range(3)
        for at in range(60)
    }
    store.append_all((batch_of(rows),), FOREVER)

    def query(end_ms: int) -> MetricQuery:
        span = TimeRange(START + 20 * MINUTE, end_ms)
        return MetricQuery(subject=JobRef("j1"), metrics=metrics, range=span, step_ms=5 * MINUTE, by=by)

    first, other = query(START + 50 * MINUTE), query(START + 47 * MINUTE + 1)
    assert executor.answer_from_memory(first, ALL) is None
    executor.run(first, ALL)
    expected = executor.run(other, ALL)
    found = executor.answer_from_memory(other, ALL)
    assert found is not None
    assert _plain(found) == _plain(expected)
    assert (found.samples, found.tiers) == (expected.samples, expected.tiers)
    assert executor.answer_from_memory(EncodedQuestion(other, "plain"), ALL) == _encoded(expected)


def test_what_takes_long_is_not_answered_from_memory():
    engine, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    registry.add_job(running_job())
    store = WindowedStore(engine, clock, length_ms=8 * HOUR, bound=2**26)
    executor = Executor(store, registry, clock, Limits())
    series = _series("memory.usage", 0, 0)
    store.append_all((batch_of({(series, START + at * SECOND): float(at) for at in range(3_600)}),), FOREVER)
    span = TimeRange(START, START + HOUR)
    for step_ms, long in ((MINUTE, False), (100, True)):
        query = MetricQuery(subject=JobRef("j1"), metrics=("memory.usage",), range=span, step_ms=step_ms, by=By.REPLICA)
        executor.run(query, ALL)
        assert (executor.answer_from_memory(query, ALL) is None) is long
