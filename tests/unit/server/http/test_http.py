"""Tests of HTTP/1.1 over a socket, byte by byte: the application's input, the client's answer, and disconnections."""

import asyncio

import pytest
from tests.support.http_wire import GET, Application, answer, connected, run
from tests.support.waiting import turn, until

from jobmeter.server.exchange import WHOLE_BODY, Reply
from jobmeter.server.http import connection, limits
from jobmeter.server.http.connection import HEAD_BYTES, PIPELINED, UNREAD_BYTES

NEVER = 10.0**12
"""A moment after every deadline."""


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a%2Fb//c", b"/a%2Fb//c", b""),
        (b"//healthz?x=%20&y=a+b", b"//healthz", b"x=%20&y=a+b"),
        (b"http://127.0.0.1:8400/a?b", b"http://127.0.0.1:8400/a", b"b"),
        (b"*", b"*", b""),
        (b"/?a?b", b"/", b"a?b"),
        (b"/?", b"/", b""),
    ],
)
def test_the_target_and_the_headers_come_as_sent(target, path, query):
    application = Application()

    async def main():
        async with connected(application) as wire:
            await wire.send(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: http://127.0.0.1/\r\nX-Odd:  \xe9A \r\n\r\n")
            head, body = await wire.answer()
            assert head.startswith(b"HTTP/1.1 200 OK\r\ndate: today\r\nx-content-type-options: nosniff\r\n")
            assert body == b"ok"

    run(main())
    (scope,) = application.scopes
    assert (scope["method"], scope["raw_path"], scope["query_string"]) == ("OPTIONS", path, query)
    assert scope["headers"] == [(b"host", b"http://127.0.0.1/"), (b"x-odd", b"\xe9A")]


@pytest.mark.parametrize("border", ["one-process"], indirect=True)
def test_the_application_takes_a_small_body_that_has_arrived_without_waiting():
    taken = []

    async def application(scope, receive, send):
        taken.append([scope[WHOLE_BODY](most) for most in (4, 5, 5)])
        await _Ready()(scope, receive, send)

    async def main():
        async with connected(application) as wire:
            head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
            await wire.send(head + b"hello" + head + b"hel")
            assert (await wire.answer())[1] == b"a"
            await wire.send(b"lo")
            assert (await wire.answer())[1] == b"a"

    run(main())
    assert taken == [[None, b"hello", None], [None, None, None]]


@pytest.mark.parametrize("border", ["one-process"], indirect=True)
@pytest.mark.parametrize(
    ("length", "more", "awaited"),
    [
        (UNREAD_BYTES, b"", True),
        (UNREAD_BYTES + 1, b"", False),
        (UNREAD_BYTES, b"Expect: 100-continue\r\n", False),
    ],
)
def test_the_answer_begins_when_a_short_body_has_arrived_unless_the_client_waits_for_it(length, more, awaited):
    application = _Ready()

    async def main():
        async with connected(application) as wire:
            head = b"POST /a HTTP/1.1\r\nHost: x\r\n" + more + b"Content-Length: %d\r\n\r\n" % length
            wire.connection.data_received(head + b"a")
            assert application.asked == (not awaited)
            wire.connection.data_received(bytes(length - 1))
            assert application.asked == 1

    run(main())


def test_a_client_that_stalls_inside_a_short_body_is_answered(monkeypatch):
    """The request's headers may refuse it, and the application reports that its body did not arrive."""
    monkeypatch.setattr(connection, "SHORT_BODY_SECONDS", 0.01)

    async def main():
        async with connected(_Ready()) as wire:
            head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
            await wire.send(head + b"hel")
            assert (await wire.answer())[1] == b"a"

    run(main())


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_bodies_with_a_length_and_in_chunks_come_whole_however_they_are_cut(size):
    application = Application()
    sent = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
        b"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n" + GET
    )

    async def main():
        async with connected(application) as wire:
            for start in range(0, len(sent), size):
                await wire.send(sent[start : start + size])
                await turn()
            assert [(await wire.answer())[1] for _ in range(3)] == [b"ok"] * 3

    run(main())
    assert application.bodies == [b"hello", b"abcde", b""]
    assert all(b"trailer" not in dict(scope["headers"]) for scope in application.scopes)


def test_requests_that_come_together_are_answered_in_order_and_too_many_are_not_taken():
    application = Application()

    async def main():
        async with connected(application) as wire:
            await wire.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5_000)))
            got = await wire.rest()
            assert got.count(b"HTTP/1.1 200") == len(application.scopes)
            assert got.count(b"HTTP/1.1 429") == 1

    run(main())
    assert [scope["raw_path"] for scope in application.scopes] == [b"/%d" % number for number in range(PIPELINED + 1)]


def test_a_body_is_not_read_faster_than_the_application_takes_it():
    asked, sizes = asyncio.Event(), []

    async def application(_scope, receive, send):
        await asked.wait()
        while True:
            message = await receive()
            sizes.append(len(message["body"]))
            if not message["more_body"]:
                break
        await answer(send, b"%d" % sum(sizes))

    async def main():
        async with connected(application) as wire:
            sending = asyncio.ensure_future(
                wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 8_000_000)
            )
            await until(lambda: wire.connection.find_overdue_reason(NEVER) is None)
            # The server is to answer: the client is not slow.
            wire.pass_time(10_000)
            assert wire.closed == []
            asked.set()
            assert (await wire.answer())[1] == b"8000000"
            await sending
        assert sizes[0] < 600_000

    run(main())


def test_100_continue_is_said_when_the_body_is_wanted():
    async def refusing(_scope, _receive, send):
        await answer(send, b"no", 413, [(b"connection", b"close")])

    async def main():
        head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        async with connected(Application()) as wire:
            await wire.send(head)
            assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await wire.send(b"ab")
            assert (await wire.answer())[1] == b"ok"
        async with connected(refusing) as wire:
            await wire.send(head)
            assert (await wire.rest()).startswith(b"HTTP/1.1 413 ")

    run(main())


def test_head_has_the_length_and_no_body_and_old_clients_get_no_chunks():
    async def streaming(scope, _receive, send):
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"a", b"", b"bc"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def main():
        async with connected(streaming) as wire:
            await wire.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            first, second = (await wire.rest()).split(b"HTTP/1.1 200 OK\r\n")[1:]
            assert first.endswith(b"content-length: 99\r\n\r\n")
            assert b"connection: close" in second
            assert second.endswith(
                b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"
            )
        async with connected(streaming) as wire:
            await wire.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            got = await wire.rest()
            assert b"transfer-encoding" not in got
            assert got.endswith(b"connection: close\r\n\r\nabc")
        async with connected(Application()) as wire:
            await wire.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert b"connection: keep-alive" in (await wire.answer())[0]
            await wire.send(b"GET / HTTP/1.0\r\n\r\n")
            assert (await wire.rest()).endswith(b"ok")

    run(main())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET /" + b"a" * (HEAD_BYTES + 1), b"431"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2 * HEAD_BYTES + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:b\r\n" * 300 + b"\r\n", b"431"),
    ],
)
def test_what_is_no_request_is_refused_after_the_answers_to_what_was(sent, status):
    application = Application()

    async def main():
        async with connected(application) as wire:
            await wire.send(GET)
            assert (await wire.answer())[1] == b"ok"
            await wire.send(GET + sent)
            await wire.send(b"more" * 100_000)
            wire.writer.write_eof()
            got = await wire.rest()
            assert got.count(b"HTTP/1.1 200") == 1
            assert got.rpartition(b"HTTP/1.1 ")[2].startswith(status)

    run(main())
    assert application.bodies == [b"", b""]


@pytest.mark.parametrize("closing", [b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b" HTTP/1.0\r\n\r\n"])
@pytest.mark.parametrize("apart", [False, True])
def test_nothing_is_answered_after_a_request_that_ends_the_connection(closing, apart):
    """The bytes that follow are ignored: a request or not, in the same packet or later, before or after the answer."""
    release = asyncio.Event()

    async def slow(_scope, _receive, send):
        await release.wait()
        await answer(send)

    async def main():
        for follows in (GET, b"\x16\x03\x01 no request", b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"):
            for application in (slow, Application()):
                release.clear()
                async with connected(application) as wire:
                    await wire.send(b"GET /" + closing + (b"" if apart else follows))
                    if apart:
                        await wire.send(follows)
                    release.set()
                    got = await wire.rest()
                assert got.count(b"HTTP/1.1") == 1, got
                assert got.startswith(b"HTTP/1.1 200")

    run(main())


def test_an_application_that_fails_when_called_is_logged_and_answered(caplog):
    def failing(_scope, _receive, _send):
        raise KeyError("a bug")

    async def main():
        async with connected(failing) as wire:
            await wire.send(GET)
            assert (await wire.rest()).startswith(b"HTTP/1.1 500 ")

    run(main())
    assert "a bug" in caplog.text


def test_an_early_answer_reaches_a_client_that_is_still_sending():
    async def refusing(_scope, _receive, send):
        await answer(send, b"too much", 413, [(b"connection", b"close")])

    async def main():
        async with connected(refusing) as wire:
            await wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 10_000_000)
            assert (await wire.answer())[1] == b"too much"
            # A request that never ends is cut off.
            wire.pass_time(limits.HEAD_SECONDS)
            await until(lambda: not len(wire.connections))

    run(main())


def test_half_an_answer_is_cut_off_and_a_header_keeps_to_its_line(caplog):
    async def failing(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("no more")

    async def short(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half"})

    async def splitting(_scope, _receive, send):
        await answer(send, headers=[(b"x", b"a\r\nset-cookie: b")])

    async def main():
        for application in (failing, short, splitting):
            async with connected(application) as wire:
                await wire.send(GET + GET)
                got = await wire.rest()
                assert not got or got.endswith(b"half")

    run(main())
    assert caplog.text.count("an answer failed") == 3


class _Ready:
    """Application without waiting: ``GET /n`` answers n, and the headers that the instance was made with."""

    def __init__(self, *headers):
        self.headers = headers
        self.asked = 0

    def __call__(self, scope, _receive, send):
        self.asked += 1
        body = scope["raw_path"][1:]
        return Reply(200, [(b"content-length", b"%d" % len(body)), *self.headers], body, send)


def test_answers_that_are_there_already_are_sent_in_order_and_too_many_are_not_taken():
    application = _Ready()

    async def main():
        async with connected(application) as wire:
            await wire.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(3)))
            assert [(await wire.answer())[1] for _ in range(3)] == [b"0", b"1", b"2"]
            await wire.send(
                b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(PIPELINED + 9))
            )
            got = await wire.rest()
            assert got.count(b"HTTP/1.1 200") == PIPELINED + 1
            assert b"HTTP/1.1 429" in got

    run(main())
    assert application.asked == 3 + PIPELINED + 1


def test_an_answer_that_is_there_waits_for_the_whole_request_and_ends_the_connection_where_it_is_to_end():
    application = _Ready()

    async def main():
        async with connected(application) as wire:
            await wire.send(b"GET /a HTTP/1.1\r\nhos")
            await turn()
            assert application.asked == 0
            await wire.send(b"t: x\r\nconnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n")
            got = await wire.rest()
            assert (got.count(b"HTTP/1.1"), got[-1:]) == (1, b"a")

    run(main())
    assert application.asked == 1


def test_a_body_of_length_0_is_no_body_and_the_connection_goes_on():
    async def main():
        async with connected(_Ready()) as wire:
            for number in range(3):
                await wire.send(b"POST /%d HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\n\r\n" % number)
                assert (await wire.answer())[1] == b"%d" % number

    run(main())


def test_a_header_of_an_answer_that_is_there_keeps_to_its_line(caplog):
    async def main():
        async with connected(_Ready((b"x", b"a\r\nset-cookie: b"))) as wire:
            await wire.send(GET + GET)
            assert not await wire.rest()

    run(main())
    assert caplog.text.count("an answer failed") == 1


def test_an_answer_that_is_there_awaited_is_sent_as_any_other():
    async def application(scope, receive, send):
        await _Ready()(scope, receive, send)

    async def main():
        async with connected(application) as wire:
            await wire.send(GET)
            assert (await wire.answer())[1] == b"x"

    run(main())
