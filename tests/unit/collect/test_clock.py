"""Tests of the time of samples, against wall clocks that are stepped, drift and return."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.straight_reader import read_body

from jobmeter.collect.agent_metrics import AgentMetrics
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.clock import OVERLAP_MS, STEADY_NS, ClockReporter, SampleClock
from jobmeter.collect.loop import Loop
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.worker import Worker
from jobmeter.model.record import check_event
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series

EPOCH = 1_795_222_148_000
SETTLE = STEADY_NS // 10**9
HOUR = 3_600.0


@dataclass
class Machine:
    """Machine whose wall clock is wrong by ``error`` seconds. Its time passes only when a test advances it."""

    elapsed: float = 1000.0
    error: float = 0.0
    asleep: float = 0.0

    def now_ms(self):
        return int(EPOCH + (self.elapsed + self.error) * 1000)

    def monotonic(self):
        return self.elapsed - self.asleep

    def elapsed_ns(self):
        return int(self.elapsed * 1e9)

    @property
    def true_ms(self):
        return EPOCH + self.elapsed * 1000


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def clock(machine):
    return SampleClock(machine, machine.elapsed_ns)


def tick(machine, clock, seconds=1.0, count=1):
    """Return the time stamps of ``count`` ticks, ``seconds`` apart."""
    stamps = []
    for _ in range(count):
        machine.elapsed += seconds
        stamps.append(clock.stamp())
    return stamps


@pytest.mark.parametrize("step", [6 * HOUR, 120.0, -120.0, -6 * HOUR, 20 * 365 * 24 * HOUR])
def test_a_step_of_six_seconds_moves_no_stamp(machine, clock, step):
    tick(machine, clock, count=10)
    machine.error = step
    during = tick(machine, clock, count=6)
    assert clock.difference == pytest.approx(step, abs=0.01)
    machine.error = 0.0
    stamps = [*during, *tick(machine, clock, count=3)]
    assert stamps[-1] == pytest.approx(machine.true_ms, abs=2)
    assert [b - a for a, b in itertools.pairwise(stamps)] == pytest.approx([1000] * 8, abs=2)
    assert [change.reason for change in clock.take_changes()] == ["ClockStepped", "ClockReturned"]


@pytest.mark.parametrize("step", [0.0, 0.3, -0.3, 120.0, -6 * HOUR])
def test_one_time_of_the_wall_clock_becomes_one_time_of_samples(machine, clock, step):
    """A value that is sent again has the same time, although both clocks advance between two readings."""
    tick(machine, clock)
    machine.error = step
    found = set()
    for _ in range(50):
        machine.elapsed += 0.000_73
        found.add(clock.measure_wall_offset_ms())
    assert found == {-round(step) * 1000}


@pytest.mark.parametrize("step", [6 * HOUR, 120.0, -6 * HOUR])
def test_a_lasting_step_is_followed_and_its_return_immediately(machine, clock, step):
    tick(machine, clock, count=10)
    machine.error = step
    tick(machine, clock, count=SETTLE + 2)
    assert clock.now_ms() == pytest.approx(machine.now_ms(), abs=2)
    machine.error = 0.0
    tick(machine, clock)
    assert clock.now_ms() == pytest.approx(machine.true_ms, abs=2)
    assert [change.reason for change in clock.take_changes()] == ["ClockStepped", "ClockCorrected", "ClockCorrected"]


def test_time_set_back_a_little_gives_no_stamp_until_the_last_one_has_passed(machine, clock):
    last = tick(machine, clock, count=10)[-1]
    machine.error = -120.0
    stamps = tick(machine, clock, count=SETTLE + 180)
    given = [stamp for stamp in stamps if stamp is not None]
    assert given == sorted(set(given))
    assert min(given) > last
    assert stamps.count(None) == pytest.approx(120, abs=3)
    assert stamps[-1] == pytest.approx(machine.now_ms(), abs=2)


def test_a_needed_stamp_is_given_while_others_are_not(machine, clock):
    tick(machine, clock, count=10)
    machine.error = -120.0
    tick(machine, clock, count=SETTLE)
    last = clock.stamp(needed=True)
    assert tick(machine, clock) == [None]
    assert clock.stamp(needed=True) == last + 1


def test_after_a_large_step_back_time_continues_immediately(machine, clock):
    tick(machine, clock, count=10)
    machine.error = -2 * OVERLAP_MS / 1000
    stamps = tick(machine, clock, count=SETTLE + 10)
    assert None not in stamps
    assert stamps[-1] == pytest.approx(machine.now_ms(), abs=2)


def test_a_suspended_machine_has_not_stepped_its_clock(machine, clock):
    tick(machine, clock, count=10)
    machine.elapsed += 8 * HOUR
    machine.asleep += 8 * HOUR
    assert tick(machine, clock)[0] == pytest.approx(machine.true_ms, abs=2)
    assert clock.take_changes() == []


def test_two_readings_that_were_interrupted_are_no_step(clock, machine, monkeypatch):
    def interrupted():
        machine.elapsed += 30
        return EPOCH

    monkeypatch.setattr(machine, "now_ms", interrupted)
    clock.observe()
    assert clock.take_changes() == []


STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 20.0),
        st.integers(1, 40),
        st.sampled_from([0.0, 0.0, 3.0, -3.0, 90.0, -90.0, 6 * HOUR, -6 * HOUR]),
        st.floats(-0.001, 0.001),
    ),
    max_size=8,
)


@given(STEPS, st.sampled_from([1.0, 10.0]))
def test_whatever_the_wall_clock_does_stamps_keep_their_distance_and_are_right_in_the_end(steps, interval):
    machine = Machine()
    clock = SampleClock(machine, machine.elapsed_ns)
    stamps = [(machine.elapsed, clock.stamp())]
    corrected = set()

    def look(seconds):
        machine.elapsed += seconds
        stamps.append((machine.elapsed, clock.stamp()))
        if any(change.reason == "ClockCorrected" for change in clock.take_changes()):
            corrected.add(machine.elapsed)

    for seconds, count, step, drift in steps:
        machine.error += step
        for _ in range(count):
            machine.error += drift * seconds
            look(seconds)
    for (before, left), (after, right) in itertools.pairwise(stamps):
        if left is None or right is None or after in corrected:
            continue
        assert right - left == pytest.approx((after - before) * 1000, rel=0.06, abs=3)
    given_stamps = [stamp for _, stamp in stamps if stamp is not None]
    for left, right in itertools.pairwise(given_stamps):
        assert right > left or left - right > OVERLAP_MS
    for _ in range(int((SETTLE + 2 * interval + 25) / interval) + 1):
        look(interval)
    assert clock.now_ms() == pytest.approx(machine.now_ms(), abs=3)


def everything(outbox):
    batch = outbox.peek(2**24)
    assert batch is not None
    return batch.body


class Counting:
    metrics = ("cpu.time",)
    name = "counting"

    def collect(self, now_ms):
        return [Sample(Series("cpu.time", node="n"), now_ms, 1.0)]


def test_a_loop_whose_clock_is_stepped_for_six_seconds_is_never_silent(machine, clock):
    outbox = Outbox(None)
    place = NodeIdentity("n1", "c1")
    worker = Worker(Counting(), 0, clock, 20.0)
    loop = Loop([worker], [ClockReporter(place, clock)], outbox, AgentMetrics(place), clock)
    for second in range(20):
        machine.elapsed += 1
        machine.error = 6 * HOUR if 8 <= second < 14 else 0.0
        loop.tick()
    body = everything(outbox)
    samples = [one for kind, read in read_body(body) if kind == 1 for one in read]
    times = [one.time_ms for one in samples if one.series.metric == "cpu.time"]
    assert len(times) == 20
    assert [b - a for a, b in itertools.pairwise(times)] == pytest.approx([1000] * 19, abs=2)
    offsets = [one.value for one in samples if one.series.metric == "agent.clock.offset"]
    assert max(offsets) == pytest.approx(6 * HOUR, abs=0.01)
    assert offsets[-1] == pytest.approx(0.0, abs=0.01)
    assert sum(kind == 2 for kind, _ in read_body(body)) == 2


def test_a_slow_collector_goes_on_after_the_time_was_set_back(machine, clock):
    outbox = Outbox(None)
    slow = Worker(Counting(), 60_000, clock, 20.0)
    loop = Loop([slow], [], outbox, AgentMetrics(NodeIdentity("n1")), clock)
    loop.tick()
    machine.error = -6 * HOUR
    for _ in range(13):
        machine.elapsed += 10
        loop.tick()
    samples = [one for _, read in read_body(everything(outbox)) for one in read]
    assert len([one for one in samples if one.series.metric == "cpu.time"]) == 3


def test_changes_are_events_of_the_node(machine, clock):
    tick(machine, clock)
    machine.error = 6 * HOUR
    tick(machine, clock)
    reporter = ClockReporter(NodeIdentity("n1", "c1", "p1"), clock)
    (record,) = reporter.take_records(0).events
    event = check_event(record)
    assert (event.node, event.cluster, event.reason, str(event.level)) == ("n1", "c1", "ClockStepped", "warning")
    assert "+21600.0 s" in event.message
    assert event.time == pytest.approx(machine.true_ms, abs=2)
    assert reporter.take_records(0).events == []
