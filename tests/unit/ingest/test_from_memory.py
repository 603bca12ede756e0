"""Tests of bodies taken on an event loop: the same result as on a thread, or no result; the loop never waits."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest
from tests.support import frames as write
from tests.support.fakes import NOW, WRITER, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore
from tests.support.waiting import turn, until

from jobmeter.errors import InvalidRequestError, ThrottledError, UnavailableError
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, MAX_TIME_MS, TimeRange
from jobmeter.settings import Limits
from jobmeter.store.base import ReadBudget

USAGE = Series("cpu.usage", job="j1", replica="worker-0", node="n1")
LIMIT = Series("cpu.limit", job="j1", replica="worker-0", node="n1")
ALL = TimeRange(0, MAX_TIME_MS)
KEEP = Retention()


class Store(MemoryStore):
    """Store that fails while ``failure`` is set, and records the number of batches in each group."""

    def __init__(self):
        super().__init__()
        self.failure: Exception | None = None
        self.groups: list[int] = []

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = KEEP) -> None:
        self.groups.append(len(batches))
        if self.failure is not None:
            raise self.failure
        super().append_all(batches, retention)

    def values(self, series: Series) -> dict[int, float]:
        blocks = self.read(SeriesKeys.from_series([series]), ALL, ReadBudget())
        return {time: value for block in blocks for time, value in zip(block.time.tolist(), block.value, strict=True)}


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def pipeline(store):
    pipeline = IngestPipeline(store, FakeRegistry(), SetClock(), Limits())
    yield pipeline
    pipeline.close()


def body(time_ms: int, value: float, *, codec: int = 0, series: Sequence[Series] = (USAGE, LIMIT)) -> bytes:
    return write.frame(write.payload([(one, [(time_ms, value)]) for one in series]), codec=codec)


def taken(pipeline: IngestPipeline, body: bytes) -> Awaitable[Receipt]:
    """Submit a body from memory, which must accept it."""
    pending = pipeline.submit_from_memory(body, WRITER)
    assert pending is not None
    return pending


def begun(pipeline: IngestPipeline, *bodies: bytes) -> list[Receipt]:
    async def all_of_them() -> list[Receipt]:
        return await asyncio.gather(*[taken(pipeline, one) for one in bodies])

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_a_list_of_series_that_came_before_needs_no_thread(pipeline, store, codec):
    pipeline.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    (receipt,) = begun(pipeline, body(NOW - 1_000, 2.0, codec=codec))
    assert receipt == Receipt(accepted=2)
    assert store.values(USAGE) == store.values(LIMIT) == {NOW - 2_000: 1.0, NOW - 1_000: 2.0}


def test_a_retention_that_is_about_to_expire_is_read_again_while_bodies_are_taken(store):
    registry = FakeRegistry()
    pipeline = IngestPipeline(store, registry, SetClock(), Limits())
    pipeline.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    registry.expiring.add("default")

    async def main():
        assert await taken(pipeline, body(NOW - 1_000, 2.0)) == Receipt(accepted=2)
        await until(lambda: not registry.expiring)

    asyncio.run(main())
    pipeline.close()


def test_new_series_or_records_are_left_to_a_worker_and_store_nothing(pipeline, store):
    pipeline.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    first_body = body(NOW - 1_000, 2.0)
    elsewhere = Series("cpu.usage", project="other", job="j1")
    mixed = body(NOW, 1.0, series=(USAGE, elsewhere))
    pipeline.submit(mixed, WRITER).wait()
    record = write.frame(b'{"jobs":[{"job_id":"j1"}]}', kind=2)
    new = body(NOW - 1_000, 2.0, series=(LIMIT, USAGE))
    late = body(NOW - 400 * DAY, 2.0)
    before = store.read_statistics().rows
    for one in (new, first_body + record, record + first_body, mixed, late):
        assert pipeline.submit_from_memory(one, WRITER) is None
    assert store.read_statistics().rows == before


def test_what_is_wrong_is_refused_as_on_a_thread(pipeline, store):
    pipeline.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    for bad in (body(NOW, float("nan")), body(-1, 1.0), body(NOW, 1.0)[:-1]):
        with pytest.raises(InvalidRequestError) as there:
            pipeline.submit(bad, WRITER).wait()
        with pytest.raises(InvalidRequestError) as here:
            begun(pipeline, bad)
        assert (here.value.field, here.value.message) == (there.value.field, there.value.message)
    assert store.values(USAGE) == {NOW - 2_000: 1.0}


def test_a_retention_that_is_not_in_memory_takes_a_thread(store, monkeypatch):
    registry = FakeRegistry()
    pipeline = IngestPipeline(store, registry, SetClock(), Limits())
    pipeline.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    monkeypatch.setattr(registry.memory, "get_retention", lambda _: None)
    assert pipeline.submit_from_memory(body(NOW, 1.0), WRITER) is None
    pipeline.close()


def test_a_store_that_fails_fails_for_all_who_wait_and_the_next_is_stored(pipeline, store):
    pipeline.submit(body(NOW - 9_000, 1.0), WRITER).wait()
    store.failure = UnavailableError("the disk is full")

    async def both():
        receipt_later = [taken(pipeline, body(NOW - n, 2.0)) for n in range(2)]
        return await asyncio.gather(*receipt_later, return_exceptions=True)

    assert [str(one) for one in asyncio.run(both())] == ["the disk is full"] * 2
    store.failure = None
    assert begun(pipeline, body(NOW, 3.0)) == [Receipt(accepted=2)]
    assert store.values(USAGE)[NOW] == 3.0


def test_bodies_sent_concurrently_are_committed_in_groups(pipeline, store):
    pipeline.submit(body(NOW - 9_000, 0.0), WRITER).wait()
    for again in range(5):
        assert len(begun(pipeline, *[body(NOW - 8_000 + 10 * again + n, 1.0) for n in range(8)])) == 8
    assert len(store.values(USAGE)) == 41
    assert sum(store.groups) == 41


def test_a_client_that_leaves_does_not_delay_the_rest_of_its_group(pipeline, store):
    pipeline.submit(body(NOW - 9_000, 0.0), WRITER).wait()

    async def one_leaves():
        leaving, staying = (asyncio.ensure_future(taken(pipeline, body(NOW - n, 1.0))) for n in range(2))
        await turn()
        leaving.cancel()
        return await staying

    assert asyncio.run(one_leaves()) == Receipt(accepted=2)


def test_a_full_queue_throttles(pipeline):
    pipeline.submit(body(NOW - 9_000, 0.0), WRITER).wait()
    pipeline.committer.queue_bytes = 1
    bodies = [body(NOW - n, 1.0) for n in range(50)]

    async def flood() -> int:
        receipt_later, refused = [], 0
        for one in bodies:
            try:
                receipt_later.append(asyncio.ensure_future(taken(pipeline, one)))
            except ThrottledError:
                refused += 1
        await asyncio.gather(*receipt_later)
        return refused + len(receipt_later)

    assert asyncio.run(flood()) == 50
