"""What the funnel takes, what it refuses and how, and that a refusal leaves nothing behind."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests import frames as write
from tests.fakes import NOW, WRITER, FakeRegistry, SetClock

from jobmeter.access.principal import Principal, Role
from jobmeter.errors import (
    ForbiddenError,
    InvalidRequestError,
    LimitExceededError,
    ThrottledError,
    UnavailableError,
)
from jobmeter.ingest.commit import Committer
from jobmeter.ingest.funnel import Funnel
from jobmeter.ingest.observe import Observer
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.record import EventRecord, JobRecord, NodeRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, SECOND, TimeRange
from jobmeter.settings import Limits
from jobmeter.store.base import ReadBudget
from jobmeter.store.memory import MemoryStore
from jobmeter.wire.native.encode import records_frame

USAGE = Series("cpu.usage", job="j1", replica="worker-0", node="n1")
ALL = TimeRange(0, MAX_TIME_MS)
KEEP = Retention()


@dataclass
class House:
    store: MemoryStore
    registry: FakeRegistry
    clock: SetClock
    funnel: Funnel

    def stored(self, series: Series = USAGE) -> dict[int, float]:
        found: dict[int, float] = {}
        for block in self.store.read(SeriesKeys.of([series]), ALL, ReadBudget()):
            found.update(zip(block.time.tolist(), block.value.tolist(), strict=True))
        return found

    def is_empty(self) -> bool:
        rows = self.store.statistics().rows
        return not any(rows.values()) and not self.registry.observations and not self.registry.recorded


@pytest.fixture
def house() -> Iterator[House]:
    store, registry, clock = MemoryStore(), FakeRegistry(), SetClock()
    funnel = Funnel(store, registry, clock, Limits(request_series=50, project_series=100))
    yield House(store, registry, clock, funnel)
    funnel.close()


def batch(*rows: tuple[Series, int, float]) -> SampleBatch:
    series = list(dict.fromkeys(row[0] for row in rows))
    return SampleBatch(
        series,
        np.array([series.index(row[0]) for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.float64),
    )


def test_samples_are_kept_and_told(house):
    receipt = house.funnel.samples(batch((USAGE, NOW - 2_000, 1.0), (USAGE, NOW - 1_000, 2.0)), WRITER)
    assert (receipt.accepted, receipt.records, receipt.rejected) == (2, 0, {})
    assert house.stored() == {NOW - 2_000: 1.0, NOW - 1_000: 2.0}
    (told,) = house.registry.observations
    assert (told.project, told.job, told.replica, told.node) == ("default", "j1", "worker-0", "n1")
    assert (told.first_ms, told.last_ms) == (NOW - 2_000, NOW - 1_000)


def test_the_last_write_wins_within_and_between_requests(house):
    house.funnel.samples(batch((USAGE, NOW, 1.0), (USAGE, NOW, 2.0)), WRITER)
    assert house.stored() == {NOW: 2.0}
    house.funnel.samples(batch((USAGE, NOW, 3.0)), WRITER)
    assert house.stored() == {NOW: 3.0}


def test_a_series_that_a_batch_lists_twice_is_one(house):
    twice = SampleBatch(
        [USAGE, USAGE], np.array([1, 0], np.uint32), np.array([NOW, NOW], np.int64), np.array([1.0, 2.0])
    )
    house.funnel.samples(twice, WRITER)
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
        house.funnel.samples(batch((USAGE, NOW, 1.0), row), WRITER)
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
        house.funnel.samples(odd, WRITER)
    assert caught.value.field == field
    assert house.is_empty()


def test_series_are_limited_by_request(house):
    rows = [(Series("cpu.usage", job=f"j{n}"), NOW, 1.0) for n in range(51)]
    with pytest.raises(LimitExceededError) as caught:
        house.funnel.samples(batch(*rows), WRITER)
    assert caught.value.field == "series"
    assert house.is_empty()


def test_series_are_limited_by_project(house):
    for part in range(2):
        house.funnel.samples(batch(*((Series("cpu.usage", job=f"j{part}-{n}"), NOW, 1.0) for n in range(50))), WRITER)
    with pytest.raises(LimitExceededError) as caught:
        house.funnel.samples(batch((Series("cpu.usage", job="one-more"), NOW, 1.0)), WRITER)
    assert caught.value.field == "project"
    house.funnel.samples(batch((Series("cpu.usage", project="other", job="j"), NOW, 1.0)), WRITER)
    house.clock.time_ms += 3 * HOUR
    house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.clock.time_ms += 3 * HOUR
    house.funnel.samples(batch((Series("cpu.usage", job="one-more"), NOW, 1.0)), WRITER)


def test_metrics_that_nobody_knows_are_counted_and_named_and_the_rest_is_kept(house):
    rows = [
        (Series("cpu.usages", job="j1"), NOW, 1.0),
        (USAGE, NOW, 2.0),
        (Series("app.", job="other", project="p2"), NOW, -1.0),
        (Series("cpu.usages", job="j1"), NOW + 1, 1.0),
    ]
    for _ in range(2):
        receipt = house.funnel.samples(batch(*rows), WRITER)
        assert (receipt.accepted, receipt.rejected) == (1, {"unknown_metric": 3})
        assert receipt.unknown == ("cpu.usages", "app.")
    assert house.stored() == {NOW: 2.0}
    assert {told.job for told in house.registry.observations} == {"j1"}


def test_names_of_unknown_metrics_in_a_receipt_are_few(house):
    receipt = house.funnel.samples(batch(*((Series(f"new.m{n}", job="j"), NOW, 1.0) for n in range(40))), WRITER)
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
    receipt = house.funnel.samples(batch(*rows), WRITER)
    assert (receipt.accepted, receipt.rejected) == (2, {"future": 1, "expired": 2})
    assert house.stored() == {NOW + 300 * SECOND: 1.0, NOW - 2 * DAY: 3.0}
    assert {told.job for told in house.registry.observations} == {"j1"}


def test_each_project_has_its_own_retention(house):
    house.registry.retentions["long"] = Retention(raw_days=100)
    rows = [(Series("cpu.usage", project=name, job="j"), NOW - 50 * DAY, 1.0) for name in ("default", "long")]
    receipt = house.funnel.samples(batch(*rows), WRITER)
    assert (receipt.accepted, receipt.rejected) == (1, {"expired": 1})
    assert house.stored(rows[1][0]) == {NOW - 50 * DAY: 1.0}


def test_a_new_retention_is_noticed_within_a_second(house):
    old = (USAGE, NOW - 50 * DAY, 1.0)
    assert house.funnel.samples(batch(old), WRITER).rejected == {"expired": 1}
    house.registry.retentions["default"] = Retention(raw_days=100)
    house.clock.time_ms += SECOND
    assert house.funnel.samples(batch(old), WRITER).accepted == 1


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
        house.funnel.samples(batch((USAGE, NOW, 1.0)), principal)
    with pytest.raises(ForbiddenError):
        house.funnel.records(Records(jobs=[JobRecord(job_id="j", project="default")]), principal)
    assert house.is_empty()


def test_a_key_without_a_project_may_name_any(house):
    records = Records(
        jobs=[JobRecord(job_id="a"), JobRecord(job_id="b", project="team")], nodes=[NodeRecord(name="n1")]
    )
    assert house.funnel.records(records, WRITER) == 3
    told = {project: ([job.job_id for job in part.jobs], len(part.nodes)) for project, part in house.registry.recorded}
    assert told == {"default": (["a"], 1), "team": (["b"], 0)}


def test_a_body_is_taken_whole_or_not_at_all(house):
    good = write.frame(write.payload([(USAGE, [(NOW, 1.0)])]), codec=2)
    record = write.frame(b'{"jobs":[{"job_id":"j1"}]}', kind=2)
    bad = write.frame(write.payload([(USAGE, [(NOW + 1, float("nan"))])]))
    forbidden = write.frame(b'{"jobs":[{"job_id":"j1","project":"b b"}]}', kind=2)
    for body in (good + record + bad, bad + good, good + forbidden, good + record + b"JM"):
        with pytest.raises(InvalidRequestError):
            house.funnel.submit(body, WRITER).wait()
        assert house.is_empty()
    receipt = house.funnel.submit(good + record, WRITER).wait()
    assert (receipt.accepted, receipt.records) == (1, 1)
    assert house.stored() == {NOW: 1.0}


def test_events_go_to_their_projects(house):
    events = [EventRecord(time=NOW, job="j", project=project, reason=project) for project in ("a", "", "a")]
    records = Records(jobs=[JobRecord(job_id="j", project="b")], events=events)
    assert house.funnel.records(records, WRITER) == 4
    told = {project: [event.reason for event in group.events] for project, group in house.registry.recorded}
    assert told == {"a": ["a", "a"], "default": [""], "b": []}


def test_an_event_of_another_project_is_refused_with_all_the_rest(house):
    stranger = Principal(id="k", name="k", role=Role.WRITER, project="a")
    records = Records(jobs=[JobRecord(job_id="j")], events=[EventRecord(time=NOW, job="j", project="b")])
    with pytest.raises(ForbiddenError):
        house.funnel.records(records, stranger)
    assert house.registry.recorded == []


def test_a_later_frame_wins_over_an_earlier_one(house):
    body = b"".join(write.frame(write.payload([(USAGE, [(NOW, value)])])) for value in (1.0, 2.0, 3.0))
    house.funnel.submit(body, WRITER).wait()
    assert house.stored() == {NOW: 3.0}


def test_a_project_key_writes_to_its_project(house):
    key = Principal(id="k", name="w", role=Role.WRITER, project="team")
    unnamed = write.payload([(Series("cpu.usage", project="", job="j"), [(NOW, 1.0)])])
    house.funnel.submit(write.frame(unnamed), key).wait()
    assert house.stored(Series("cpu.usage", project="team", job="j")) == {NOW: 1.0}


def test_what_goes_on_is_told_when_it_went_on_noticeably_or_the_line_is_quiet():
    registry, clock = FakeRegistry(), SetClock()
    observer = Observer(registry, clock)
    for second in range(25):
        clock.time_ms = NOW + second * SECOND
        observer.observe(batch((USAGE, clock.time_ms, 1.0)))
    assert [(seen.first_ms - NOW, seen.last_ms - NOW) for seen in registry.observations] == [
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
    observer = Observer(registry, clock)
    observer.observe(batch((USAGE, NOW, 1.0)))
    observer.observe(batch((USAGE, NOW + 1, 1.0)))
    registry.failure = UnavailableError("the registry is away")
    with pytest.raises(UnavailableError):
        observer.flush()
    registry.failure = None
    observer.flush()
    assert registry.observations[-1].last_ms == NOW + 1


def test_closing_tells_what_waits(house):
    house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.funnel.samples(batch((USAGE, NOW + 1, 1.0)), WRITER)
    house.funnel.close()
    assert house.registry.observations[-1].last_ms == NOW + 1


def test_the_past_is_told_exactly(house):
    old = NOW - 3 * HOUR
    for moment in (old, old + 1, old + 2, old - 5):
        house.funnel.samples(batch((USAGE, moment, 1.0)), WRITER)
    assert min(seen.first_ms for seen in house.registry.observations) == old - 5
    assert max(seen.last_ms for seen in house.registry.observations) == old + 2


def test_a_deleted_job_is_told_again(house):
    house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.registry.observations.clear()
    house.funnel.forget("default", "j1")
    house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    assert [seen.job for seen in house.registry.observations] == ["j1"]


def test_a_registry_that_fails_is_not_acknowledged_and_hears_of_it_again(house):
    house.registry.failure = UnavailableError("the registry is away")
    with pytest.raises(UnavailableError):
        house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.registry.failure = None
    house.clock.time_ms += SECOND
    house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    assert [seen.job for seen in house.registry.observations] == ["j1"]
    assert house.stored() == {NOW: 1.0}


def test_while_the_registry_is_away_known_jobs_go_on_and_new_ones_are_refused(house):
    other = replace(USAGE, job="j2")
    house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.registry.observations.clear()
    house.registry.failure = UnavailableError("the registry is away")
    for step in range(1, 31):
        house.clock.time_ms += 10 * SECOND
        house.funnel.samples(batch((USAGE, NOW + step * 10 * SECOND, 1.0)), WRITER)
        with pytest.raises(UnavailableError):
            house.funnel.samples(batch((other, NOW + step * 10 * SECOND, 1.0)), WRITER)
    assert len(house.stored()) == 31
    assert not house.registry.observations
    house.registry.failure = None
    house.clock.time_ms += 10 * SECOND
    house.funnel.samples(batch((other, house.clock.time_ms, 1.0)), WRITER)
    told = {seen.job: (seen.first_ms, seen.last_ms) for seen in house.registry.observations}
    # What waited is told with the first that gets through, not when it is quiet.
    assert told["j1"][1] == NOW + 300 * SECOND
    assert told["j2"] == (house.clock.time_ms, house.clock.time_ms)


def test_the_retention_of_a_project_is_what_it_was_while_the_registry_is_away(house):
    house.registry.retentions["default"] = Retention(raw_days=3)
    house.funnel.samples(batch((USAGE, NOW, 1.0)), WRITER)
    house.registry.failure = UnavailableError("the registry is away")
    house.clock.time_ms += 60 * SECOND
    receipt = house.funnel.samples(batch((USAGE, NOW - 4 * DAY, 1.0), (USAGE, NOW + 1, 1.0)), WRITER)
    assert (receipt.accepted, receipt.rejected) == (1, {"expired": 1})


class GatedStore(MemoryStore):
    """Holds appends until it is told to go on, and notes their sizes."""

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


def _senders(committer: Committer, values: list[float], errors: list[UnavailableError]) -> list[threading.Thread]:
    """One thread for each value, each waiting in the queue before the next starts."""
    threads = []
    for value in values:

        def send(value: float = value) -> None:
            try:
                committer.append(batch((USAGE, NOW, value)), Retention())
            except UnavailableError as error:
                errors.append(error)

        before = committer.waiting_bytes
        threads.append(threading.Thread(target=send))
        threads[-1].start()
        while committer.waiting_bytes == before:
            threading.Event().wait(0.001)
    return threads


def _first(store: GatedStore, committer: Committer) -> threading.Thread:
    thread = threading.Thread(target=committer.append, args=(batch((USAGE, NOW, 0.0)), Retention()))
    thread.start()
    assert store.entered.wait(30)
    return thread


def test_requests_that_arrive_while_an_append_runs_share_the_next_in_order():
    store = GatedStore()
    errors: list[UnavailableError] = []
    committer = Committer(store, lambda _: None, lambda: False)
    threads = [_first(store, committer), *_senders(committer, [1.0, 2.0, 3.0], errors)]
    store.gate.set()
    for thread in threads:
        thread.join()
    committer.close()
    assert store.sizes == [1, 3]
    assert errors == []
    (block,) = store.read(SeriesKeys.of([USAGE]), ALL, ReadBudget())
    assert block.value.tolist() == [3.0]


def test_a_joined_append_that_fails_fails_for_all_its_members():
    store = GatedStore()
    errors: list[UnavailableError] = []
    store.failure = UnavailableError("the disk is full")
    committer = Committer(store, lambda _: None, lambda: False)
    threads = [_first(store, committer), *_senders(committer, [1.0, 2.0], errors)]
    store.gate.set()
    for thread in threads:
        thread.join()
    committer.close()
    assert [error.message for error in errors] == ["the disk is full"] * 2


def test_a_full_queue_throttles_and_closing_drains_it():
    store = GatedStore()
    errors: list[UnavailableError] = []
    committer = Committer(store, lambda _: None, lambda: False, queue_bytes=1_000)
    threads = [_first(store, committer), *_senders(committer, [1.0], errors)]
    with pytest.raises(ThrottledError) as caught:
        committer.append(batch((USAGE, NOW, 2.0)), Retention())
    assert caught.value.retry_after_ms > 0
    closer = threading.Thread(target=committer.close)
    closer.start()
    store.gate.set()
    for thread in [*threads, closer]:
        thread.join()
    assert store.sizes == [1, 1]
    with pytest.raises(UnavailableError):
        committer.append(batch((USAGE, NOW, 3.0)), Retention())


def test_records_are_limited_by_request(house):
    funnel = Funnel(house.store, house.registry, SetClock(), Limits(request_records=3))
    jobs = [JobRecord(job_id=f"j{number}") for number in range(4)]
    with pytest.raises(LimitExceededError, match="JOBMETER_LIMIT_REQUEST_RECORDS") as refused:
        funnel.records(Records(jobs=jobs), WRITER)
    assert refused.value.field == "records"
    frames = records_frame(Records(jobs=jobs[:2])) + records_frame(Records(jobs=jobs[2:]))
    with pytest.raises(LimitExceededError):
        funnel.submit(frames, WRITER).wait()
    assert funnel.records(Records(jobs=jobs[:3]), WRITER) == 3
    funnel.close()
