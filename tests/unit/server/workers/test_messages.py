"""Tests of messages between a worker and the storage process: any split of the bytes, limits, back pressure, loss."""

import asyncio
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import until

from jobmeter.server.exchange import Reply
from jobmeter.server.workers.frames import (
    PIECE_BYTES,
    READ_BY_STORAGE,
    READ_BY_WORKER,
    WINDOW_BYTES,
    AnswerStart,
    BodyPart,
    Closed,
    Counts,
    End,
    Figures,
    Head,
    JobLookup,
    KeyLookup,
    LookupResult,
    NodesLookup,
    Ready,
    RecordLookup,
    SeriesLookup,
    Setup,
    Stop,
    Taken,
    Want,
)
from jobmeter.server.workers.gateway import WorkerGateway
from jobmeter.settings import Limits, Settings
from jobmeter.store.base import SeriesSelector
from jobmeter.store.channel import LENGTH_BYTES, Channel

HEADERS = [(b"content-type", b"text/plain")]
TO_WORKER = [
    Setup(Settings(data=Path("/data"), limits=Limits(body_bytes=7)), 12, bytes(32)),
    Want(1, authenticated=True),
    AnswerStart(1, 200, HEADERS, b"\x00\xff", more=True, authenticated=False),
    End(1),
    Stop(),
    LookupResult(2, b"\x00"),
    LookupResult(3, None),
]
TO_STORAGE = [
    Head(1, "GET", b"/a%2F\xe9", b"x=1", HEADERS, "http", ("127.0.0.1", 5), is_pushed=False),
    BodyPart(1, b"body", more=False, is_cut=False),
    Taken(1, 100),
    Figures(3),
    Closed("idle"),
    RecordLookup(1, KeyLookup(b"\xff")),
    RecordLookup(2, JobLookup(frozenset({"p"}), "j", is_head=True)),
    RecordLookup(3, NodesLookup(None, frozenset({"n"}))),
    RecordLookup(4, SeriesLookup(SeriesSelector(jobs=(2**64 - 1,), nodes=(("", "n"),), metrics=frozenset({"m"})))),
    Counts([("native", 200, 0.5)], [("a", "native", "op", False)], [(3, 0.25)]),
]


def channel(decoder, received):
    return Channel(decoder, received.append, lambda: None)


class Sink:
    """Transport that keeps the written bytes."""

    def __init__(self):
        self.data = b""
        self.writes = 0
        self.aborted = False

    def write(self, data):
        self.data += data
        self.writes += 1

    def set_write_buffer_limits(self, _):
        pass

    def abort(self):
        self.aborted = True


async def send_all(sink, messages):
    sender = channel(READ_BY_WORKER, [])
    sender.connection_made(sink)
    for message in messages:
        sender.send(message)
    await until(lambda: sink.data)


def test_large_messages_do_not_wait_for_further_ones():
    sink, part = Sink(), b"x" * PIECE_BYTES
    asyncio.run(send_all(sink, [BodyPart(1, part, more=True, is_cut=False)] * 3))
    assert sink.writes == 3


@pytest.mark.parametrize(("decoder", "messages"), [(READ_BY_WORKER, TO_WORKER), (READ_BY_STORAGE, TO_STORAGE)])
@given(cuts=st.lists(st.integers(1, 50), min_size=1))
def test_messages_arrive_equal_however_the_bytes_are_cut(decoder, messages, cuts):
    received: list[object] = []
    sink = Sink()
    asyncio.run(send_all(sink, messages))
    assert sink.writes == 1, "the messages of one step of the event loop share a write"
    receiver = channel(decoder, received)
    at = number = 0
    while at < len(sink.data):
        size = cuts[number % len(cuts)]
        receiver.data_received(sink.data[at : at + size])
        at, number = at + size, number + 1
    assert received == messages


@pytest.mark.parametrize("sent", [(1).to_bytes(LENGTH_BYTES, "little") + b"\xc1", b"\xff" * (4 * PIECE_BYTES + 4)])
def test_an_unreadable_or_huge_message_ends_the_connection(sent):
    received: list[object] = []
    sink = Sink()
    receiver = channel(READ_BY_STORAGE, received)
    receiver.connection_made(sink)
    with pytest.raises(msgspec.DecodeError):
        receiver.data_received(sent)
    assert sink.aborted
    assert received == []


@asynccontextmanager
async def worker_of(application):
    """Yield the worker's end of a connection with the storage process, and the messages received over it."""
    ours, theirs = socket.socketpair()
    received: list[object] = []
    closed: list[str] = []
    loop = asyncio.get_running_loop()
    gateway = WorkerGateway(application, lambda: None, closed.append, lambda: None)
    await loop.create_connection(lambda: gateway.channel, sock=ours)
    worker = channel(READ_BY_WORKER, received)
    await loop.create_connection(lambda: worker, sock=theirs)
    yield worker, received, gateway, closed
    worker.cut()
    await until(lambda: gateway.connections == 0)


def head(number=1):
    return Head(number, "GET", b"/", b"", [], "http", None, is_pushed=False)


def test_a_worker_sends_at_most_a_window_ahead_of_a_client_that_does_not_read():
    part, sent = b"x" * PIECE_BYTES, []

    async def application(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(20):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            sent.append(number)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def main():
        async with worker_of(application) as (worker, received, _, _):
            worker.send(head())
            within = WINDOW_BYTES // PIECE_BYTES
            await until(lambda: len(received) == within + 1)
            assert len(sent) == within, "the one beyond the window waits"
            worker.send(Taken(1, 3 * PIECE_BYTES))
            await until(lambda: len(received) == within + 4)
            assert len(sent) == within + 3
            for _ in range(20):
                worker.send(Taken(1, PIECE_BYTES))
            await until(lambda: received[-1] == End(1))

    asyncio.run(main())


def test_a_lost_worker_disconnects_its_calls():
    seen = []

    async def application(_scope, receive, _send):
        seen.append(await receive())

    async def main():
        async with worker_of(application) as (worker, received, _, _):
            worker.send(head())
            await until(lambda: received == [Want(1, authenticated=False)])
            worker.cut()
            await until(lambda: seen)

    asyncio.run(main())
    assert seen == [{"type": "http.disconnect"}]


def test_figures_and_answers_of_one_message():
    async def main():
        def application(_scope, _receive, send):
            return Reply(204, HEADERS, b"", send)

        async with worker_of(application) as (worker, received, gateway, closed):
            for message in (Ready(), Figures(3), Closed("idle"), head(4)):
                worker.send(message)
            await until(lambda: received)
            assert gateway.ready.is_set()
            assert (gateway.connections, closed) == (3, ["idle"])
            assert received == [
                AnswerStart(4, 204, HEADERS, b"", more=False, authenticated=False, is_over=True),
            ]

    asyncio.run(main())
