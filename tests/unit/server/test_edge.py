import asyncio
import logging
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from tests.support.asgi import call, send
from tests.support.waiting import never, until

from jobmeter.access.limit import Budget
from jobmeter.access.memory import MemoryBudget
from jobmeter.access.months import Calendar
from jobmeter.access.usage import UsageMeter
from jobmeter.dialects.base import Answer
from jobmeter.errors import ForbiddenError, InvalidRequestError, JobmeterError, NotFoundError
from jobmeter.model.time import SystemClock
from jobmeter.server.admission import Admission, Lane
from jobmeter.server.edge import Edge
from jobmeter.server.exchange import MEMORY_BYTES
from jobmeter.server.pipeline import WATCH_AFTER_SECONDS, AccessRule, PublicHandler, ServedRequest
from jobmeter.server.telemetry import Telemetry


def _usage():
    return UsageMeter(lambda *_: None, SystemClock(), Calendar("UTC"))


class _Router:
    """Router that takes the paths below its prefix and runs the work of a test."""

    prefixes = ()

    def __init__(self, name, prefix, work=None, opening=None):
        self.name = name
        self._prefix = prefix
        self._work = work
        self._opening = opening

    def route(self, call):
        if not call.raw_path.startswith(self._prefix):
            return None
        if self._opening:
            raise self._opening
        return PublicHandler(self._serve)

    def refuse(self, call, request_id, error):
        return Answer(499 if type(error) is JobmeterError else 400, f"{self.name}: {error.message}".encode())

    async def _serve(self, exchange):
        if self._work:
            await self._work(exchange)
        await exchange.reply(Answer(200, self.name.encode()))


def _edge(*doors):
    return Edge(doors, Telemetry(SystemClock()), MemoryBudget(8_000), 1000, _usage())


def test_the_first_router_that_takes_a_path_answers():
    edge = _edge(_Router("a", "/a"), _Router("all", "/"))
    assert call(edge, "GET", "/a/b").body == b"a"
    assert call(edge, "GET", "/b").body == b"all"


def test_every_answer_has_a_request_id_of_its_own():
    edge = _edge(_Router("all", "/"))
    ids = {call(edge, "GET", "/").headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(one == one.upper() and len(one) == 36 for one in ids)


def test_a_refusal_has_the_form_of_the_router_that_refuses():
    async def work(exchange):
        raise InvalidRequestError("step is wrong", "step")

    edge = _edge(
        _Router("a", "/a", work), _Router("b", "/b", opening=NotFoundError("none", "path")), _Router("all", "/")
    )
    assert call(edge, "GET", "/a").body == b"a: step is wrong"
    assert call(edge, "GET", "/b").body == b"b: none"


def test_a_bug_is_logged_and_reported_to_nobody(caplog):
    async def work(exchange):
        raise KeyError("secret")

    with caplog.at_level(logging.ERROR):
        reply = call(_edge(_Router("a", "/", work)), "GET", "/x")
    assert (reply.status, reply.body) == (499, b"a: internal error")
    assert "secret" in caplog.text
    assert reply.headers["x-request-id"] in caplog.text


def test_a_bug_of_a_router_is_logged_and_answered(caplog):
    with caplog.at_level(logging.ERROR):
        reply = call(_edge(_Router("a", "/", opening=KeyError("secret"))), "GET", "/x")
    assert (reply.status, reply.body) == (499, b"a: internal error")
    assert "secret" in caplog.text
    assert reply.headers["x-request-id"] in caplog.text


def test_a_bug_after_the_answer_began_cuts_it_off():
    async def work(exchange):
        await exchange.begin("text/plain", ())
        raise KeyError("half")

    with pytest.raises(JobmeterError):
        call(_edge(_Router("a", "/", work)), "GET", "/x")


def test_a_body_that_is_too_large_is_refused_in_the_routers_form():
    async def work(exchange):
        await exchange.read_body(100, MemoryBudget(8_000).open_account())

    reply = call(_edge(_Router("a", "/", work)), "POST", "/", b"x" * 101)
    assert reply.body == b"a: the body is larger than 100 bytes"


def test_a_query_of_too_many_parameters_is_refused():
    reply = call(_edge(_Router("a", "/")), "GET", "/?" + "&".join(f"a{n}=1" for n in range(1001)))
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
    reply = call(_edge(_Router("a", "/", work)), "GET", "/", gone_after=0.2)
    assert reply.status == 0
    assert ended == ["cancelled"]
    assert time.monotonic() - began < 30


def test_slow_work_is_answered_when_the_client_stays():
    async def work(exchange):
        await never(4 * WATCH_AFTER_SECONDS)

    assert call(_edge(_Router("a", "/", work)), "GET", "/").body == b"a"


def test_requests_are_counted_by_router_and_status():
    telemetry = Telemetry(SystemClock())
    edge = Edge(
        [_Router("a", "/a"), _Router("b", "/", opening=NotFoundError("none"))],
        telemetry,
        MemoryBudget(8_000),
        1000,
        _usage(),
    )
    call(edge, "GET", "/a")
    call(edge, "GET", "/a")
    call(edge, "GET", "/x")
    text = telemetry.render().decode()
    assert 'jobmeter_requests_total{api="a",status="200"} 2.0' in text
    assert 'jobmeter_requests_total{api="b",status="400"} 1.0' in text


def test_head_has_no_body():
    reply = call(_edge(_Router("a", "/")), "HEAD", "/")
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
        first = asyncio.ensure_future(lane.run(partial(slow, "first")))
        second = asyncio.ensure_future(lane.run(partial(slow, "second")))
        await until(began.is_set)
        with pytest.raises(JobmeterError):
            await lane.run(partial(slow, "third"))
        second.cancel()
        await asyncio.wait([second])
        go_on.set()
        await first
        await until(lambda: lane.busy == 0)
        await lane.run(partial(slow, "fourth"))

    asyncio.run(main())
    lane.close()
    assert ran == ["first", "fourth"]


def test_send_is_concurrent():
    everybody = asyncio.Barrier(50)

    async def work(exchange):
        await everybody.wait()

    edge = _edge(_Router("a", "/", work))

    async def main():
        return await asyncio.gather(*(send(edge, "GET", "/") for _ in range(50)))

    assert {reply.status for reply in asyncio.run(main())} == {200}


class _Handler:
    """Handler without authorization, see ``Handler``: it answers "memory" or "worker", by where it runs."""

    rule = AccessRule("where", None, ())
    body_bytes, memory_bytes = 100_000, MEMORY_BYTES

    def __init__(self, work=None):
        self._work = work
        self.lane = Lane("test", 1, 1)
        self.services = SimpleNamespace(admission=Admission(SystemClock(), Budget()))

    def find_project(self, call):
        return None

    def answer_from_memory(self, request):
        return self._work() if self._work else Answer(200, b"memory")

    def work(self, request):
        return Answer(200, b"worker")

    async def send(self, result, exchange):
        await exchange.reply(result)

    def drop(self, result):
        pass


class _Operations(_Router):
    def __init__(self, handler):
        super().__init__("operations", "/")
        self._handler = handler

    def route(self, call):
        return self._handler


@pytest.mark.parametrize(
    ("body", "headers", "where"),
    [
        (b"", {}, b"memory"),
        (b"x" * 16_384, {}, b"memory"),
        (b"x" * 16_385, {}, b"worker"),
        (b"x", {"Content-Encoding": "gzip"}, b"worker"),
    ],
)
def test_only_small_bodies_are_answered_on_the_event_loop(body, headers, where):
    handler = _Handler()
    edge = Edge((_Operations(handler),), Telemetry(SystemClock()), MemoryBudget(800_000), 100_000, _usage())
    assert call(edge, "POST", "/", body, headers).body == where
    handler.lane.close()


@pytest.mark.parametrize("error", [None, ForbiddenError("no"), KeyError("bug")])
def test_every_request_is_finished_once_with_its_operation_and_outcome(monkeypatch, error):
    finished: list[ServedRequest] = []
    monkeypatch.setattr("jobmeter.server.edge.finish", lambda usage, request: finished.append(request))

    def work():
        if error is not None:
            raise error
        return Answer(200, b"done")

    handler = _Handler(work)
    reply = call(
        Edge((_Operations(handler),), Telemetry(SystemClock()), MemoryBudget(8_000), 100, _usage()), "GET", "/"
    )
    (request,) = finished
    assert request.rule is not None
    assert (request.rule.name, request.source.status) == ("where", reply.status)
    assert (request.error is None) == (error is None)
    handler.lane.close()


def test_a_path_of_one_dialect_alone_is_its_own_whatever_the_headers(server):
    headers = {
        "Authorization": f"Bearer {server.admin.token}",
        "x-acs-version": "2020-12-03",
        "x-acs-action": "GetNone",
    }
    assert server.raw("GET", "/prometheus/api/v1/status/buildinfo", headers=headers).json()["status"] == "success"
    assert server.raw("GET", "/api/v1/status/buildinfo", headers=headers).status == 404
