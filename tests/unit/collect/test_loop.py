"""Tests of the loop and its workers: a failing collector does not affect the others."""

import json
import threading
import time
from typing import Any

import pytest
from tests.support.waiting import wait_until
from tests.unit.wire.straight_reader import read_body

from jobmeter.collect.agent_metrics import AgentMetrics
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.loop import Loop
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.worker import Worker
from jobmeter.model.catalog import find
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.model.time import SystemClock


class Good:
    metrics = ("cpu.time",)

    def __init__(self, name="good", value=1.0):
        self.name, self.value, self.times = name, value, []

    def collect(self, now_ms):
        self.times.append(now_ms)
        return [Sample(Series("cpu.time", node=self.name), now_ms, self.value)]


class Failing(Good):
    def collect(self, now_ms):
        super().collect(now_ms)
        raise RuntimeError("broken")


class Hanging(Good):
    def __init__(self, name="hanging"):
        super().__init__(name)
        self.release = threading.Event()

    def collect(self, now_ms):
        super().collect(now_ms)
        self.release.wait(30)
        return []


@pytest.fixture
def outbox():
    return Outbox(None)


def make(outbox, *collectors, every_ms=0, timeout=0.3, sources=(), clock=None):
    clock = clock or SampleClock(SystemClock())
    workers = [Worker(collector, every_ms, clock, timeout) for collector in collectors]
    return Loop(workers, list(sources), outbox, AgentMetrics(NodeIdentity("n1")), clock)


def taken(outbox):
    samples: list[Any] = []
    while batch := outbox.peek(2**20):
        for kind, read in read_body(batch.body):
            samples += read if kind == 1 else [json.loads(read)]
        outbox.release(batch.end)
    return samples


def latest(samples, metric, **labels):
    found = [s for s in samples if s.series.metric == metric and dict(s.series.labels) == labels]
    return found[-1].value if found else None


def test_a_failing_and_a_hanging_collector_do_not_stop_the_others_and_are_shown(outbox):
    good, failing, hanging = Good(), Failing("failing"), Hanging()
    loop = make(outbox, failing, hanging, good)
    begin = time.monotonic()
    for _ in range(3):
        loop.tick()
    passed = time.monotonic() - begin
    hanging.release.set()
    samples = taken(outbox)
    assert len([s for s in samples if s.series.node == "good"]) == 3
    assert latest(samples, "agent.collect.success", collector="good") == 1
    assert latest(samples, "agent.collect.success", collector="failing") == 0
    assert latest(samples, "agent.collect.success", collector="hanging") == 0
    assert latest(samples, "agent.collect.duration", collector="hanging") > 0.1
    assert len(hanging.times) == 1  # never called again before it has returned
    assert passed < 5  # waited for once, not at every tick


def test_an_end_does_not_wait_for_a_collector_that_hangs(outbox):
    """The collector would hold up the end for ten minutes."""
    hanging, stop = Hanging(), threading.Event()
    loop = make(outbox, hanging, timeout=600.0)
    running = threading.Thread(target=loop.run, args=(stop, 1_000), daemon=True)
    running.start()
    wait_until(lambda: hanging.times)
    stop.set()
    running.join(60)
    assert not running.is_alive()
    loop.tick(force=True, longest=600.0)  # the last collection does not wait for it either
    hanging.release.set()
    assert latest(taken(outbox), "agent.collect.success", collector="hanging") == 0


def test_the_last_collection_takes_no_longer_than_it_may(outbox):
    hanging = Hanging()
    loop = make(outbox, hanging, timeout=600.0)
    loop.tick(force=True, longest=0.01)
    hanging.release.set()
    assert latest(taken(outbox), "agent.collect.success", collector="hanging") == 0


def test_a_collector_that_comes_back_is_used_again(outbox):
    hanging = Hanging()
    loop = make(outbox, hanging)
    loop.tick()
    hanging.release.set()
    wait_until(lambda: loop.tick() and len(hanging.times) >= 2)
    assert latest(taken(outbox), "agent.collect.success", collector="hanging") == 1


def test_a_failing_collector_is_suspended_with_backoff(outbox):
    failing = Failing("failing")
    loop = make(outbox, failing)
    for _ in range(40):
        loop.tick()
    assert 5 <= len(failing.times) <= 9
    assert all(s.value == 0 for s in taken(outbox) if s.series.metric == "agent.collect.success")


def test_a_slow_collector_has_its_own_interval(outbox):
    slow = Good("slow")
    loop = make(outbox, slow, every_ms=60_000)
    for _ in range(5):
        loop.tick()
    assert len(slow.times) == 1
    loop.tick(force=True)
    assert len(slow.times) == 2


def test_what_is_not_finite_is_counted_and_not_sent(outbox):
    loop = make(outbox, Good(value=float("nan")), Good("other"))
    loop.tick()
    loop.tick()
    samples = taken(outbox)
    assert {s.series.node for s in samples if s.series.metric == "cpu.time"} == {"other"}
    assert latest(samples, "agent.dropped", reason="not.finite") == 1


def test_no_two_ticks_have_the_same_time(outbox):
    loop = make(outbox, Good())
    times = [loop.tick() for _ in range(20)]
    assert times == sorted(set(times))


def test_the_agent_measures_itself_by_names_of_the_catalogue(outbox):
    loop = make(outbox, Good())
    loop.tick()
    given = {s.series.metric for s in taken(outbox)} - {"cpu.time"}
    assert {"agent.cpu.time", "agent.memory.usage", "agent.spool.size", "agent.samples"} <= given
    assert all(find(name) for name in given)


def test_records_are_sent_when_there_are_some(outbox):
    class Once:
        def __init__(self):
            self.news = [Records(jobs=[JobRecord(job_id="j")])]

        def take_records(self, now_ms):
            return self.news.pop() if self.news else Records()

    loop = make(outbox, sources=[Once()])
    loop.tick()
    loop.tick()
    assert [record for record in taken(outbox) if isinstance(record, dict)] == [{"jobs": [{"job_id": "j"}]}]


def test_the_loop_is_on_time_and_ends_when_stopped(outbox):
    good, stop = Good(), threading.Event()
    loop = make(outbox, good)
    thread = threading.Thread(target=loop.run, args=(stop, 100, (20, 50)))
    thread.start()
    wait_until(lambda: len(good.times) >= 6)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert len(good.times) >= 6
