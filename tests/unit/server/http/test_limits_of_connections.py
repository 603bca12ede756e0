"""Tests of time limits, of full servers, and of the ends of connections."""

import gc
import weakref

from tests.support.http_wire import GET, Application, answer, connected, run
from tests.support.waiting import until

from jobmeter.server.http import limits

NEVER = 10.0**12
"""A moment after every deadline."""


def test_idle_half_sent_and_trickling_connections_are_closed_in_time():
    async def main():
        async with connected(Application()) as wire:
            wire.pass_time(limits.IDLE_SECONDS - 1)
            assert wire.closed == []
            wire.pass_time(1)
            assert wire.closed == ["idle"]
            assert not await wire.rest()
        async with connected(Application()) as wire:
            await wire.send(b"GET / HT")
            await until(lambda: wire.connection.find_overdue_reason(NEVER) is limits.Reason.SLOW)
            for _ in range(int(limits.HEAD_SECONDS)):
                await wire.send(b"T")
                wire.pass_time(1)
            assert wire.closed == ["slow"]
        application = Application()
        async with connected(application) as wire:
            await wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            await until(lambda: application.scopes)
            for _ in range(int(limits.STALL_SECONDS) + 2):
                await wire.send(b"x" * 100)
                wire.pass_time(1)
            assert wire.closed == ["slow"]
            await until(lambda: application.gone)

    run(main())


def test_a_connection_that_showed_a_key_may_rest_longer():
    async def application(scope, _receive, send):
        scope["extensions"]["jobmeter.call"]["authenticated"]()
        await answer(send)

    async def main():
        async with connected(application) as wire:
            await wire.send(GET)
            await wire.answer()
            await until(
                lambda: (
                    wire.connection.find_overdue_reason(wire.clock.monotonic() + limits.KEYED_IDLE_SECONDS - 1) is None
                )
            )
            wire.pass_time(limits.KEYED_IDLE_SECONDS - 1)
            assert wire.closed == []
            wire.pass_time(1)
            assert wire.closed == ["idle"]

    run(main())


def test_who_does_not_read_holds_the_answer_back_and_is_cut_off():
    produced, ended = [], []

    async def application(_scope, _receive, send):
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for number in range(1_000):
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
                produced.append(number)
        finally:
            ended.append(True)

    async def main():
        async with connected(application) as wire:
            wire.writer.transport.pause_reading()
            await wire.send(GET)
            await until(lambda: wire.connection.find_overdue_reason(NEVER) is limits.Reason.SLOW)
            count = len(produced)
            assert count < 50
            wire.pass_time(limits.STALL_SECONDS - 1)
            assert wire.closed == []
            wire.pass_time(1)
            assert wire.closed == ["slow"]
            await until(lambda: ended)

    run(main())


def test_where_all_are_busy_a_request_for_headers_gets_them_alone():
    async def main():
        async with connected(Application()) as wire:
            wire.connection.limited = True
            await wire.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await wire.rest()
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"content-length: " in head
            assert head.endswith(b"\r\n\r\n")

    run(main())


def test_where_all_are_busy_a_request_with_a_body_is_answered_before_it_comes():
    async def main():
        async with connected(Application()) as wire:
            wire.connection.limited = True
            await wire.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
            head, body = await wire.answer()
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"connection limit" in body
            await wire.send(b"67890")
            wire.writer.write_eof()
            assert not await wire.rest()

    run(main())


def test_a_request_for_another_protocol_is_answered_with_http_and_the_connection_closed():
    async def main():
        application = Application()
        async with connected(application) as wire:
            await wire.send(b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00")
            head, body = await wire.answer()
            assert head.startswith(b"HTTP/1.1 200 ")
            assert (b"connection: close" in head, body) == (True, b"ok")
            assert not await wire.rest()
        assert len(application.scopes) == 1

    run(main())


def test_where_all_are_busy_health_is_answered_and_the_rest_advised_to_come_again():
    async def main():
        application = Application()
        async with connected(application) as wire:
            wire.connection.limited = True
            await wire.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await wire.answer())[1] == b"ok"
            await wire.send(GET)
            head, body = await wire.answer()
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"connection limit" in body
            assert not await wire.rest()
        assert [scope["raw_path"] for scope in application.scopes] == [b"/healthz"]

    run(main())


def test_a_server_that_ends_closes_what_is_idle_and_takes_the_rest_of_a_body():
    async def main():
        application = Application()
        async with connected(application) as wire:
            wire.connection.finish()
            assert not await wire.rest()
        async with connected(application) as wire:
            await wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
            await until(lambda: application.scopes)
            wire.connection.finish()
            await wire.send(b"2\r\ncd\r\n0\r\n\r\n" + GET)
            got = await wire.rest()
            assert got.count(b"HTTP/1.1 200") == 1
            assert b"connection: close" in got
        assert application.bodies == [b"abcd"]

    run(main())


def test_a_closed_connection_leaves_nothing_behind():
    async def application(_scope, receive, send):
        while (await receive()).get("more_body", False):
            pass
        await answer(send)

    async def main():
        gc.disable()
        try:
            async with connected(application) as wire:
                await wire.send(GET + b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
                await wire.answer()
            left = weakref.ref(wire.connection)
            del wire.connection
            await until(lambda: left() is None)
        finally:
            gc.enable()

    run(main())
