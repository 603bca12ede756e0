"""Tests of the ingest pipeline: accepted data, refusals, and the absence of side effects of a refusal."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
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
from jobmeter.ingest.commit import SampleCommitter
from jobmeter.ingest.observe import Observer
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.job import JobFilter
from jobmeter.model.log import LogLine
from jobmeter.model.record import EventRecord, JobRecord, NodeRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, SECOND, TimeRange
from jobmeter.registry.open import open_registry
from jobmeter.settings import Limits
from jobmeter.store.base import ReadBudget
from jobmeter.wire.native.encode import make_records_frame
from jobmeter.wire.native.logs import make_logs_frame

USAGE = Series("cpu.usage", job="j1", replica="worker-0", node="n1")
ALL = TimeRange(0, MAX_TIME_MS)
KEEP = Retention()


@dataclass
class House:
    store: MemoryStore
    registry: FakeRegistry
    clock: SetClock
    pipeline: IngestPipeline

    def stored(self, series: Series = USAGE) -> dict[int, float]:
        found: dict[int, float] = {}
        for block in self.store.read(SeriesKeys.from_series([series]), ALL, ReadBudget()):
            found.update(zip(block.time.tolist(), block.value.tolist(), strict=True))
        return found

    def is_empty(self) -> bool:
        rows = self.store.read_statistics().rows
        return not any(rows.values()) and not self.registry.observations and not self.registry.recorded


@pytest.fixture
def house() -> Iterator[House]:
    store, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    pipeline = IngestPipeline(store, registry, clock, Limits(request_series=50, project_series=100))
    yield House(store, registry, clock, pipeline)
    pipeline.close()


def batch(*rows: tuple[Series, int, float]) -> SampleBatch:
    series = list(dict.fromkeys(row[0] for row in rows))
    return SampleBatch(
        series,
        np.array([series.index(row[0]) for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.float64),
    )


def test_samples_are_stored_and_reported(house):
    receipt = house.pipeline.submit_samples(batch((USAGE, NOW - 2_000, 1.0), (USAGE, NOW - 1_000, 2.0)), WRITER)
    assert (receipt.accepted, receipt.records, receipt.rejected) == (2, 0, {})
    assert house.stored() == {NOW - 2_000: 1.0, NOW - 1_000: 2.0}
    (observed,) = house.registry.observations
    assert (observed.project, observed.job, observed.replica, observed.node) == ("default", "j1", "worker-0", "n1")
    assert (observed.first_ms, observed.last_ms) == (NOW - 2_000, NOW - 1_000)


def test_the_last_write_wins_within_and_between_requests(house):
    house.pipeline.submit_samples(batch((USAGE, NOW, 1.0), (USAGE, NOW, 2.0)), WRITER)
    assert house.stored() == {NOW: 2.0}
    house.pipeline.submit_samples(batch((USAGE, NOW, 3.0)), WRITER)
    assert house.stored() == {NOW: 3.0}


def test_a_series_that_a_batch_lists_twice_is_one(house):
    twice = SampleBatch(
        [USAGE, USAGE], np.array([1, 0], np.uint32), np.array([NOW, NOW], np.int64), np.array([1.0, 2.0])
    )
    house.pipeline.submit_samples(twice, WRITER)
    assert house.stored() == {NOW: 2.0}


@pytest.mark.parametrize(
    ("row", "field", "words"),
    [
        pytest.param((Series("", job="j"), NOW, 1.0), "metric", "", id="empty metric"),
        pytest.param((Series("cpu.usage", job="j/k"), NOW, 1.0), "job_id", "j/k", id="job id"),
        pytest.param((Series("cpu.usage", node="\x1b[2J"), NOW, 1.0), "node", "node", id="control characters"),
        pytest.param((Series("cpu.usage", project="a b"), NOW, 1.0), "project", "a b", id="project"),
        pytest.param((Series("cpu.usage", attempt=-1), NOW, 1.0), "attempt", "-1", id="attempt"),
        pytest.param((Series("cpu.usage", labels=(("b", "1"), ("a", "1"))), NOW, 1.0), "labels", "sorted", id="order"),
        pytest.param(
            (Series("cpu.usage", labels=tuple((f"l{n:02}", "v") for n in range(33))), NOW, 1.0),
            "labels",
            "32",
            id="labels",
        ),
        pytest.param((USAGE, -1, 1.0), "time", "-1", id="negative time"),
        pytest.param((USAGE, NOW * 1_000, 1.0), "time", "2100", id="microseconds"),
        pytest.param((USAGE, NOW, float("nan")), "value", "finite", id="NaN"),
        pytest.param((USAGE, NOW, float("inf")), "value", "finite", id="infinity"),
        pytest.param((USAGE, NOW, -0.5), "value", "'{core}'", id="below the minimum"),
        pytest.param((Series("gpu.utilization", job="j"), NOW, 95.0), "value", "gpu.utilization 95.0", id="percent"),
        pytest.param((Series("memory.utilization", job="j"), NOW, -0.06), "value", "[-0.05, 1.5]", id="bounds"),
    ],
)
def test_bad_samples_are_refused_whole_by_field(house, row, field, words):
    with pytest.raises(InvalidRequestError) as caught:
        house.pipeline.submit_samples(batch((USAGE, NOW, 1.0), row), WRITER)
    assert caught.value.field == field
    assert words in caught.value.message
    assert house.is_empty()


@pytest.mark.parametrize(
    ("columns", "field"), [(([3], [NOW], [1.0]), "series"), (([0, 0], [NOW], [1.0]), "value")], ids=["index", "lengths"]
)
def test_columns_that_do_not_fit_are_refused(house, columns, field):
    index, time, value = columns
    odd = SampleBatch([USAGE], np.array(index, np.uint32), np.array(time, np.int64), np.array(value))
    with pytest.raises(InvalidRequestError) as caught:
        house.pipeline.submit_samples(odd, WRITER)
    assert caught.value.field == field
    assert house.is_empty()


def test_series_are_limited_by_request(house):
    rows = [(Series("cpu.usage", job=f"j{n}"), NOW, 1.0) for n in range(51)]
    with pytest.raises(LimitExceededError) as caught:
        house.pipeline.submit_samples(batch(*rows), WRITER)
    assert caught.value.field == "series"
    assert house.is_empty()


def test_series_are_limited_by_project(house):
    for part in range(2):
        house.pipeline.submit_samples(
            batch(*((Series("cpu.usage", job=f"j{part}-{n}"), NOW, 1.0) for n in range(50))), WRITER
        )
    with pytest.raises(LimitExceededError) as caught:
        house.pipeline.submit_samples(batch((Series("cpu.usage", job="one-more"), NOW, 1.0)), WRITER)
    assert caught.value.field == "project"
    house.pipeline.submit_samples(batch((Series("cpu.usage", project="other", job="j"), NOW, 1.0)), WRITER)
    house.clock.time_ms += 3 * HOUR
    house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.clock.time_ms += 3 * HOUR
    house.pipeline.submit_samples(batch((Series("cpu.usage", job="one-more"), NOW, 1.0)), WRITER)


def test_metrics_that_nobody_knows_are_counted_and_named_and_the_rest_is_stored(house):
    rows = [
        (Series("cpu.usages", job="j1"), NOW, 1.0),
        (USAGE, NOW, 2.0),
        (Series("app.", job="other", project="p2"), NOW, -1.0),
        (Series("cpu.usages", job="j1"), NOW + 1, 1.0),
    ]
    for _ in range(2):
        receipt = house.pipeline.submit_samples(batch(*rows), WRITER)
        assert (receipt.accepted, receipt.rejected) == (1, {"unknown_metric": 3})
        assert receipt.unknown == ("cpu.usages", "app.")
    assert house.stored() == {NOW: 2.0}
    assert {observed.job for observed in house.registry.observations} == {"j1"}


def test_names_of_unknown_metrics_in_a_receipt_are_few(house):
    receipt = house.pipeline.submit_samples(
        batch(*((Series(f"new.m{n}", job="j"), NOW, 1.0) for n in range(40))), WRITER
    )
    assert (receipt.accepted, receipt.rejected) == (0, {"unknown_metric": 40})
    assert len(receipt.unknown) == 16


def test_the_far_future_and_the_expired_past_are_counted_out(house):
    house.registry.retentions["default"] = Retention(raw_days=2)
    rows = [
        (USAGE, NOW + 300 * SECOND, 1.0),
        (USAGE, NOW + 300 * SECOND + 1, 2.0),
        (USAGE, NOW - 2 * DAY, 3.0),
        (USAGE, NOW - 2 * DAY - 1, 4.0),
        (Series("cpu.usage", job="only-old"), NOW - 9 * DAY, 5.0),
    ]
    receipt = house.pipeline.submit_samples(batch(*rows), WRITER)
    assert (receipt.accepted, receipt.rejected) == (2, {"future": 1, "expired": 2})
    assert house.stored() == {NOW + 300 * SECOND: 1.0, NOW - 2 * DAY: 3.0}
    assert {observed.job for observed in house.registry.observations} == {"j1"}


def test_each_project_has_its_own_retention(house):
    house.registry.retentions["long"] = Retention(raw_days=100)
    rows = [(Series("cpu.usage", project=name, job="j"), NOW - 50 * DAY, 1.0) for name in ("default", "long")]
    receipt = house.pipeline.submit_samples(batch(*rows), WRITER)
    assert (receipt.accepted, receipt.rejected) == (1, {"expired": 1})
    assert house.stored(rows[1][0]) == {NOW - 50 * DAY: 1.0}


@pytest.mark.parametrize(
    "principal",
    [
        Principal(id="k", name="r", role=Role.READER),
        Principal(id="k", name="w", role=Role.WRITER, project="other"),
        Principal(id="k", name="s", role=Role.READER, project="default", job="j1"),
    ],
    ids=["reader", "another project", "share token"],
)
def test_who_may_not_write_leaves_nothing(house, principal):
    with pytest.raises(ForbiddenError):
        house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), principal)
    with pytest.raises(ForbiddenError):
        house.pipeline.submit_records(Records(jobs=[JobRecord(job_id="j", project="default")]), principal)
    assert house.is_empty()


def test_a_key_without_a_project_may_name_any(house):
    records = Records(
        jobs=[JobRecord(job_id="a"), JobRecord(job_id="b", project="team")], nodes=[NodeRecord(name="n1")]
    )
    assert house.pipeline.submit_records(records, WRITER) == 3
    observed = {
        project: ([job.job_id for job in part.jobs], len(part.nodes)) for project, part in house.registry.recorded
    }
    assert observed == {"default": (["a"], 1), "team": (["b"], 0)}


def test_a_body_is_taken_whole_or_not_at_all(house):
    good = write.frame(write.payload([(USAGE, [(NOW, 1.0)])]), codec=2)
    record = write.frame(b'{"jobs":[{"job_id":"j1"}]}', kind=2)
    bad = write.frame(write.payload([(USAGE, [(NOW + 1, float("nan"))])]))
    forbidden = write.frame(b'{"jobs":[{"job_id":"j1","project":"b b"}]}', kind=2)
    for body in (good + record + bad, bad + good, good + forbidden, good + record + b"JM"):
        with pytest.raises(InvalidRequestError):
            house.pipeline.submit(body, WRITER).wait()
        assert house.is_empty()
    receipt = house.pipeline.submit(good + record, WRITER).wait()
    assert (receipt.accepted, receipt.records) == (1, 1)
    assert house.stored() == {NOW: 1.0}


def test_events_go_to_their_projects(house):
    events = [EventRecord(time=NOW, job="j", project=project, reason=project) for project in ("a", "", "a")]
    records = Records(jobs=[JobRecord(job_id="j", project="b")], events=events)
    assert house.pipeline.submit_records(records, WRITER) == 4
    observed = {project: [event.reason for event in group.events] for project, group in house.registry.recorded}
    assert observed == {"a": ["a", "a"], "default": [""], "b": []}


def test_an_event_of_another_project_is_refused_with_all_the_rest(house):
    stranger = Principal(id="k", name="k", role=Role.WRITER, project="a")
    records = Records(jobs=[JobRecord(job_id="j")], events=[EventRecord(time=NOW, job="j", project="b")])
    with pytest.raises(ForbiddenError):
        house.pipeline.submit_records(records, stranger)
    assert house.registry.recorded == []


def test_a_later_frame_wins_over_an_earlier_one(house):
    body = b"".join(write.frame(write.payload([(USAGE, [(NOW, value)])])) for value in (1.0, 2.0, 3.0))
    house.pipeline.submit(body, WRITER).wait()
    assert house.stored() == {NOW: 3.0}


def test_a_project_key_writes_to_its_project(house):
    key = Principal(id="k", name="w", role=Role.WRITER, project="team")
    unnamed = write.payload([(Series("cpu.usage", project="", job="j"), [(NOW, 1.0)])])
    house.pipeline.submit(write.frame(unnamed), key).wait()
    assert house.stored(Series("cpu.usage", project="team", job="j")) == {NOW: 1.0}


def test_what_goes_on_is_reported_when_it_went_on_noticeably_or_the_line_is_quiet():
    registry, clock = FakeRegistry(), SetClock()
    observer = Observer(registry, clock, SeriesTable())
    for second in range(25):
        clock.time_ms = NOW + second * SECOND
        observer.observe_all([batch((USAGE, clock.time_ms, 1.0))])
    assert [(observation.first_ms - NOW, observation.last_ms - NOW) for observation in registry.observations] == [
        (0, 0),
        (10_000, 10_000),
        (20_000, 20_000),
    ]
    observer.flush()
    assert registry.observations[-1].last_ms == NOW + 24 * SECOND
    observer.flush()
    assert len(registry.observations) == 4


def test_a_flush_that_fails_is_made_up_for():
    registry, clock = FakeRegistry(), SetClock()
    observer = Observer(registry, clock, SeriesTable())
    observer.observe_all([batch((USAGE, NOW, 1.0))])
    observer.observe_all([batch((USAGE, NOW + 1, 1.0))])
    registry.failure = UnavailableError("the registry is away")
    with pytest.raises(UnavailableError):
        observer.flush()
    registry.failure = None
    observer.flush()
    assert registry.observations[-1].last_ms == NOW + 1


def test_closing_reports_what_waits(house):
    house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.pipeline.submit_samples(batch((USAGE, NOW + 1, 1.0)), WRITER)
    house.pipeline.close()
    assert house.registry.observations[-1].last_ms == NOW + 1


def test_the_past_is_reported_exactly(house):
    old = NOW - 3 * HOUR
    for moment in (old, old + 1, old + 2, old - 5):
        house.pipeline.submit_samples(batch((USAGE, moment, 1.0)), WRITER)
    assert min(observation.first_ms for observation in house.registry.observations) == old - 5
    assert max(observation.last_ms for observation in house.registry.observations) == old + 2


def test_a_deleted_job_is_reported_again(house):
    house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.registry.observations.clear()
    house.pipeline.forget("default", "j1")
    house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), WRITER)
    assert [observation.job for observation in house.registry.observations] == ["j1"]


def test_a_registry_that_fails_is_not_acknowledged_and_hears_of_it_again(house):
    house.registry.failure = UnavailableError("the registry is away")
    with pytest.raises(UnavailableError):
        house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.registry.failure = None
    house.clock.time_ms += SECOND
    house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), WRITER)
    assert [observation.job for observation in house.registry.observations] == ["j1"]
    assert house.stored() == {NOW: 1.0}


def test_while_the_registry_is_away_cached_jobs_go_on_and_new_ones_are_refused(house):
    other = replace(USAGE, job="j2")
    house.pipeline.submit_samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.registry.observations.clear()
    house.registry.failure = UnavailableError("the registry is away")
    for step in range(1, 31):
        house.clock.time_ms += 10 * SECOND
        house.pipeline.submit_samples(batch((USAGE, NOW + step * 10 * SECOND, 1.0)), WRITER)
        with pytest.raises(UnavailableError):
            house.pipeline.submit_samples(batch((other, NOW + step * 10 * SECOND, 1.0)), WRITER)
    assert len(house.stored()) == 31
    assert not house.registry.observations
    house.registry.failure = None
    house.clock.time_ms += 10 * SECOND
    house.pipeline.submit_samples(batch((other, house.clock.time_ms, 1.0)), WRITER)
    observed = {
        observation.job: (observation.first_ms, observation.last_ms) for observation in house.registry.observations
    }
    # The first observation that gets through carries the waiting ones, without a quiet period.
    assert observed["j1"][1] == NOW + 300 * SECOND
    assert observed["j2"] == (house.clock.time_ms, house.clock.time_ms)


class GatedStore(MemoryStore):
    """Store that holds appends until the gate opens, and records their sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.sizes: list[int] = []
        self.failure: Exception | None = None

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = KEEP) -> None:
        self.entered.set()
        assert self.gate.wait(30)
        self.sizes.append(sum(map(len, batches)))
        if self.failure is not None and len(self.sizes) > 1:
            raise self.failure
        super().append_all(batches, retention)


def _append(committer: SampleCommitter, value: float) -> Future[None]:
    return committer.append(batch((USAGE, NOW, value)), Retention())


def _first(store: GatedStore, committer: SampleCommitter) -> Future[None]:
    future = _append(committer, 0.0)
    assert store.entered.wait(30)
    return future


def test_requests_that_arrive_while_an_append_runs_share_the_next_in_order():
    store = GatedStore()
    committer = SampleCommitter(store, lambda _: None, lambda: False)
    futures = [_first(store, committer), *(_append(committer, value) for value in (1.0, 2.0, 3.0))]
    store.gate.set()
    for future in futures:
        future.result(30)
    committer.close()
    assert store.sizes == [1, 3]
    (block,) = store.read(SeriesKeys.from_series([USAGE]), ALL, ReadBudget())
    assert block.value.tolist() == [3.0]


def test_requests_are_committed_after_an_unexpected_error_in_between(caplog):
    failed = threading.Event()

    def idle() -> bool:
        failed.set()
        raise ValueError("a bug")

    committer = SampleCommitter(MemoryStore(), lambda _: None, idle)
    _append(committer, 1.0).result(30)
    assert failed.wait(30)
    _append(committer, 2.0).result(30)
    committer.close()
    assert "a bug" in caplog.text


def test_a_joined_append_that_fails_fails_for_all_its_members():
    store = GatedStore()
    store.failure = UnavailableError("the disk is full")
    committer = SampleCommitter(store, lambda _: None, lambda: False)
    first, *others = [_first(store, committer), *(_append(committer, value) for value in (1.0, 2.0))]
    store.gate.set()
    first.result(30)
    for future in others:
        with pytest.raises(UnavailableError, match="the disk is full"):
            future.result(30)
    committer.close()


class PartStore(GatedStore):
    """Store that refuses batches with a value of 1, as if their shard were away."""

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = KEEP) -> None:
        super().append_all(batches, retention)
        if any(1.0 in batch.value for batch in batches):
            raise UnavailableError("shard 2 of 2: its servers do not answer", is_partial=True)


def test_of_a_joined_append_only_the_members_that_need_the_missing_part_fail():
    store = PartStore()
    committer = SampleCommitter(store, lambda _: None, lambda: False)
    futures = [_first(store, committer), *(_append(committer, value) for value in (1.0, 2.0, 1.0, 3.0))]
    store.gate.set()
    assert [type(future.exception(30)) for future in futures] == [
        type(None),
        UnavailableError,
        type(None),
        UnavailableError,
        type(None),
    ]
    committer.close()
    assert store.sizes == [1, 4, 1, 1, 1, 1]


def test_a_full_queue_throttles_and_closing_drains_it():
    store = GatedStore()
    committer = SampleCommitter(store, lambda _: None, lambda: False, queue_bytes=1_000)
    futures = [_first(store, committer), _append(committer, 1.0)]
    with pytest.raises(ThrottledError) as caught:
        _append(committer, 2.0)
    assert caught.value.retry_after_ms > 0
    closer = threading.Thread(target=committer.close)
    closer.start()
    store.gate.set()
    for future in futures:
        future.result(30)
    closer.join()
    assert store.sizes == [1, 1]
    with pytest.raises(UnavailableError):
        _append(committer, 3.0)


def test_records_are_limited_by_request(house):
    pipeline = IngestPipeline(house.store, house.registry, SetClock(), Limits(request_records=3))
    jobs = [JobRecord(job_id=f"j{number}") for number in range(4)]
    with pytest.raises(LimitExceededError, match="JOBMETER_LIMIT_REQUEST_RECORDS") as refused:
        pipeline.submit_records(Records(jobs=jobs), WRITER)
    assert refused.value.field == "records"
    frames = make_records_frame(Records(jobs=jobs[:2])) + make_records_frame(Records(jobs=jobs[2:]))
    with pytest.raises(LimitExceededError):
        pipeline.submit(frames, WRITER).wait()
    assert pipeline.submit_records(Records(jobs=jobs[:3]), WRITER) == 3
    pipeline.close()


@pytest.mark.parametrize("split", ["frames", "projects"])
@pytest.mark.parametrize("wrong", ["job", "allocation", "event"])
def test_of_a_request_with_a_wrong_record_nothing_is_stored_wherever_it_stands(tmp_path, split, wrong):
    store, clock = MemoryStore(), SetClock()
    good = {"jobs": [{"job_id": "good", "project": "a"}], "nodes": [{"name": "n"}]}
    project = "a" if split == "frames" else "b"
    bad: dict[str, Any] = {"jobs": [{"job_id": "bad", "project": project}]}
    if wrong == "job":
        bad["jobs"][0]["start"] = "no time"
    elif wrong == "allocation":
        times = {"start": NOW, "end": NOW - 1}
        bad["jobs"][0]["allocations"] = [{"replica": "worker-0", "node": "n", "device": "gpu0", **times}]
    else:
        bad["events"] = [{"job": "bad", "project": project, "reason": "R", "time": "no time"}]
    parts = [write.records(good), write.records(bad)]
    if split == "projects":
        parts = [write.records({name: good.get(name, []) + bad.get(name, []) for name in (*good, *bad)})]
    body = b"".join([write.samples([write.row("app.number", [(NOW, 1.0)], job="good", project="a")]), *parts])
    with (
        closing(open_registry(f"sqlite:///{tmp_path / 'registry.db'}", Retention())) as registry,
        closing(IngestPipeline(store, registry, clock, Limits())) as pipeline,
    ):
        with pytest.raises(InvalidRequestError):
            pipeline.submit(body, WRITER).wait()
        assert registry.list_jobs(JobFilter(), NOW).total == 0
        assert not any(store.read_statistics().rows.values())


def test_a_request_that_was_stored_in_part_is_sent_again_and_all_of_it_counts_once():
    class Failing(MemoryLogs):
        fails = True

        def append(self, lines, retention=KEEP):
            if self.fails:
                raise UnavailableError("the disk is full")
            super().append(lines, retention)

    store = MemoryStore()
    store.logs = logs = Failing()
    lines = [LogLine(time_ns=NOW * 1_000_000, text="epoch 1", job="j1", replica="worker-0")]
    body = write.samples([(USAGE, [(NOW, 1.0)])]) + make_logs_frame(lines)
    with closing(IngestPipeline(store, FakeRegistry(), SetClock(), Limits())) as pipeline:
        with pytest.raises(UnavailableError, match="the disk is full"):
            pipeline.submit(body, WRITER).wait()
        logs.fails = False
        receipt = pipeline.submit(body, WRITER).wait()
    assert (receipt.accepted, receipt.lines) == (1, 1)
    assert (store.read_statistics().rows["samples"], store.read_statistics().rows["logs"]) == (1, 1)
