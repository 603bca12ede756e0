import asyncio
import logging
import threading
import time
from dataclasses import dataclass

import pytest
from tests.asgi import call, send
from tests.waiting import never, until

from jobmeter.access.memory import MemoryBudget
from jobmeter.dialects.base import Answer
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError
from jobmeter.model.time import SystemClock
from jobmeter.server.edge import WATCH_AFTER_SECONDS, Edge
from jobmeter.server.telemetry import Telemetry
from jobmeter.server.work import Lane


@dataclass
class _Visit:
    serve: object
    body_bytes: int = 100
    at_once_bytes: int = 16 * 1024

    async def admit(self, exchange):
        return None

    def at_once(self, exchange):
        return None


class _Door:
    """Takes the paths below its prefix and does what it is told."""

    def __init__(self, name, prefix, work=None, opening=None):
        self.name = name
        self._prefix = prefix
        self._work = work
        self._opening = opening

    def open(self, call):
        if not call.raw_path.startswith(self._prefix):
            return None
        if self._opening:
            raise self._opening
        return _Visit(self._serve)

    def refuse(self, call, request_id, error):
        return Answer(499 if type(error) is JobmeterError else 400, f"{self.name}: {error.message}".encode())

    async def _serve(self, exchange):
        if self._work:
            await self._work(exchange)
        await exchange.reply(Answer(200, self.name.encode()))


def _edge(*doors):
    return Edge(doors, Telemetry(SystemClock()), MemoryBudget(8_000), 1000)


def test_the_first_door_that_takes_a_path_answers():
    edge = _edge(_Door("a", "/a"), _Door("all", "/"))
    assert call(edge, "GET", "/a/b").body == b"a"
    assert call(edge, "GET", "/b").body == b"all"


def test_every_answer_has_a_request_id_of_its_own():
    edge = _edge(_Door("all", "/"))
    ids = {call(edge, "GET", "/").headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(one == one.upper() and len(one) == 36 for one in ids)


def test_a_refusal_has_the_form_of_the_door_that_refuses():
    async def work(exchange):
        raise InvalidRequestError("step is wrong", "step")

    edge = _edge(_Door("a", "/a", work), _Door("b", "/b", opening=NotFoundError("none", "path")), _Door("all", "/"))
    assert call(edge, "GET", "/a").body == b"a: step is wrong"
    assert call(edge, "GET", "/b").body == b"b: none"


def test_a_bug_is_logged_and_told_nobody(caplog):
    async def work(exchange):
        raise KeyError("secret")

    with caplog.at_level(logging.ERROR):
        reply = call(_edge(_Door("a", "/", work)), "GET", "/x")
    assert (reply.status, reply.body) == (499, b"a: internal error")
    assert "secret" in caplog.text
    assert reply.headers["x-request-id"] in caplog.text


def test_a_bug_after_the_answer_began_cuts_it_off():
    async def work(exchange):
        await exchange.begin("text/plain", ())
        raise KeyError("half")

    with pytest.raises(JobmeterError):
        call(_edge(_Door("a", "/", work)), "GET", "/x")


def test_a_body_that_is_too_large_is_refused_in_the_doors_form():
    reply = call(_edge(_Door("a", "/")), "POST", "/", b"x" * 101)
    assert reply.body == b"a: the body is larger than 100 bytes"


def test_a_query_of_too_many_parameters_is_refused():
    reply = call(_edge(_Door("a", "/")), "GET", "/?" + "&".join(f"a{n}=1" for n in range(1001)))
    assert reply.status == 400


def test_work_for_a_client_that_left_is_cancelled():
    ended = []

    async def work(exchange):
        try:
            await never()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    began = time.monotonic()
    reply = call(_edge(_Door("a", "/", work)), "GET", "/", gone_after=0.2)
    assert reply.status == 0
    assert ended == ["cancelled"]
    assert time.monotonic() - began < 30


def test_slow_work_is_answered_when_the_client_stays():
    async def work(exchange):
        await never(4 * WATCH_AFTER_SECONDS)

    assert call(_edge(_Door("a", "/", work)), "GET", "/").body == b"a"


def test_requests_are_counted_by_door_and_status():
    telemetry = Telemetry(SystemClock())
    edge = Edge(
        [_Door("a", "/a"), _Door("b", "/", opening=NotFoundError("none"))], telemetry, MemoryBudget(8_000), 1000
    )
    call(edge, "GET", "/a")
    call(edge, "GET", "/a")
    call(edge, "GET", "/x")
    text = telemetry.text().decode()
    assert 'jobmeter_requests_total{door="a",status="200"} 2.0' in text
    assert 'jobmeter_requests_total{door="b",status="400"} 1.0' in text


def test_websockets_are_refused():
    sent = []

    async def take(message):
        sent.append(message)

    asyncio.run(_edge(_Door("a", "/"))({"type": "websocket"}, None, take))
    assert sent[0]["type"] == "websocket.close"


def test_head_has_no_body():
    reply = call(_edge(_Door("a", "/")), "HEAD", "/")
    assert (reply.body, reply.headers["content-length"]) == (b"", "1")


def test_a_full_lane_refuses_and_a_cancelled_call_leaves_the_queue():
    lane = Lane("test", 1, 1)
    ran = []
    began, go_on = threading.Event(), threading.Event()

    def slow(name):
        began.set()
        assert go_on.wait(60)
        ran.append(name)

    async def main():
        first = asyncio.ensure_future(lane.run(slow, "first"))
        second = asyncio.ensure_future(lane.run(slow, "second"))
        await until(began.is_set)
        with pytest.raises(JobmeterError):
            await lane.run(slow, "third")
        second.cancel()
        await asyncio.wait([second])
        go_on.set()
        await first
        await until(lambda: lane.busy == 0)
        await lane.run(slow, "fourth")

    asyncio.run(main())
    lane.close()
    assert ran == ["first", "fourth"]


def test_send_is_concurrent():
    everybody = asyncio.Barrier(50)

    async def work(exchange):
        await everybody.wait()

    edge = _edge(_Door("a", "/", work))

    async def main():
        return await asyncio.gather(*(send(edge, "GET", "/") for _ in range(50)))

    assert {reply.status for reply in asyncio.run(main())} == {200}


@pytest.mark.parametrize(
    ("body", "headers", "path"),
    [
        (b"", {}, b"at once"),
        (b"x" * 16_384, {}, b"at once"),
        (b"x" * 16_385, {}, b"a"),
        (b"x", {"Content-Encoding": "gzip"}, b"a"),
    ],
)
def test_only_what_is_read_in_a_moment_is_answered_on_the_event_loop(body, headers, path):
    class QuickVisit(_Visit):
        def at_once(self, exchange):
            return Answer(200, b"at once")

    class Quick(_Door):
        def open(self, call):
            return QuickVisit(self._serve, body_bytes=100_000)

    edge = Edge((Quick("a", "/"),), Telemetry(SystemClock()), MemoryBudget(800_000), 100_000)
    assert call(edge, "POST", "/", body, headers).body == path
