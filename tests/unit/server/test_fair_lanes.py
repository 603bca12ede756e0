"""Tests of query budgets: a key's queries do not block other keys, and they cost what a key may spend."""

import asyncio
import random
import threading
from contextlib import closing
from functools import partial
from unittest import mock

import pytest
from msgspec.structs import replace
from tests.support.asgi import send
from tests.support.fakes import NOW, SetClock
from tests.support.frames import row, samples
from tests.support.memory_store import MemoryStore
from tests.support.serving import BASE, serving
from tests.support.waiting import turn, until

from jobmeter.access.limit import Budget
from jobmeter.access.memory import MemoryBudget
from jobmeter.errors import InvalidRequestError, ThrottledError
from jobmeter.model.series import compute_job_key
from jobmeter.model.time import SystemClock
from jobmeter.query.meter import Meter
from jobmeter.server.admission import LONG, Admission, ConcurrencyLimiter, Lane, QueuedQuestion, run_admitted
from jobmeter.settings import Limits
from jobmeter.store.clickhouse import engine, pool

POINTS = [(NOW - 100_000 + 1_000 * at, at / 100) for at in range(100)]


@pytest.fixture
def lane():
    made = Lane("test", 4, 100)
    yield made
    made.close()


def _question(turns, key, work):
    """Return the work that a request runs on a thread."""
    return lambda: turns.begin(key, turns.open_account(), lambda ticket: ticket.run_and_end(work))


def _ask(turns, lane, key, work):
    return asyncio.ensure_future(run_admitted(turns, lane, _question(turns, key, work)))


def test_a_key_that_has_its_number_under_way_waits_without_a_thread(lane):
    turns = Admission(SystemClock(), Budget(concurrent=1))
    free = threading.Event()

    async def main():
        slow = [_ask(turns, lane, "a", free.wait) for _ in range(20)]
        await until(lambda: lane.busy == 1 and turns.short.waiting == 19)
        assert await run_admitted(turns, lane, _question(turns, "b", lambda: "b")) == "b"
        free.set()
        assert await asyncio.gather(*slow) == [True] * 20

    asyncio.run(main())
    assert turns.begin("a", turns.open_account(), lambda ticket: ticket.run_and_end(lambda: 1)) == 1


def test_never_more_than_so_many_of_a_key_run_and_each_is_answered(lane):
    turns = Admission(SystemClock(), Budget(concurrent=2))
    lock, running, most = threading.Lock(), [0], [0]

    def work(number):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.001)
        with lock:
            running[0] -= 1
        if number % 7 == 0:
            raise InvalidRequestError("no", "step")
        return number

    async def main():
        answers = [_ask(turns, lane, "a", partial(work, number)) for number in range(60)]
        return await asyncio.gather(*answers, return_exceptions=True)

    found = asyncio.run(main())
    assert [one for one in found if isinstance(one, int)] == [number for number in range(60) if number % 7]
    assert sum(isinstance(one, InvalidRequestError) for one in found) == 9
    assert most[0] <= 2


def test_who_gives_up_waiting_leaves_the_others_their_turn(lane):
    turns = Admission(SystemClock(), Budget(concurrent=1))
    free = threading.Event()
    ran: list[int] = []

    async def main():
        first = _ask(turns, lane, "a", free.wait)
        await until(lambda: lane.busy == 1)
        waiting = [_ask(turns, lane, "a", partial(ran.append, number)) for number in range(4)]
        await until(lambda: turns.short.waiting == 4)
        waiting[0].cancel()
        waiting[2].cancel()
        free.set()
        await asyncio.gather(first, *waiting, return_exceptions=True)

    asyncio.run(main())
    assert sorted(ran) == [1, 3]
    assert turns.short.enter("a")


def test_a_client_that_leaves_frees_its_slot_when_its_work_ends_and_its_key_pays(lane):
    """The client leaves at the worst moment: a thread has its question, and has not begun to work on it."""
    clock, charged = SetClock(), []
    turns = Admission(clock, Budget(concurrent=1), lambda rows, seconds: charged.append((rows, seconds)))
    first, is_first_over, has_it, begins, works, ends = (threading.Event() for _ in range(6))

    def run(ticket):
        if not is_first_over.is_set():
            return ticket.run_and_end(first.wait)
        has_it.set()
        begins.wait()
        return ticket.run_and_end(work)

    def work():
        works.set()
        ends.wait()
        clock.time_ms += 7_000

    async def main():
        one = asyncio.ensure_future(run_admitted(turns, lane, lambda: turns.begin("a", turns.open_account(), run)))
        await until(lambda: lane.busy == 1)
        other = asyncio.ensure_future(run_admitted(turns, lane, lambda: turns.begin("a", turns.open_account(), run)))
        await until(lambda: turns.short.waiting == 1)
        is_first_over.set()
        first.set()
        await one
        await until(has_it.is_set)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        seen = [turns.short.slots_in_use]
        begins.set()
        await until(works.is_set)
        seen.append(turns.short.slots_in_use)
        assert charged == [(0, 0.0)], "the first alone"
        ends.set()
        await until(lambda: lane.busy == 0)
        assert seen == [1, 1], "its slot is taken while its work is to come, and while it works"

    try:
        asyncio.run(main())
    finally:
        for event in (first, begins, ends):
            event.set()
    assert charged == [(0, 0.0), (0, 7.0)]
    assert turns.short.enter("a")


def test_a_client_that_leaves_before_a_thread_is_free_is_charged_nothing():
    lane, charged = Lane("test", 1, 100), []
    turns = Admission(SystemClock(), Budget(concurrent=1), lambda *cost: charged.append(cost))
    busy, ran = threading.Event(), []

    async def main():
        assert turns.short.enter("a")
        waits = _ask(turns, lane, "a", lambda: ran.append(1))
        await until(lambda: turns.short.waiting == 1)
        blocking = asyncio.ensure_future(lane.run(busy.wait))
        await until(lambda: lane.busy == 1)
        turns.short.leave("a")
        await until(lambda: lane.busy == 2)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        assert turns.short.enter("a")
        busy.set()
        await blocking

    asyncio.run(main())
    lane.close()
    assert (ran, charged) == ([], [])


def test_clients_that_leave_at_any_moment_leave_no_slot_taken_and_all_work_is_charged(lane):
    clock, lock, ran, charged = SystemClock(), threading.Lock(), [], []
    turns = Admission(clock, Budget(concurrent=2), lambda *cost: charged.append(cost))

    def work():
        with lock:
            ran.append(1)
        threading.Event().wait(0.001)

    async def main():
        chance = random.Random(7)
        asks = [_ask(turns, lane, f"key-{number % 5}", work) for number in range(300)]
        for one in chance.sample(asks, 200):
            one.cancel()
            if chance.random() < 0.3:
                await turn()
        await asyncio.gather(*asks, return_exceptions=True)
        await until(lambda: lane.busy == 0)

    lane.most = 1_000
    asyncio.run(main())
    assert len(ran) >= 100
    assert len(charged) == len(ran)
    assert all(seconds > 0 for _, seconds in charged)
    assert not turns.short.slots_in_use
    assert not turns.short.waiting


def test_the_memory_of_a_body_is_reserved_while_a_thread_has_it(lane):
    """The client leaves while its question waits, and while it is processed."""
    turns = Admission(SystemClock(), Budget(concurrent=1))
    memory = MemoryBudget(1_000)
    account = memory.open_account()
    account.take(600)
    works, ends = threading.Event(), threading.Event()

    def work():
        works.set()
        ends.wait()

    async def main():
        assert turns.short.enter("a")
        question = _question(turns, "a", work)
        asked = asyncio.ensure_future(run_admitted(turns, lane, question, during=account.run))
        await until(lambda: turns.short.waiting == 1)
        turns.short.leave("a")
        await until(works.is_set)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        account.close()
        with pytest.raises(ThrottledError):
            memory.check(600)
        ends.set()
        await until(lambda: lane.busy == 0)
        memory.check(1_000)

    asyncio.run(main())


def _reading(turns, lane, key, rows, released):
    """Send a question that is about to read ``rows`` rows and returns only after ``released`` is set."""
    started: list[str] = []

    def work():
        meter = Meter(SystemClock(), Limits())
        meter.make_budget(rows)
        started.append(key)
        released.wait(20)
        return key

    return _ask(turns, lane, key, work), started


def test_long_questions_of_many_keys_leave_threads_to_short_ones():
    turns = Admission(SystemClock(), Budget())
    released, free = threading.Event(), threading.Event()
    free.set()

    async def main(lane):
        answers = [_reading(turns, lane, f"key-{number % 8}", 1_000_000, released) for number in range(200)]
        # Each was admitted and found to be long. All but the running ones wait without a thread.
        await until(lambda: lane.busy == LONG and turns.long.waiting == 200 - LONG)
        await until(lambda: sum(len(started) for _, started in answers) == LONG)
        quiet, _ = _reading(turns, lane, "quiet", 1_000, free)
        assert await quiet == "quiet"
        assert not any(one.done() for one, _ in answers)
        released.set()
        await asyncio.gather(*(one for one, _ in answers))

    with closing(Lane("test", LONG + 1, 300)) as lane:
        asyncio.run(main(lane))


def test_a_long_question_is_charged_once_and_its_time_is_without_the_waiting():
    clock = SetClock()
    charged = []
    turns = Admission(clock, Budget(), lambda rows, seconds: charged.append((rows, seconds)))

    def work():
        meter = Meter(clock, Limits())
        meter.count(10, None)
        clock.time_ms += 1_000
        return meter.make_budget(1_000_000).seconds

    waiting = turns.begin("a", turns.open_account(), lambda ticket: ticket.run_and_end(work))
    assert isinstance(waiting, QueuedQuestion)
    clock.time_ms += 29_000

    async def run_queued():
        return turns.run_queued(waiting, await turns.wait(waiting))

    assert asyncio.run(run_queued()) == Limits().query_seconds - 1
    assert charged == [(10, 1.0), (10, 1.0)]


def test_seats_are_few_and_fewer_for_one_key():
    seats = ConcurrencyLimiter(2, SetClock(), 3)
    give_back = seats.take("a")
    seats.take("a")
    with pytest.raises(ThrottledError, match="this key has 2"):
        seats.take("a")
    seats.take("b")
    with pytest.raises(ThrottledError, match="the server has 3"):
        seats.take("c")
    give_back()
    give_back()
    seats.take("c")
    with pytest.raises(ThrottledError):
        seats.take("a")


class _Slow(MemoryStore):
    """Store whose reads wait until they are released."""

    def __init__(self):
        super().__init__()
        self.free = threading.Event()
        self.reading = 0

    def read(self, keys, span, budget):
        self.reading += 1
        self.free.wait(20)
        yield from super().read(keys, span, budget)


def test_the_slow_questions_of_one_key_leave_the_server_to_others(tmp_path):
    store = _Slow()
    made = serving(tmp_path / "data", store)
    made.ingest(samples([row("gpu.utilization", POINTS, job="j1")]))
    greedy, other = made.key("reader"), made.key("reader")
    target = f"{BASE}/jobs/j1/metrics?metric=gpu.utilization"

    async def main():
        credential = {"Authorization": f"Bearer {greedy.token}"}
        slow = [asyncio.ensure_future(send(made.application, "GET", target, b"", credential)) for _ in range(40)]
        await until(lambda: store.reading == Budget().concurrent)
        credential = {"Authorization": f"Bearer {other.token}"}
        reply = await asyncio.wait_for(send(made.application, "GET", f"{BASE}/jobs", b"", credential), 10)
        assert reply.status == 200
        store.free.set()
        assert {one.status for one in await asyncio.gather(*slow)} == {200}

    asyncio.run(main())
    made.application.close()


class _Connected(MemoryStore):
    """Store whose reads need one of an engine's connections; reads of one job take long."""

    def __init__(self, monkeypatch):
        super().__init__()
        monkeypatch.setattr(pool, "connect", lambda *_: mock.Mock())
        self.pool = pool.Pool(mock.Mock(), engine._READERS, wait_seconds=1)
        self.free = threading.Event()
        self.busy = 0

    def read(self, keys, span, budget):
        with self.pool.borrow_client():
            if compute_job_key("default", "slow") in keys.job.tolist():
                self.busy += 1
                self.free.wait(30)
            yield from super().read(keys, span, budget)


def test_the_slow_questions_of_one_key_leave_connections_to_others(tmp_path, monkeypatch):
    store = _Connected(monkeypatch)
    made = serving(tmp_path / "data", store)
    for job in ("slow", "quick"):
        made.ingest(samples([row("gpu.utilization", POINTS, job=job)]))
    greedy, other = made.key("reader"), made.key("reader")

    def ask(key, job):
        target = f"{BASE}/jobs/{job}/metrics?metric=gpu.utilization"
        return asyncio.ensure_future(
            send(made.application, "GET", target, b"", {"Authorization": f"Bearer {key.token}"})
        )

    async def main():
        slow = [ask(greedy, "slow") for _ in range(20)]
        await until(lambda: store.busy == Budget().concurrent)
        quick = await asyncio.wait_for(asyncio.gather(*(ask(other, "quick") for _ in range(8))), 20)
        assert {one.status for one in quick} == {200}
        assert not any(one.done() for one in slow)
        store.free.set()
        assert {one.status for one in await asyncio.gather(*slow)} == {200}

    asyncio.run(main())
    made.application.close()


@pytest.fixture
def spending(tmp_path):
    made = serving(tmp_path / "data", query_budgets="rows=150")
    made.ingest(samples([row("gpu.utilization", POINTS, job="j1")]))
    yield made
    made.application.close()


def test_a_key_that_has_spent_its_rows_waits_and_others_do_not(spending):
    target = "/jobs/j1/metrics?metric=gpu.utilization"
    assert [spending.call("GET", target).status for _ in range(3)] == [200, 200, 429]
    refused = spending.call("GET", target)
    problem = refused.json()["error"]
    assert problem == {"code": "throttled", "message": "the queries of a key may cost 150 stored rows a minute"}
    # 50 rows too many, plus one to start with, at 150 a minute.
    assert refused.headers["retry-after"] == "21"
    assert spending.call("GET", target, key=spending.key("reader")).status == 200
    # Writes do not count as queries.
    assert spending.ingest(samples([row("gpu.utilization", POINTS, job="j2")])).status == 200
    spending.clock.time_ms += 21_000
    assert spending.call("GET", target).status == 200
    assert 'jobmeter_access_refused_total{reason="budget"} 2.0' in spending.raw("GET", "/metrics").body.decode()


def test_exports_and_every_dialect_spend_from_the_same_budget(spending):
    export = spending.call("GET", "/jobs/j1/samples?metric=gpu.utilization&format=csv")
    assert len(export.body.splitlines()) == 101
    query = f"start={NOW - 200_000}&end={NOW}&m=avg:gpu.utilization"
    headers = {"Authorization": f"Bearer {spending.admin.token}"}
    assert spending.raw("GET", f"/api/query?{query}", headers=headers).status == 200
    reply = spending.raw("GET", f"/api/query?{query}", headers=headers)
    assert (reply.status, reply.json()["error"]["message"]) == (429, "Please throttle")
    assert reply.headers["retry-after"] == "21"
    alibaba = spending.raw("GET", "/api/v1/jobs/j1/metrics?MetricType=GpuCoreUsage", headers=headers)
    assert (alibaba.status, alibaba.json()["Code"]) == (429, "Throttling.User")
    huawei = spending.raw("GET", "/v2/default/training-jobs/j1/metrics/worker-0", headers=headers)
    assert (huawei.status, huawei.json()["error_code"]) == (429, "ModelArts.2799")
    baseten = spending.raw("POST", "/v1/training_projects/default/jobs/j1/metrics", b"{}", headers)
    assert baseten.status == 429


def test_the_questions_of_one_request_share_its_budget(tmp_path):
    made = serving(tmp_path / "data", limits=replace(Limits(), query_rows=250))
    made.ingest(samples([row("gpu.utilization", POINTS, job="j1")]))
    headers = {"Authorization": f"Bearer {made.admin.token}"}
    parts = [f"start={NOW - 200_000}&end={NOW}", *["m=avg:gpu.utilization"] * 2]
    assert made.raw("GET", f"/api/query?{'&'.join(parts)}", headers=headers).status == 200
    reply = made.raw("GET", f"/api/query?{'&'.join([*parts, 'm=sum:gpu.utilization'])}", headers=headers)
    assert reply.status == 413
    assert reply.json()["error"]["details"] == "field: range"
    made.application.close()


@pytest.mark.parametrize(
    ("method", "target", "status", "named"),
    [
        ("GET", f"{BASE}/jobs/j1/metrics?metric=gpu.utilization", 400, "range"),
        ("GET", f"{BASE}/jobs/j1/latest?metric=gpu.utilization", 400, "range"),
        ("GET", f"{BASE}/jobs/j1", 400, "range"),
        ("GET", f"/api/query?start={NOW - 200_000}&end={NOW}&m=avg:gpu.utilization", 413, "range"),
        ("GET", "/api/v1/jobs/j1/metrics?MetricType=GpuCoreUsage", 400, "StartTime"),
        ("GET", "/v2/default/training-jobs/j1/metrics/worker-0", 400, "training_job_id"),
        ("POST", "/v1/training_projects/default/jobs/j1/metrics", 400, "start_epoch_millis"),
    ],
)
def test_a_question_that_is_too_large_is_refused_in_the_askers_words(tmp_path, method, target, status, named):
    made = serving(tmp_path / "data", limits=replace(Limits(), query_rows=50))
    made.ingest(samples([row("gpu.utilization", POINTS, job="j1")]))
    headers = {"Authorization": f"Bearer {made.admin.token}"}
    reply = made.raw(method, target, b"{}" if method == "POST" else b"", headers)
    assert (reply.status, named in reply.body.decode()) == (status, True), reply.body
    made.application.close()
