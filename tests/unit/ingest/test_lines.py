"""Tests of log lines in the ingest pipeline: split, truncated, limited in time, registered, durable or refused."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support import frames as write
from tests.support.fakes import NOW, WRITER, FakeRegistry, SetClock
from tests.support.memory_store import MemoryLogs, MemoryStore

from jobmeter.access.principal import Principal, Role
from jobmeter.errors import (
    ForbiddenError,
    InvalidRequestError,
    LimitExceededError,
    ThrottledError,
    UnavailableError,
)
from jobmeter.ingest.commit import LogCommitter
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.model.log import MAX_TEXT_BYTES, LogLine, cut_text
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, SECOND
from jobmeter.settings import Limits
from jobmeter.store.base import LogSelector, ReadBudget
from jobmeter.wire.native.logs import make_logs_frame

NS = 1_000_000
TEAM = Principal(id="k", name="w", role=Role.WRITER, project="team")


def line(text: str = "hello", time_ns: int = NOW * NS, **parts: Any) -> LogLine:
    return LogLine(**{"time_ns": time_ns, "text": text, "job": "j1", "replica": "worker-0", **parts})


@dataclass
class House:
    store: MemoryStore
    registry: FakeRegistry
    pipeline: IngestPipeline

    def lines(self, project: str = "default", job: str = "j1") -> list[LogLine]:
        return self.store.logs.read(LogSelector(project=project, job=job, limit=10_000), ReadBudget()).lines

    def is_empty(self) -> bool:
        return not any(self.store.read_statistics().rows.values()) and not self.registry.observations


@pytest.fixture
def house() -> Iterator[House]:
    store, registry = MemoryStore(), FakeRegistry()
    pipeline = IngestPipeline(store, registry, SetClock(), Limits(request_lines=50))
    yield House(store, registry, pipeline)
    pipeline.close()


def test_lines_are_stored_and_record_their_job(house):
    lines = [line("a", NOW * NS + 1), line("b", NOW * NS - 5_000 * NS, replica="worker-1", attempt=1, node="n")]
    receipt = house.pipeline.submit_logs(lines, WRITER)
    assert (receipt.lines, receipt.rejected_lines, receipt.accepted) == (2, {}, 0)
    assert house.lines() == lines[::-1]
    first_times = {
        (observation.job, observation.replica, observation.attempt, observation.node): observation.first_ms
        for observation in house.registry.observations
    }
    assert first_times == {("j1", "worker-0", 0, ""): NOW, ("j1", "worker-1", 1, ""): NOW - 5_000}


def test_a_body_may_mix_lines_with_samples_and_records(house):
    sample = write.frame(write.payload([(Series("cpu.usage", job="j1"), [(NOW, 1.0)])]))
    record = write.frame(b'{"jobs":[{"job_id":"j1"}]}', kind=2)
    receipt = house.pipeline.submit(
        sample + make_logs_frame([line("x")]) + record + make_logs_frame([line("y")]), WRITER
    ).wait()
    assert (receipt.accepted, receipt.records, receipt.lines) == (1, 1, 2)
    assert [one.text for one in house.lines()] == ["x", "y"]


def test_lines_without_a_project_are_the_keys_own(house):
    house.pipeline.submit(make_logs_frame([line(project="")]), TEAM).wait()
    assert [one.project for one in house.lines("team")] == ["team"]


@pytest.mark.parametrize(
    "principal",
    [Principal(id="k", name="r", role=Role.READER), TEAM, Principal(id="k", name="s", role=Role.READER, job="j1")],
    ids=["reader", "another project", "share token"],
)
def test_who_may_not_write_leaves_nothing(house, principal):
    with pytest.raises(ForbiddenError):
        house.pipeline.submit_logs([line()], principal)
    assert house.is_empty()


def test_the_far_future_and_the_expired_past_are_counted_out(house):
    house.registry.retentions["default"] = Retention(raw_days=2)
    latest, earliest = (NOW + 300 * SECOND) * NS, (NOW - 2 * DAY) * NS
    lines = [line("", at) for at in (latest + 1, latest, NOW * NS, earliest, earliest - 1, 0)]
    receipt = house.pipeline.submit_logs(lines, WRITER)
    assert (receipt.lines, receipt.rejected_lines) == (3, {"future": 1, "expired": 2})
    assert len(house.lines()) == 3


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"job": "a/b"}, "job"),
        ({"job": ""}, "job"),
        ({"project": "no way"}, "project"),
        ({"replica": "a b"}, "replica"),
        ({"node": "-"}, "node"),
        ({"stream": ""}, "stream"),
        ({"stream": "x" * 200}, "stream"),
        ({"attempt": -1}, "attempt"),
        ({"attempt": 2**31}, "attempt"),
        ({"time_ns": -1}, "time"),
        ({"time_ns": 2**62}, "time"),
        ({"time_ns": 10**30}, "time"),
        ({"text": "half \ud83d"}, "text"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_of_the_request_is_stored(house, wrong, field):
    with pytest.raises(InvalidRequestError) as caught:
        house.pipeline.submit_logs([line("good"), line(**wrong)], WRITER)
    assert caught.value.field == field
    assert house.is_empty()


def test_a_damaged_frame_behind_good_ones_leaves_nothing(house):
    with pytest.raises(InvalidRequestError):
        house.pipeline.submit(
            make_logs_frame([line()]) + write.frame(b'{"streams":[{"job":"j1"}]}', kind=3), WRITER
        ).wait()
    assert house.is_empty()


def test_a_text_of_several_lines_becomes_several(house):
    house.pipeline.submit_logs(
        [line("one\r\ntwo\n\nthree\n"), line("four", NOW * NS + 10), line("five\r", NOW * NS + 11)], WRITER
    )
    assert [(one.text, one.time_ns - NOW * NS) for one in house.lines()] == [
        ("one", 0),
        ("two", 1),
        ("", 2),
        ("three", 3),
        ("four", 10),
        ("five", 11),
    ]


def test_a_line_that_is_too_long_is_cut(house):
    long = "é" * MAX_TEXT_BYTES
    house.pipeline.submit_logs([line(long), line("x" * MAX_TEXT_BYTES, NOW * NS + 1)], WRITER)
    assert [one.text for one in house.lines()] == [cut_text(long), "x" * MAX_TEXT_BYTES]


def test_lines_are_limited_after_they_are_split(house):
    house.pipeline.submit_logs([line("\n" * 50)], WRITER)
    with pytest.raises(LimitExceededError) as caught:
        house.pipeline.submit_logs([line("\n" * 51)], WRITER)
    assert caught.value.field == "lines"


class GatedLogs(MemoryLogs):
    """Store of lines that holds appends until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.gate = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def append(self, lines, retention=None) -> None:
        self.entered.set()
        assert self.gate.wait(30)
        self.sizes.append(len(lines))
        super().append(lines)


def test_requests_share_a_commit_and_a_full_queue_throttles():
    store, logs = MemoryStore(), GatedLogs()
    store.logs = logs
    committer = LogCommitter(store, lambda _: None, queue_bytes=1_000)
    futures = [committer.append([line("0")], Retention())]
    assert logs.entered.wait(30)
    futures += [committer.append([line(text)], Retention()) for text in ("1", "2", "3")]
    for refused in (committer.check_room, lambda lines: committer.append(lines, Retention())):
        with pytest.raises(ThrottledError) as caught:
            refused([line("y" * 500)])
        assert "log lines" in caught.value.message
    logs.gate.set()
    for future in futures:
        future.result(30)
    committer.close()
    assert logs.sizes == [1, 3]
    with pytest.raises(UnavailableError):
        committer.append([line("late")], Retention())


def test_a_store_that_fails_acknowledges_nothing(house):
    def fail(*_: Any) -> None:
        raise UnavailableError("the disk is full")

    house.store.logs.append = fail
    with pytest.raises(UnavailableError):
        house.pipeline.submit_logs([line()], WRITER)
    assert house.is_empty()
