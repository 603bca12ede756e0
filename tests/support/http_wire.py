"""HTTP client in memory, and an application that tests control."""

import asyncio
import socket
from contextlib import asynccontextmanager, nullcontext, suppress

from jobmeter.server.http.connection import Connection
from jobmeter.server.http.limits import Connections
from jobmeter.server.workers.forward import Forwarder
from jobmeter.server.workers.frames import READ_BY_WORKER
from jobmeter.server.workers.gateway import WorkerGateway
from jobmeter.store.channel import Channel
from tests.support.fakes import SetClock
from tests.support.waiting import until

behind_worker = False
"""True while applications are called through a worker's connection with the storage process."""
GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"


class Wire:
    """Connection to an application, with access to both of its ends."""

    def __init__(self, application):
        self.clock = SetClock()
        self.closed: list[str] = []
        self.connections = Connections("http", 10, lambda _, reason: self.closed.append(reason), self.clock.monotonic)
        self.connection = Connection(application, self.connections, lambda: b"today")
        self.connections.admit(self.connection)

    async def open(self):
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self.connection, ours)
        self.reader, self.writer = await asyncio.open_connection(sock=theirs, limit=2**26)

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self):
        """Read the head and the body of the next answer with a content length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head, await self.reader.readexactly(length)

    async def rest(self):
        """Read all bytes until the connection closes. Return None if it is reset."""
        with suppress(ConnectionError):
            return await self.reader.read()
        return None

    def pass_time(self, seconds):
        self.clock.time_ms += int(seconds * 1000)
        self.connections.sweep()


@asynccontextmanager
async def connected(application):
    through = forwarded(application) if behind_worker else nullcontext(application)
    async with through as called, wired(called) as wire:
        yield wire


@asynccontextmanager
async def forwarded(application):
    """Wrap an application as a worker sees it: each call passes over a socket and back."""
    loop, (ours, theirs), ended = asyncio.get_running_loop(), socket.socketpair(), asyncio.Event()
    gateway = WorkerGateway(application, lambda: None, lambda _: None, lambda: None)
    await loop.create_connection(lambda: gateway.channel, sock=ours)
    forwarder = Forwarder(Channel(READ_BY_WORKER, lambda message: forwarder.take(message), ended.set))  # noqa: PLW0108
    await loop.create_connection(lambda: forwarder.channel, sock=theirs)
    try:
        yield forwarder
    finally:
        gateway.channel.cut()
        await ended.wait()


@asynccontextmanager
async def wired(application):
    wire = Wire(application)
    await wire.open()
    try:
        yield wire
    finally:
        wire.writer.close()
        with suppress(ConnectionError):
            await wire.writer.wait_closed()
        await until(lambda: not len(wire.connections))


async def answer(send, body=b"ok", status=200, headers=()):
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


class Application:
    """Application that reads bodies, answers ``ok``, and records its requests."""

    def __init__(self):
        self.scopes = []
        self.bodies = []
        self.gone = 0

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await answer(send)


def run(main):
    asyncio.run(asyncio.wait_for(main, 60))
