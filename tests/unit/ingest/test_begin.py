"""Bodies that are taken on an event loop: the same as on a thread, or not at all; the loop never waits."""

import asyncio
from collections.abc import Sequence

import pytest
from tests import frames as write
from tests.fakes import NOW, WRITER, FakeRegistry, SetClock
from tests.waiting import turn

from jobmeter.errors import InvalidRequestError, NotAtOnceError, ThrottledError, UnavailableError
from jobmeter.ingest.funnel import Funnel
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, MAX_TIME_MS, TimeRange
from jobmeter.settings import Limits
from jobmeter.store.base import ReadBudget
from jobmeter.store.memory import MemoryStore

USAGE = Series("cpu.usage", job="j1", replica="worker-0", node="n1")
LIMIT = Series("cpu.limit", job="j1", replica="worker-0", node="n1")
ALL = TimeRange(0, MAX_TIME_MS)
KEEP = Retention()


class Store(MemoryStore):
    """Fails when it is told to, and remembers how many batches came together."""

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
        blocks = self.read(SeriesKeys.of([series]), ALL, ReadBudget())
        return {time: value for block in blocks for time, value in zip(block.time.tolist(), block.value, strict=True)}


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def funnel(store):
    funnel = Funnel(store, FakeRegistry(), SetClock(), Limits())
    yield funnel
    funnel.close()


def body(time_ms: int, value: float, *, codec: int = 0, series: Sequence[Series] = (USAGE, LIMIT)) -> bytes:
    return write.frame(write.payload([(one, [(time_ms, value)]) for one in series]), codec=codec)


def begun(funnel: Funnel, *bodies: bytes) -> list[Receipt]:
    async def all_of_them() -> list[Receipt]:
        return await asyncio.gather(*[funnel.begin(one, WRITER) for one in bodies])

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_a_list_of_series_that_came_before_needs_no_thread(funnel, store, codec):
    funnel.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    (receipt,) = begun(funnel, body(NOW - 1_000, 2.0, codec=codec))
    assert receipt == Receipt(accepted=2)
    assert store.values(USAGE) == store.values(LIMIT) == {NOW - 2_000: 1.0, NOW - 1_000: 2.0}


def test_whatever_is_new_or_more_takes_a_thread_and_nothing_of_it_is_kept(funnel, store):
    funnel.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    known = body(NOW - 1_000, 2.0)
    elsewhere = Series("cpu.usage", project="other", job="j1")
    mixed = body(NOW, 1.0, series=(USAGE, elsewhere))
    funnel.submit(mixed, WRITER).wait()
    record = write.frame(b'{"jobs":[{"job_id":"j1"}]}', kind=2)
    new = body(NOW - 1_000, 2.0, series=(LIMIT, USAGE))
    late = body(NOW - 400 * DAY, 2.0)
    before = store.statistics().rows
    for one in (new, known + record, record + known, mixed, late):
        with pytest.raises(NotAtOnceError):
            begun(funnel, one)
    assert store.statistics().rows == before


def test_what_is_wrong_is_refused_as_on_a_thread(funnel, store):
    funnel.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    for bad in (body(NOW, float("nan")), body(-1, 1.0), body(NOW, 1.0)[:-1]):
        with pytest.raises(InvalidRequestError) as there:
            funnel.submit(bad, WRITER).wait()
        with pytest.raises(InvalidRequestError) as here:
            begun(funnel, bad)
        assert (here.value.field, here.value.message) == (there.value.field, there.value.message)
    assert store.values(USAGE) == {NOW - 2_000: 1.0}


def test_retention_that_was_not_asked_for_lately_takes_a_thread(store):
    clock = SetClock()
    funnel = Funnel(store, FakeRegistry(), clock, Limits())
    funnel.submit(body(NOW - 2_000, 1.0), WRITER).wait()
    clock.time_ms += 5_000
    with pytest.raises(NotAtOnceError):
        begun(funnel, body(NOW, 1.0))
    funnel.close()


def test_a_store_that_fails_fails_for_all_who_wait_and_the_next_is_kept(funnel, store):
    funnel.submit(body(NOW - 9_000, 1.0), WRITER).wait()
    store.failure = UnavailableError("the disk is full")

    async def both():
        coming = [funnel.begin(body(NOW - n, 2.0), WRITER) for n in range(2)]
        return await asyncio.gather(*coming, return_exceptions=True)

    assert [str(one) for one in asyncio.run(both())] == ["the disk is full"] * 2
    store.failure = None
    assert begun(funnel, body(NOW, 3.0)) == [Receipt(accepted=2)]
    assert store.values(USAGE)[NOW] == 3.0


def test_who_sends_again_and_again_together_is_kept_together(funnel, store):
    funnel.submit(body(NOW - 9_000, 0.0), WRITER).wait()
    for again in range(5):
        assert len(begun(funnel, *[body(NOW - 8_000 + 10 * again + n, 1.0) for n in range(8)])) == 8
    assert len(store.values(USAGE)) == 41
    assert sum(store.groups) == 41


def test_who_went_away_does_not_keep_the_others_from_their_answer(funnel, store):
    funnel.submit(body(NOW - 9_000, 0.0), WRITER).wait()

    async def one_leaves():
        leaving, staying = (asyncio.ensure_future(funnel.begin(body(NOW - n, 1.0), WRITER)) for n in range(2))
        await turn()
        leaving.cancel()
        return await staying

    assert asyncio.run(one_leaves()) == Receipt(accepted=2)


def test_a_full_queue_throttles(funnel):
    funnel.submit(body(NOW - 9_000, 0.0), WRITER).wait()
    funnel._committer._queue_bytes = 1
    bodies = [body(NOW - n, 1.0) for n in range(50)]

    async def flood() -> int:
        coming, refused = [], 0
        for one in bodies:
            try:
                coming.append(asyncio.ensure_future(funnel.begin(one, WRITER)))
            except ThrottledError:
                refused += 1
        await asyncio.gather(*coming)
        return refused + len(coming)

    assert asyncio.run(flood()) == 50
