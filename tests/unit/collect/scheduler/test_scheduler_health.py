"""Tests of the reports to the server and the log about a scheduler that does not answer, or answers in part."""

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes import NOW, SetClock

from jobmeter.collect.outbox import Outbox
from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.collect.scheduler.health import REPORT_MS, SchedulerHealth
from jobmeter.collect.scheduler.watch import ClusterScopedIds, SchedulerWatch
from jobmeter.errors import UnavailableError
from jobmeter.model.record import JobRecord, Records, SchedulerRecord
from jobmeter.wire.native.decode import decode

STEP_MS = 10_000


class Answering(Scheduler):
    """Scheduler that behaves as the test sets it."""

    def __init__(self) -> None:
        self.error: UnavailableError | None = None
        self.part = ""

    def poll(self, now_ms: int) -> Records:
        if self.error is not None:
            raise self.error
        return Records(jobs=[JobRecord(job_id="1")])

    def describe_problem(self) -> str:
        return self.part

    def close(self) -> None:
        pass


class Watched:
    """Watch of a scheduler, with its clock and the records in its outbox."""

    def __init__(self, *, in_cluster: bool = False) -> None:
        self.clock, self.outbox, self.scheduler = SetClock(), Outbox(None), Answering()
        scheduler = ClusterScopedIds(self.scheduler, "c") if in_cluster else self.scheduler
        health = SchedulerHealth("kubernetes", "c", STEP_MS, self.outbox, self.clock)
        self.watch = SchedulerWatch(scheduler, self.outbox, self.clock, STEP_MS, health)

    def poll(self, times: int = 1) -> list[SchedulerRecord]:
        """Poll ``times`` times, one interval apart. Return the reports to the server since the last call."""
        for _ in range(times):
            self.watch.poll_once()
            self.clock.time_ms += STEP_MS
        found: list[SchedulerRecord] = []
        while (batch := self.outbox.peek(2**20, 1)) is not None:
            (records,) = decode(batch.body).records
            assert not (records.schedulers and records.jobs), "an older server refuses these reports alone"
            found += records.schedulers
            self.outbox.release(batch.end)
        return found


@pytest.mark.parametrize("in_cluster", [False, True])
@pytest.mark.parametrize("part", [False, True])
def test_a_problem_is_reported_when_it_begins_and_when_it_ends(
    part: bool, in_cluster: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one = Watched(in_cluster=in_cluster)
    assert [(found.problem, found.since) for found in one.poll(3)] == [("", None)]
    began = one.clock.time_ms
    one.scheduler.part, one.scheduler.error = ("403 for jobs", None) if part else ("", UnavailableError("no route"))
    text = one.scheduler.part or "no route"
    with caplog.at_level(logging.INFO):
        (found,) = one.poll(4)[:1]
        assert (found.kind, found.cluster, found.interval_ms) == ("kubernetes", "c", STEP_MS)
        assert (found.problem, found.since, found.time) == (text, began, began)
        assert [record.message for record in caplog.records] == [
            f"{text}; since 2026-01-01T00:00:30Z, retrying until it answers"
        ]
        one.scheduler.part, one.scheduler.error = "", None
        (found,) = one.poll(2)[:1]
        assert (found.problem, found.since) == ("", None)
        assert caplog.records[-1].message == "the scheduler answers again, after 40 s"


def test_reports_come_once_a_minute_while_nothing_changes() -> None:
    one = Watched()
    times = [found.time for found in one.poll(60)]
    assert times == [NOW + number * REPORT_MS for number in range(10)]


def test_a_problem_that_changes_its_text_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    one = Watched()
    with caplog.at_level(logging.INFO):
        for number in range(30):
            one.scheduler.error = UnavailableError(f"port {number}")
            found = one.poll()
            assert all(report.since == NOW for report in found)
    assert 2 <= len(caplog.records) <= 6, "at most once a minute"


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=40))
def test_since_is_when_the_first_of_a_row_of_failures_was(problems: list[str]) -> None:
    one, first = Watched(), None
    for text in problems:
        one.scheduler.error = UnavailableError(text) if text else None
        first = (first or one.clock.time_ms) if text else None
        for found in one.poll():
            assert (bool(found.problem), found.since) == (bool(text), first)


class Waits(threading.Event):
    """Stop event that counts the waits between polls instead of waiting."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.found: list[float] = []
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        self.found.append(timeout or 0.0)
        return len(self.found) >= self._most


def test_a_scheduler_is_polled_less_often_while_it_does_not_answer() -> None:
    one = Watched()
    one.scheduler.error = UnavailableError("away")
    one.watch.run(stop := Waits(7))
    assert stop.found == [20, 40, 80, 160, 300, 300, 300]
    one.scheduler.error = None
    one.watch.run(stop := Waits(2))
    assert stop.found == [10, 10]


def test_one_that_retries_by_itself_is_polled_as_often_as_ever() -> None:
    """A longer interval would delay by minutes what an informer read after an outage."""
    one = Watched()
    one.scheduler.error = UnavailableError("away", retry_after_ms=0)
    one.watch.run(stop := Waits(7))
    assert stop.found == [10] * 7
